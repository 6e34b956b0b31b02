"""`velocirl train`: the command and its parts."""
