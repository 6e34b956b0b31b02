"""`velocirl dataset`: create, import, validate, export and plot datasets."""
