"""Algorithms that learn from what they do."""
