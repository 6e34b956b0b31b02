"""Networks of torch; imported only when needed."""
