"""What learners count: time by its phases, and what environments report."""
