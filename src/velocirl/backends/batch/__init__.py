"""Whole batches: every operation for all rows before the next one, in Python, with torch, or as graphs on a GPU."""
