"""Tabular methods: value tables, training loop, agent, runtimes, and planning with a known model."""
