"""How functions are compiled: from plain Python to units of machine code, cached by content."""
