"""From environments and data to rows: what is done, what an environment gets, what is recorded and read again."""
