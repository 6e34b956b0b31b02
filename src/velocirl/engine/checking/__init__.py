"""Checks of environments, before compilation and at run time, with errors that name the user's line."""
