"""`velocirl tune`: the command, and what it is made of."""
