"""Collectors: processes that act and step environments in parallel with the learner, each with a ring of its own."""
