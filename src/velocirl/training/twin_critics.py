"""Two critics side by side, of which the more modest is believed (Fujimoto et al., 2018): what they learn from."""

from __future__ import annotations

# What is reported of each transition that the critics saw; the engine averages.
CRITIC_LOSS, VALUE, ERROR = range(3)


def twin_gradient(values, goal, weight, settings, gradient, metrics):  # noqa: ARG001 - of any algorithm's settings
    """d(loss)/d(values) of one transition, and its mean error: loss = weight * sum of (Q - goal)^2 / 2."""
    first, second = values[0] - goal, values[1] - goal
    gradient[0] = weight * first
    gradient[1] = weight * second
    error = 0.5 * (abs(first) + abs(second))
    metrics[CRITIC_LOSS] = weight * 0.5 * (first * first + second * second)
    metrics[VALUE] = 0.5 * (values[0] + values[1])
    metrics[ERROR] = error
    return error


def least(values):
    """The lower one of two values; a NaN is passed on."""
    return values[0] if values[0] < values[1] or values[0] != values[0] else values[1]
