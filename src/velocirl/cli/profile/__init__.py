"""`velocirl profile`: the command and its parts."""
