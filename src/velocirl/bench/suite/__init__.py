"""The benchmarks themselves, by category; every module here is found by itself."""
