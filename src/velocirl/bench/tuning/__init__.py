"""Which settings train fastest on this machine without learning worse."""
