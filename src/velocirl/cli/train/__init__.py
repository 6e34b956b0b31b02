"""`velocirl train`: the command, and what it is made of."""
