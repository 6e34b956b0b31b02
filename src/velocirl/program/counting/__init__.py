"""Training statistics: time per phase, episodes, and values reported by environments."""
