"""What acts of an agent: one row at a time or many, natively or with torch; and agents at play."""
