"""`velocirl monitor`: the command, and what it is made of."""
