"""Compilation of plain Python functions to units of machine code, cached by content."""
