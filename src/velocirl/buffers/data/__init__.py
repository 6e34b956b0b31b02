"""Recorded experience: what a data set is, its file, and what is checked before one is believed."""
