"""Overlap: steps that are taken while updates run, in a thread or on a second stream of a GPU."""
