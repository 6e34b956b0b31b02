"""Algorithms that keep the costs of constraints below limits while they learn to earn."""
