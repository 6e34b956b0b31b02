"""Networks: activations, initializers, and heads that turn outputs into actions."""
