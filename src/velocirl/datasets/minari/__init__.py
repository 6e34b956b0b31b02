"""Minari's layout: a directory with episodes in HDF5 and metadata in JSON, written and read without Minari."""
