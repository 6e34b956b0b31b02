"""Metrics of runs as arrays, curves and images."""
