"""Where the time and the memory of training go, and what to try next."""
