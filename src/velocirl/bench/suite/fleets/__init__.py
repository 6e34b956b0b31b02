"""Benchmarks of environments and fleets."""
