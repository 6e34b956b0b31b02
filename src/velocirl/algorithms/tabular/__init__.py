"""Algorithms that learn a table, one file each."""
