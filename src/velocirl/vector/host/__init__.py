"""Gymnasium's environments as fleets, in this process or in workers."""
