"""Arithmetic as the compiler should see it: single precision, elementary functions, products of matrices, vectors."""
