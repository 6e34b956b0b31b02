"""Iterations as data: which operations they consist of and in which order, for any backend."""
