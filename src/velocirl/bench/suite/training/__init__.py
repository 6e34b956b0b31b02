"""Benchmarks of deep agents: updates, complete trainings, their parts and their resources."""
