"""Peer libraries for comparison, each in its own process: `serving` runs there, controlled by `process`."""
