"""The one place where the loss of DQN is written: target and gradient of one transition, compiled like everything else.

The output row of a network has a column for each action. With dueling (Wang et al., 2016) these are advantages, and the
value follows them: Q(s, a) = V(s) + A(s, a) - mean of A(s, .). Which action is best is the same by both readings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from velocirl.engine import random
from velocirl.networks.heads import Head, categorical, legal_always, legal_by_mask, nothing_is_legal

# What the loss reports of each transition; the engine averages.
LOSS, ACTION_VALUE, ERROR = range(3)


class LossSettings(NamedTuple):
    """The numbers of the loss."""

    huber: np.float32  # the error from which the loss is a straight line; 0 is a squared error everywhere


class ActionValues(NamedTuple):
    """Scalar functions over the action values of one output row."""

    best: Callable[..., Any]  # (output, mask) -> the legal action of the highest value
    value: Callable[..., Any]  # (output, action) -> its value
    descend: Callable[..., Any]  # (action, slope, gradient): writes slope * d value / d output
    draw: Callable[..., Any]  # (mask, rng, action): a random legal action
    act: Callable[..., Any]  # (output, mask, exploration, rng, noise, action): the best one, or a random one


def action_values(count: int, masked: bool, dueling: bool) -> ActionValues:
    """The action values of a network with `count` actions."""
    is_legal = legal_by_mask if masked else legal_always
    share = 1.0 / count

    def best(output, mask):
        free = nothing_is_legal(mask, 0, count) if masked else True
        chosen, highest, found = 0, output[0], False
        for k in range(count):
            if is_legal(mask, k, free) and (not found or output[k] > highest):
                chosen, highest, found = k, output[k], True
        return chosen

    def value(output, action):
        if not dueling:
            return output[action]
        total = np.float32(0)
        for k in range(count):
            total += output[k]
        return output[count] + output[action] - total * share

    def descend(action, slope, gradient):
        for k in range(count):
            gradient[k] = -slope * share if dueling else 0.0
        gradient[action] += slope
        if dueling:
            gradient[count] = slope

    def draw(mask, rng, action):
        free = nothing_is_legal(mask, 0, count) if masked else True
        legal = 0
        for k in range(count):
            legal += 1 if is_legal(mask, k, free) else 0
        left = random.integer(rng, 0, legal)
        for k in range(count):
            if is_legal(mask, k, free):
                if left == 0:
                    action[0] = k
                left -= 1

    def act(output, mask, exploration, rng, noise, action):  # noqa: ARG001 - as where actions are numbers
        if random.uniform(rng) < exploration:
            draw(mask, rng, action)
        else:
            action[0] = best(output, mask)

    return ActionValues(best, value, descend, draw, act)


def dqn_target(values: ActionValues, double: bool) -> Callable[..., Any]:
    """What the value of an action should be, by the frozen network.

    r + discount Q_frozen(s', a'),  a' = the best by the network itself (double; van Hasselt et al., 2016), or by the
    frozen one. The reward is that of n steps; the discount is gamma^n, and 0 after a terminal state.
    """
    best, value = values.best, values.value

    def target(output, frozen, reward, discount, mask):
        """`output` and `frozen` are the rows of the next observation by the two networks."""
        chosen = best(output if double else frozen, mask)
        # What follows a terminal state does not exist: not even an infinite value there may count.
        following = value(frozen, chosen) if discount > 0.0 else np.float32(0)
        return reward + discount * following

    return target


def dqn_loss(values: ActionValues) -> Callable[..., Any]:
    """The loss over the action values of a network."""
    value, descend = values.value, values.descend

    def loss_gradient(output, action, goal, weight, settings, gradient, metrics):
        """d(loss)/d(output) of one transition, and its error: loss = weight * huber(Q(s, a) - goal).

        huber(e) = e^2 / 2 up to a limit h, beyond which it goes on as a straight line, h (|e| - h / 2).
        """
        chosen = action[0]
        estimate = value(output, chosen)
        error = estimate - goal
        size, limit = abs(error), settings.huber
        straight = limit > 0.0 and size > limit
        # The slope of a straight line is finite: an error that is not must still be found by the guard.
        slope = (limit if error > 0.0 else -limit) + error * 0.0 if straight else error
        descend(chosen, weight * slope, gradient)
        metrics[LOSS] = weight * (limit * (size - 0.5 * limit) if straight else 0.5 * error * error)
        metrics[ACTION_VALUE] = estimate
        metrics[ERROR] = size
        return error

    return loss_gradient


def epsilon_greedy_head(count: int, masked: bool, values: ActionValues, epsilon: float) -> Head:
    """How an agent acts outside of training: the best action, or, where it draws, a random one with a probability."""
    best, act = values.best, values.act

    def sample(output, mask, rng, action):
        act(output, mask, epsilon, rng, output, action)
        return np.float32(0)

    def mode(output, mask, action):
        action[0] = best(output, mask)

    return categorical(count, masked)._replace(name="epsilon_greedy", sample=sample, mode=mode)
