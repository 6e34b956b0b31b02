"""`velocirl table`: the command and its parts."""
