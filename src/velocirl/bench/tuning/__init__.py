"""Search for the settings that train fastest on this machine without learning worse."""
