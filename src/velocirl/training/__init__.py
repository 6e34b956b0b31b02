"""How agents are trained, and what a run keeps on disk."""
