"""Networks: activations, initialisers, and heads that turn outputs into actions."""
