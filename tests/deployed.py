"""Agents of every head, encoding and kind of policy, and exported C at work, for the tests of deployment."""

import ctypes
import shutil
import subprocess

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from hybrid import forbidding, noting
from recorded import file_of

import velocirl
from velocirl.deployment.c_words import identifier
from velocirl.deployment.controller import Choice, Code
from velocirl.deployment.deciding import outputs_of
from velocirl.engine.action_parts import parts_of

STRICT = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-Wconversion", "-O1"]
ROWS = 10_000
ROWS_OF = {"categorical": ROWS, "squashed gaussian": ROWS, "bytes": 50}  # what plain Python does in a second
TOLERANCE = 2e-5  # of an action, as a share of its reach or of itself
FLOATS = ctypes.POINTER(ctypes.c_float)
needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


class Spaces(gymnasium.Env):
    """Whatever spaces; nothing happens."""

    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


NUMBERS = Box(np.float32(-np.inf), np.float32(np.inf), (4,))
AGENTS = {
    "categorical": lambda: velocirl.PPO("CartPole-v1", hidden=(24, 16), normalise_observations=True, **HERE),
    "gaussian": lambda: velocirl.PPO("Pendulum-v1", hidden=(24,), **HERE),
    "limits": lambda: velocirl.PPO("ChemicalReactor-v0", hidden=(24, 16), normalise_observations=True, **HERE),
    "scaled": lambda: velocirl.SAC("ChemicalReactor-v0", hidden=(24, 16), scale_observations=True, **HERE),
    "half-bounded": lambda: velocirl.PPO(
        lambda: Spaces(NUMBERS, Box(np.array([-np.inf, 0.5], np.float32), np.array([1.0, np.inf], np.float32))), **HERE
    ),
    "squashed gaussian": lambda: velocirl.SAC("Pendulum-v1", hidden=(24, 16), activation="relu", **HERE),
    "squashed value": lambda: velocirl.TD3("Pendulum-v1", hidden=(24,), activation="elu", **HERE),
    "gaussian within": lambda: velocirl.IQL(data=file_of("Pendulum-v1"), hidden=(24,), **HERE),
    "values": lambda: velocirl.DQN("CartPole-v1", hidden=(24,), activation="leaky_relu", dueling=True, **HERE),
    "quantiles": lambda: velocirl.QRDQN("CartPole-v1", hidden=(24,), activation="gelu", quantiles=7, **HERE),
    "multi-discrete": lambda: velocirl.PPO(
        lambda: Spaces(MultiBinary(5), MultiDiscrete([3, 2, 4], start=[0, 5, -1])),
        activation="silu",
        layer_norm=False,
        **HERE,
    ),
    "parts": lambda: velocirl.PPO(noting, hidden=(8,), activation="sigmoid", **PLAIN, **HERE),
    "masked parts": lambda: velocirl.PPO(forbidding, **PLAIN, **HERE),
    "masked codes": lambda: velocirl.PPO("TicTacToe-v1", hidden=(16,), **HERE),
    "code": lambda: velocirl.PPO(lambda: Spaces(Discrete(7, start=-3), Discrete(3, start=2)), hidden=(16,), **HERE),
    "bytes": lambda: velocirl.PPO("MinAtarBreakout-v1", network="mlp(8)", **HERE),
    "layer norms": lambda: velocirl.SAC("Pendulum-v1", hidden=(24, 16), layer_norm=True, **HERE),
    "linear": lambda: velocirl.PPO("CartPole-v1", hidden=(), **HERE),
}
HERE = {"device": "python", "seed": 3}
PLAIN = {"layer_norm": None, "normalise_observations": False}  # no generic defaults


def shaken(agent):
    """An agent whose parameters and normaliser are no first ones, so that actions differ and reach their limits."""
    generator = np.random.default_rng(7)
    parameters = agent.policy.parameters
    parameters[:] = generator.normal(0.0, 0.5, parameters.shape)
    if agent.encoding.normalises:
        moments, space = agent.observation_moments.state, agent.source.observation_space
        bounded = np.isfinite(space.low).all()
        moments[0] = 100.0
        moments[1] = (space.low + space.high) / 2 if bounded else generator.normal(0.0, 1.0, moments.shape[1])
        spread = (space.high - space.low) / 4 if bounded else generator.uniform(0.3, 2.0, moments.shape[1])
        moments[2] = 100.0 * spread**2
    return agent


def observations_for(controller, rows=ROWS):
    """Raw rows: whole numbers from their whole range, others near and far, and at their limits."""
    generator = np.random.default_rng(5)
    space = controller.observation_space
    found = generator.normal(0.0, 3.0, (rows, len(controller.signals)))
    found[: rows // 10] *= 1e4
    found[0], found[1] = 1e30, -1e30  # far beyond whatever a normaliser holds
    if isinstance(space, Box):
        low, high = space.low.reshape(-1), space.high.reshape(-1)
        bounded = np.isfinite(low) & np.isfinite(high)
        found[:, bounded] = generator.uniform(low[bounded], high[bounded], (rows, bounded.sum()))
        found[0, bounded], found[1, bounded] = low[bounded], high[bounded]
        return np.rint(found) if space.dtype.kind in "ui" else found.astype(space.dtype)
    if isinstance(space, MultiBinary):
        return generator.integers(0, 2, found.shape)
    starts = [one.start for one in controller.inputs if isinstance(one, Code)]
    sizes = [one.size for one in controller.inputs if isinstance(one, Code)]
    return starts + (generator.random(found.shape) * sizes).astype(np.int64)


def masks_for(controller, rows=ROWS):
    """Masks that forbid some options, and here and there all of them; None where there are none."""
    if not controller.masked:
        return None
    masks = np.random.default_rng(6).integers(0, 2, (rows, controller.options)).astype(np.int8)
    masks[:20] = 0
    return masks


def said_by(agent, raw, masks=None):
    """The actions of an agent for raw rows, as rows of their entries."""
    space = agent.source.observation_space
    shape = (len(raw), *(space.shape or ()))
    with np.errstate(over="ignore"):  # of numbers far out, in plain Python
        actions, _ = agent.predict(raw.reshape(shape).astype(space.dtype), deterministic=True, action_masks=masks)
    return entries_of(agent.source.action_space, actions, len(raw))


def entries_of(space, actions, rows):
    """Batched actions as rows of their entries."""
    parts = []
    for part in parts_of(space):
        inside = actions
        for key in part.path:
            inside = inside[key]
        parts.append(np.asarray(inside, np.float64).reshape(rows, -1))
    return np.concatenate(parts, axis=1)


def assert_same(controller, found, expected, raw, tolerance=TOLERANCE):
    """Numbers within the tolerance; choices the same wherever the best one is so by more than rounding."""
    outputs = outputs_of(controller, raw)
    for place, one in enumerate(controller.actions):
        if not isinstance(one, Choice):
            size = np.maximum(np.abs(expected[:, place]), one.reach)
            assert (np.abs(found[:, place] - expected[:, place]) <= tolerance * size).all()
            continue
        same = found[:, place] == expected[:, place]
        worth = outputs[:, one.column * one.columns : (one.column + one.count) * one.columns]
        worth = worth.reshape(len(raw), one.count, one.columns).mean(axis=2)
        rows = np.arange(len(raw))
        mine, theirs = (worth[rows, (some[:, place] - one.start).astype(int)] for some in (found, expected))
        near = np.abs(mine - theirs) <= tolerance * np.maximum(np.abs(outputs).max(axis=1), 1.0)
        assert (same | near).all()
        assert same.mean() > 0.999


class Compiled:
    """An exported file of C, compiled strictly."""

    def __init__(self, path, folder, controller, name=None):
        library = folder / f"{path.stem}.so"
        command = ["cc", *STRICT, "-shared", "-fPIC", str(path), "-lm", "-o", str(library)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        self.function = getattr(ctypes.CDLL(str(library)), f"{identifier(name or controller.environment)}_predict")
        self.controller = controller

    def one(self, observation, mask=None, before=0.0):
        """What it gives back, and the action that it writes over `before`."""
        seen = np.ascontiguousarray(observation, np.float32)
        action = np.full(len(self.controller.actions), before, np.float32)
        masks = []
        if self.controller.masked:
            masks = [None if mask is None else np.ascontiguousarray(mask, np.int8).ctypes.data_as(ctypes.c_void_p)]
        status = self.function(seen.ctypes.data_as(FLOATS), *masks, action.ctypes.data_as(FLOATS))
        return status, action

    def all(self, raw, masks=None):
        """The actions for rows, each of which has to have one."""
        found = [self.one(row, None if masks is None else masks[i]) for i, row in enumerate(raw)]
        assert {status for status, _ in found} == {0}
        return np.array([action for _, action in found], np.float64)
