"""Compiled code on disk: by what it depends on, compiled once by whichever process comes first."""
