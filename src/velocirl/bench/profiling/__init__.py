"""Profiles of training time and memory, with advice."""
