"""Arithmetic for the compiler: single precision, elementary functions, matrix products, vector width."""
