"""Sources of steps: fleets, environments that Python steps, and collectors' processes."""
