"""Environments with a constraint on the first number of their state, for algorithms that learn to keep one."""

import dataclasses

from velocirl import Constraint
from velocirl.engine import registry
from velocirl.program.fields import reads_costs


def constrained(environment):
    """The same environment, under another id and not built in."""
    found = registry.find(environment)
    limit = Constraint("first", value=next(iter(found.state.fields)), low=-0.02, high=0.02)
    return dataclasses.replace(
        found, id=f"Constrained{found.id}", step=stepping(found.step), constraints=(limit,), presets={}
    )


def stepping(step):
    """The same step, as a function of this file."""

    def constrained_step(state, params, action, rng):
        return step(state, params, action, rng)

    return constrained_step


OFTEN = {name: constrained(name) for name in ("CartPole-v1", "Pendulum-v1")}  # defined once, and known in all tests


def for_algorithm(kind, environment):
    """An environment as an algorithm needs it."""
    if not reads_costs(getattr(kind, "Scratch", None)):
        return environment
    return OFTEN[environment] if isinstance(environment, str) else constrained(environment)
