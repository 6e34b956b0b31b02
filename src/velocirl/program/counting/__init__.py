"""Statistics of training: time by phases, episodes, and what environments report."""
