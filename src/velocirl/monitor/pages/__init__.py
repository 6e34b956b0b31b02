"""Pages for a browser without a network: the frame of a page, its style, and what is drawn on it."""
