"""What velocirl is measured against, each in a process of its own: `serving` runs there, `process` asks it."""
