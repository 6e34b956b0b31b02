"""Disk cache of compiled code, keyed by its dependencies; each entry is compiled by the first process that needs it."""
