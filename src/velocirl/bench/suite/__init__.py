"""Benchmarks by category; every module here is discovered automatically."""
