"""`velocirl play`: the command and its parts."""
