"""`velocirl demo`: the command and its parts."""
