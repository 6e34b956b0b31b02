"""Version of velocirl: the build reads it here, too."""

__version__ = "0.1.0.dev0"
