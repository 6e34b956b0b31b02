"""Backends: how an iteration runs. A backend knows operations; it names no algorithm."""
