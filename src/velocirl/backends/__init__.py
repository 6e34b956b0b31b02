"""Backends: execution of iterations. A backend implements operations and is independent of algorithms."""
