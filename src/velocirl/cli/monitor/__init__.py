"""`velocirl monitor`: the command and its parts."""
