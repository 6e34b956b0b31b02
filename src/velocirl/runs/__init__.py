"""What a run leaves on disk: its directory, checkpoints, figures, curves, and who writes them."""
