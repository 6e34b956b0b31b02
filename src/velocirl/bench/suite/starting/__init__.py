"""Benchmarks of start-up times: imports, compilation, the first iteration."""
