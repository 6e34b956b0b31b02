"""Batch backend: each operation runs on all rows before the next, in Python, in torch or as CUDA graphs."""
