"""Benchmarks of tabular learning."""
