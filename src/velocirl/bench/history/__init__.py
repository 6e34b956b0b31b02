"""History of all benchmark runs in a SQLite file: trends and change points."""
