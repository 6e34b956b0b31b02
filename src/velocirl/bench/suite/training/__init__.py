"""Benchmarks of deep agents: updates, whole trainings, their parts and what they need."""
