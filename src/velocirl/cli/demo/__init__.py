"""`velocirl demo`: the command, and what it is made of."""
