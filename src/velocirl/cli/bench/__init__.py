"""`velocirl bench`: the command and its parts."""
