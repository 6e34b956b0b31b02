"""Overlap: environment steps during updates, in a thread or on a second CUDA stream."""
