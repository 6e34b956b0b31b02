"""`velocirl plot`: the command and its parts."""
