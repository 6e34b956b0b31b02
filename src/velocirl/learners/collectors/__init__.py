"""Collectors: processes that act and step environments beside the learner, each writing to a ring of its own."""
