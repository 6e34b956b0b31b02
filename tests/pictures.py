"""Environments whose pixels tell the step, the episode and the row, for the tests of frames."""

import numpy as np

import velocirl
from velocirl import Box, Discrete, Environment, int32, random, record
from velocirl.engine.framing import whole_frame

HEIGHT, WIDTH, COLOURS = 4, 3, 2
LIMIT = 9


@record
class State:
    count: int32
    episode: int32


@record
class Params:
    length: int32 = 6
    tint: int32 = 0


def reset(state, params, rng):
    state.count = 0
    state.episode = random.integer(rng, 0, 16)


def step(state, params, action, rng):
    """Pays a number that tells the step, the action and, by a draw, how often it was called."""
    state.count += 1
    return state.count + 0.25 * action + random.integer(rng, 0, 2) * 0.5, state.count >= params.length


def shade(state, params, y, x):
    return (16 * state.count + state.episode + 64 * y + 5 * x + params.tint) % 256


def observe(state, params, frame):
    for y in range(HEIGHT):
        observe_row(state, params, y, frame[y])


def observe_row(state, params, y, row):
    for x in range(WIDTH):
        row[x] = shade(state, params, y, x)


def observe_coloured_row(state, params, y, row):
    for x in range(WIDTH):
        for colour in range(COLOURS):
            row[x, colour] = shade(state, params, y, x) // (colour + 1)


def observe_numbers(state, params, numbers):
    numbers[0] = state.count + 0.5
    numbers[1] = state.episode


def define(name, *, shape=(HEIGHT, WIDTH), dtype=np.uint8, max_steps=LIMIT, **functions):
    """An environment that is seen in this way."""
    return Environment(
        name, state=State, params=Params, observation=Box(0, 255, shape, dtype), action=Discrete(2), reset=reset,
        step=step, max_steps=max_steps, **functions,
    )  # fmt: skip


COLOURED = {"shape": (HEIGHT, WIDTH, COLOURS), "observe_row": observe_coloured_row}
NUMBERS = {"shape": (2,), "dtype": np.float32, "observe": observe_numbers}
# By what they do: how one is defined without skip and stack, and its own of these.
KINDS = {
    "whole": ({"observe": observe}, {"stack": 4}),
    "rows": ({"observe_row": observe_row}, {}),
    "stacked rows": ({"observe_row": observe_row}, {"stack": 3, "skip": 2}),
    "coloured rows": (COLOURED, {"stack": 2}),
    "numbers": (NUMBERS, {"stack": 4, "skip": 3}),
}

SMALL = {"num_envs": 8, "hidden": (8,), "seed": 0}
LEARNERS = {
    "PPO": {**SMALL, "horizon": 16, "minibatch_size": 64},
    "DQN": {**SMALL, "buffer_size": 512, "learning_starts": 64, "batch_size": 32},
}


def stacks_of(environment, state):
    """What copies see whose saved state this is, drawn anew: their steps tell what they were in before."""
    fleet = velocirl.make_vec(environment, len(state["elapsed"]), device="python")
    fleet.set_state(state)
    copies, observe_frame = fleet.copies, whole_frame(environment)
    seen = np.zeros_like(copies.observation)
    for copy, stack in enumerate(seen):
        for k, frame in enumerate(stack if environment.stack > 1 else [stack]):
            ago = environment.stack - 1 - k
            copies.state[copy].count = max(copies.elapsed[copy] - ago, 0) * environment.skip
            observe_frame(copies.state[copy], copies.params[copy], frame)
    return seen
