"""Training of agents, and the runs it keeps on disk."""
