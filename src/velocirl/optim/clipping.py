"""Clipping of gradients, as scalar functions. A NaN stays a NaN: clipping must not hide it from the NaN guard."""

from math import sqrt


def norm_scale(squared_norm, max_norm):
    """The factor that brings a gradient to at most this norm: min(1, max_norm / (norm + 1e-6)), as torch does.

    A max_norm of zero or less is off. Sum the squares in double precision: in single they overflow at a norm of 1.8e19.
    """
    scale = max_norm / (sqrt(squared_norm) + 1e-6)
    return 1.0 if max_norm <= 0.0 or scale >= 1.0 else scale


def clip_value(gradient, limit):
    """The number of a gradient brought into [-limit, limit]; a limit of zero or less is off."""
    below = limit if gradient > limit else gradient
    clipped = -limit if below < -limit else below
    return gradient if limit <= 0.0 else clipped
