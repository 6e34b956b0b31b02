"""Benchmarks of what people wait for: imports, compiling, the first iteration."""
