"""Judging a policy by recorded data, before it is let near the plant."""
