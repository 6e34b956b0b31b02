"""All runs so far, in a SQLite file: trends, and where they changed."""
