"""Gradient clipping, as scalar functions. A NaN stays a NaN: clipping must not hide it from the NaN guard."""

from math import sqrt


def norm_scale(squared_norm, max_norm):
    """Return the factor that limits a gradient's norm: min(1, max_norm / (norm + 1e-6)), as in torch.

    A `max_norm` of zero or less disables clipping. Sum the squares in double precision: in single they overflow at a
    norm of 1.8e19.
    """
    scale = max_norm / (sqrt(squared_norm) + 1e-6)
    return 1.0 if max_norm <= 0.0 or scale >= 1.0 else scale


def clip_value(gradient, limit):
    """Clip one number of a gradient to [-limit, limit]; a limit of zero or less disables clipping."""
    below = limit if gradient > limit else gradient
    clipped = -limit if below < -limit else below
    return gradient if limit <= 0.0 else clipped
