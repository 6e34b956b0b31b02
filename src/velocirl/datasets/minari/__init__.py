"""Minari's layout: a directory with episodes in HDF5 and a description in JSON, written and read without Minari."""
