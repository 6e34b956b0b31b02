"""Files of a run: its directory, checkpoints, metrics and curves, and their writers."""
