"""CPU threads backend: an iteration is lowered to instructions of one compiled interpreter."""
