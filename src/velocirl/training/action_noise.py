"""Exploration in continuous actions: random actions at first, and noise on those of the network."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

from velocirl.engine import random
from velocirl.networks.squashed import within_reach


def uniform_draw(size: int) -> Callable[..., Any]:
    """`draw(mask, rng, action)`: any action within [-1, 1] is as probable as any other."""

    def draw(mask, rng, action):  # noqa: ARG001 - as for choices, which have a mask
        for k in range(size):
            action[k] = random.uniform(rng, -1.0, 1.0)

    return draw


def noise_adder(size: int, correlation: float) -> Callable[..., Any]:
    """`add(deviation, rng, noise, action)`: noise whose correlation from one step to the next is `correlation`.

    x' = c x + sqrt(1 - c^2) deviation * normal, which has that deviation from step to step, whatever c is; 0 is white
    noise. `noise` keeps x; the action is held within [-1, 1].
    """
    kept, fresh = correlation, sqrt(1.0 - correlation * correlation)

    def add(deviation, rng, noise, action):
        for k in range(size):
            noise[k] = kept * noise[k] + fresh * deviation * random.normal(rng)
            action[k] = within_reach(action[k] + noise[k])

    return add
