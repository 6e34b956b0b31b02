"""Algorithms that learn from recorded data alone, one file each."""
