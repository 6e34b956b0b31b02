"""Fleets of one environment: their arrays, the life cycle of each environment, and the loops over all of them."""
