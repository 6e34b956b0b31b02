"""Environments whose actions have several parts, compiled and of Gymnasium's, for the tests of such actions."""

import gymnasium
import numpy as np

from velocirl import (
    Box,
    Dict,
    Discrete,
    Environment,
    MultiBinary,
    MultiDiscrete,
    Tuple,
    float32,
    int32,
    random,
    record,
)

TARGETS = 3
STEPS = 8


@record
class Target:
    kind: int32
    at: float32


def show_target(state, params, rng):
    state.kind = random.integer(rng, 0, TARGETS)
    state.at = random.uniform(rng, -1.0, 1.0)


def aim(state, params, action, rng):
    """Pays 1 for the right choice and the right number; nothing for one of them alone."""
    near = max(1.0 - abs(action[1][0] - state.at), 0.0)
    reward = near if action[0] == state.kind else 0.0
    show_target(state, params, rng)
    return reward, False


def see_target(state, params, observation):
    for k in range(TARGETS):
        observation[k] = 1.0 if state.kind == k else 0.0
    observation[TARGETS] = state.at


aiming = Environment(
    "Aiming-v0", state=Target, observation=Box(-1, 1, (TARGETS + 1,)), max_steps=STEPS,
    action=Tuple((Discrete(TARGETS), Box(-1, 1, (1,)))), reset=show_target, step=aim, observe=see_target,
)  # fmt: skip


class Aiming(gymnasium.Env):
    """The same of Gymnasium's, its parts in a dict within a tuple, and its choices counted from 5."""

    observation_space = aiming.observation
    action_space = Tuple(
        (Dict(kind=Discrete(TARGETS, start=5), flag=MultiBinary(1)), Box(-3.0, 1.0, (1,), dtype=np.float64))
    )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self._look(), {}

    def _look(self):
        self.kind, self.at = int(self.np_random.integers(TARGETS)), self.np_random.uniform(-1, 1)
        return np.array([*(self.kind == k for k in range(TARGETS)), self.at], np.float32)

    def step(self, action):
        assert self.action_space.contains(action)
        near = max(1.0 - abs((action[1][0] + 1) / 2 - self.at), 0.0)  # from -3..1 to -1..1
        reward, self.time = near * (action[0]["kind"] - 5 == self.kind), self.time + 1
        return self._look(), float(reward), False, self.time == STEPS, {}


@record
class Seen:
    numbers: float32[10]
    steps: int32


def forget(state, params, rng):
    for k in range(10):
        state.numbers[k] = 0.0
    state.steps = 0


def note(state, params, action, rng):
    """Keep every number of the action, for a test to look at."""
    state.numbers[0] = action.kind
    for k in range(2):
        state.numbers[1 + k] = action.pair[k]
        state.numbers[3 + k] = action.flags[k]
    for k in range(4):
        state.numbers[5 + k] = action.push[k // 2, k % 2]
    state.numbers[9] = action.gain
    state.steps += 1
    return action.push[1, 0] * (1.0 if action.kind == 2 else 0.5), False


def see_numbers(state, params, observation):
    for k in range(10):
        observation[k] = state.numbers[k]


PARTS = {  # in the order in which Gymnasium keeps them
    "flags": MultiBinary(2),
    "gain": Box(0.0, 0.1, (), dtype=np.float64),
    "kind": Discrete(3),
    "pair": MultiDiscrete([2, 4]),
    "push": Box(-2, 2, (2, 2)),
}
noting = Environment(
    "Noting-v0", state=Seen, observation=Box(-4, 4, (10,)), action=Dict(PARTS), max_steps=5,
    reset=forget, step=note, observe=see_numbers,
)  # fmt: skip


def numbers_of(action, copy=None):
    """The numbers of an action of `noting`, or of one copy's among several, in the order in which it keeps them."""
    parts = {name: np.asarray(part if copy is None else part[copy]) for name, part in action.items()}
    return np.concatenate([parts[name].reshape(-1) for name in ("kind", "pair", "flags", "push", "gain")])


def forbid(state, params, mask):
    """In the second and fourth step not the first flag's 1, nor the kinds 0 and 1."""
    for k in range(len(mask)):
        mask[k] = 1
    if state.steps % 2 == 1:
        mask[1] = 0
        mask[4] = 0
        mask[5] = 0


forbidding = Environment(
    "Forbidding-v0", state=Seen, observation=Box(-4, 4, (10,)), action=Dict(PARTS), max_steps=5,
    reset=forget, step=note, observe=see_numbers, legal=forbid,
)  # fmt: skip
