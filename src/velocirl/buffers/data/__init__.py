"""Datasets of recorded experience: definition, file format, validation."""
