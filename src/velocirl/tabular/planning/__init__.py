"""Exact solutions of finite models: what the best policy of a small world is worth, to the last digit."""
