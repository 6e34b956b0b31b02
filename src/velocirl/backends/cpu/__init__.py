"""CPU threads: an iteration is lowered to instructions, which one compiled interpreter executes."""
