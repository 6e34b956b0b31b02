"""`velocirl doctor`: the command and its parts."""
