"""`velocirl doctor`: the command, and what it is made of."""
