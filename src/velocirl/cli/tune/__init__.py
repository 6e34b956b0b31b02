"""`velocirl tune`: the command and its parts."""
