"""Lookup of objects named on a command line: environments, runs, models, controllers, and trusted code."""
