"""The figures of runs as arrays, curves and pictures."""
