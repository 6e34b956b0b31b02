"""Files: where they are kept, how they are read when somebody else may have made them, and written whole."""
