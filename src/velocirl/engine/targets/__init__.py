"""Targets that run functions: plain Python, CPU threads, CUDA."""
