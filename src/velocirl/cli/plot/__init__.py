"""`velocirl plot`: the command, and what it is made of."""
