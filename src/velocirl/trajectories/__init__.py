"""Recorded trajectories of policies, with names and units: recording, plots, and safety evaluation."""
