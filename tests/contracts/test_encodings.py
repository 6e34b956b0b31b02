"""One encoding everywhere: whatever reads an observation reads what the formula below says, for every kind of space.

Pairs of features that meet, and the test that covers each; a kind of space is a row of `KINDS`:

| encoding   | acting | remembering | prefill | continuing (from; to) | export (C, ONNX, JSON) | judging | resuming |
|------------|--------|-------------|---------|-----------------------|------------------------|---------|----------|
| raw        | x      | x           | x       | x; x                  | x                      | x       | x        |
| scaled     | x      | x           | x       | x; x                  | x                      | x       | x        |
| normalised | x      | rollouts    | data 1  | x; none learns so     | x                      | x       | x        |
| frames     | x      | x           | refused | torch alone: refused  | test_onnx_file         | refused | 2        |

1: `Recorded` writes the data itself, as it does for prefill: `test_data`
2: tests/contracts/test_cuda_stored_frames.py, tests/backends/batch/pictures
Priorities meet prefill in tests/training/test_prefill.py; constants meet normalisers in
tests/program/test_normalizing.py; tests/networks/test_encoding.py compares compiled code with plain Python.
"""

import gymnasium
import numpy as np
import onnxruntime
import pytest
from choosing import on_cuda
from deployed import Compiled, entries_of, needs_cc
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from gymnasium.vector.utils import create_empty_array
from json_controller import act

import velocirl
from velocirl import BC, PPO, SAC, TD3, TD3BC, Dataset, DatasetInfo
from velocirl.deployment.deciding import decide
from velocirl.deployment.reading import read_controller
from velocirl.engine.disk.files import parse_json
from velocirl.judging.acting import actions_at_recorded, policy_for
from velocirl.judging.numbers import numbers_of
from velocirl.networks.encoding import encoding_for
from velocirl.networks.observations import is_structured, leaves_of, raw_space, write_raw
from velocirl.program.rows.frames import Shown, Stacks, load_strip, show
from velocirl.training.agent import Agent
from velocirl.vector.host.copies import map_arrays, read_row

HUGE = np.finfo(np.float32).max
UNITS = Box(np.array([250, 0, -HUGE, 7, -np.inf], np.float32), np.array([450, 2e6, HUGE, 7, np.inf], np.float32))
KINDS = {
    "numbers": Box(-np.inf, np.inf, (3,)),
    "units": UNITS,
    "stacked": Box(np.stack([UNITS.low] * 2), np.stack([UNITS.high] * 2)),
    "double": Box(-5.0, 20.0, (2,), np.float64),
    "whole": Box(-10, 30, (2,), np.int32),
    "bytes": Box(0, 255, (2, 3), np.uint8),
    "few bytes": Box(0, 9, (4,), np.uint8),
    "choice": Discrete(4, start=3),
    "choices": MultiDiscrete([2, 3], start=[5, -1]),
    "bits": MultiBinary(3),
    "dict": Dict({
        "arm": Tuple([Box(-50, 150, (2, 2)), Discrete(3, start=-1)]), "camera": Box(0, 255, (2, 2, 1), np.uint8),
        "flow": Box(0, 8, (), np.float64), "mode": MultiDiscrete([2, 2]), "units": UNITS,
    }),
    "tuple": Tuple([Box(200, 400, (1,)), MultiBinary(2)]),
}  # fmt: skip
ACTION = Box(np.array([-2, 10], np.float32), np.array([2, 350], np.float32))
ROWS, EPISODES = 40, 2
HERE = {"hidden": (), "device": "python", "seed": 3}
CRITICS = {**HERE, "critic_layer_norm": False}
STEPS = {**CRITICS, "num_envs": 1, "batch_size": 4, "buffer_size": 100}
TORCH = {"device": "cpu", "network": "mlp(4, norm=layer)", "critic": "mlp(4, norm=layer)"}
BACKENDS = {
    "python": {"device": "python"}, "torch": TORCH, "threads": {"device": "cpu", "threads": 1},
    "cuda": {**TORCH, "device": "cuda", "precision": "float32"},
}  # fmt: skip
SOME = ("units", "bytes", "dict")  # that are tried on every backend
WAYS = {"raw": {"scale_observations": False}, "scaled": {"scale_observations": True}, "normalised": {}}
LIMIT = 10.0

MARKS = {"torch": pytest.mark.slow, "threads": pytest.mark.slow, "cuda": on_cuda()}
on_backends = pytest.mark.parametrize(
    ("kind", "backend"),
    [
        *((kind, "python") for kind in KINDS),
        *(pytest.param(kind, name, marks=MARKS[name]) for kind in SOME for name in MARKS),
    ],
)
by_kind = pytest.mark.parametrize("kind", KINDS)
by_way = pytest.mark.parametrize("way", WAYS)
by_scale = pytest.mark.parametrize("way", ["raw", "scaled"])


def formula(space, way, batch, data=None):
    """The input rows of a batch of observations; normalised by what the data has of them."""
    parts = []
    for leaf in leaves_of(space):
        seen, known = (None if one is None else of_leaf(one, leaf) for one in (batch, data))
        box = leaf.space if isinstance(leaf.space, Box) else None
        if isinstance(leaf.space, Discrete):
            parts.append(seen == leaf.space.start + np.arange(leaf.space.n))
        elif isinstance(leaf.space, MultiDiscrete):
            counts = zip(seen.T, leaf.space.nvec, leaf.space.start, strict=True)
            parts += [column[:, None] == start + np.arange(count) for column, count, start in counts]
        elif box is not None and way == "normalised":
            mean, deviation = known.mean(0), known.std(0)
            parts.append(np.clip((seen - mean) / np.where(deviation == 0, 1, deviation), -LIMIT, LIMIT))
        elif box is not None and box.dtype == np.uint8:
            parts.append(seen / box.high.max())
        elif box is not None and way == "scaled" and box.dtype.kind == "f":
            low, high = (bound.reshape(-1).astype(np.float64) for bound in (box.low, box.high))
            scales = np.isfinite(low) & (np.abs(low) < 1e30) & np.isfinite(high) & (high < 1e30) & (low < high)
            low, high = np.where(scales, low, -1), np.where(scales, high, 1)
            parts.append(2 * (seen - low) / (high - low) - 1)
        else:
            parts.append(seen)
    return np.concatenate([np.asarray(part, np.float64) for part in parts], axis=1)


def of_leaf(batch, leaf):
    for key in leaf.path:
        batch = batch[key]
    return batch.reshape(len(batch), -1).astype(np.float64)


def drawn(space, rows=ROWS, seed=0):
    """Observations of a space; of three numbers and more the last one is always 5, or its nearest."""
    generator, batch = np.random.default_rng(seed), create_empty_array(space, rows)
    for leaf in leaves_of(space):
        into = batch
        for key in leaf.path:
            into = into[key]
        if isinstance(leaf.space, Box):
            low, high = (np.asarray(bound, np.float64) for bound in (leaf.space.low, leaf.space.high))
            near = (np.abs(low) < 1e30) & (np.abs(high) < 1e30)
            values = np.where(near, low, -3) + np.where(near, high - low, 6) * generator.random((rows, *leaf.shape))
            values = np.rint(values) if leaf.space.dtype.kind in "iu" else values
            if leaf.size > 2:
                values.reshape(rows, -1)[:, -1] = np.clip(5, low.reshape(-1)[-1], high.reshape(-1)[-1])
            into[...] = np.clip(values, low, high)
        else:
            leaf.space.seed(seed)
            into[...] = np.stack([np.asarray(leaf.space.sample()) for _ in range(rows)]).reshape(into.shape)
    return batch


class Told(gymnasium.Env):
    """Shows observations one after the other."""

    action_space = ACTION

    def __init__(self, space, batch):
        self.observation_space, self.batch = space, batch

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return read_row(self.batch, 0), {}

    def step(self, action):
        self.time += 1
        return read_row(self.batch, self.time), 0.5, False, self.time == ROWS - 1, {}


def data_of(space):
    """Episodes of what is drawn, and all of their observations but the last of each, which nobody acted on."""
    generator, batch, length = np.random.default_rng(1), drawn(space), ROWS // EPISODES
    episodes = [
        {
            "observations": map_arrays(lambda column, first=first: column[first : first + length], batch),
            "actions": generator.uniform(ACTION.low, ACTION.high, (length - 1, 2)).astype(np.float32),
            "rewards": generator.normal(size=length - 1).astype(np.float32),
        }
        for first in range(0, ROWS, length)
    ]
    acted = np.flatnonzero((np.arange(ROWS) + 1) % length)
    return Dataset.from_episodes(episodes, DatasetInfo(space, ACTION)), map_arrays(lambda one: one[acted], batch)


def made(kind, way, **changes):
    """An agent of a kind of observation and encoding, whose outputs are about 0.5 in size, so that actions differ."""
    space = KINDS[kind]
    if way == "normalised":
        agent = TD3BC(data=data_of(space)[0], **{**CRITICS, "batch_size": 4, **changes})
    else:
        agent = TD3(lambda: Told(space, drawn(space)), **{**STEPS, **WAYS[way], **changes})
    inputs = formula(space, way, drawn(space), data_of(space)[1])
    spread = np.maximum(inputs.std(0), np.abs(inputs).max(0) / 20)
    if "network" not in changes:
        ((weights, biases),) = agent.network.layers(agent.policy.parameters)
        drawn_weights = np.random.default_rng(7).normal(0, 0.5, weights.shape)
        weights[:] = drawn_weights / np.where(spread == 0, 1, spread)[:, None] / np.sqrt(len(spread))
        biases[:] = 0.1 - inputs.mean(0) @ weights
    return agent


def expected_of(agent, inputs):
    """What an agent without hidden layers does for the rows that it reads."""
    ((weights, biases),) = agent.network.layers(agent.parameters.astype(np.float64))
    centre, reach = (ACTION.high + ACTION.low) / 2, (ACTION.high - ACTION.low) / 2
    return centre + reach * np.tanh(inputs @ weights + biases)


def assert_acts(found, expected, tolerance=1e-4):
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * (ACTION.high - ACTION.low).max())
    assert np.ptp(expected, axis=0).min() > 0.05


@by_way
@by_kind
def test_acting(kind, way):
    agent, space = made(kind, way), KINDS[kind]
    data, seen = data_of(space)
    inputs = formula(space, way, drawn(space), seen)
    assert inputs.shape == (ROWS, agent.encoding.inputs)
    assert_acts(agent.predict(drawn(space), deterministic=True)[0], expected_of(agent, inputs))
    # Judging asks the same policy about recorded observations, all at once.
    asked = actions_at_recorded(policy_for(agent, data), data)
    assert_acts(asked * 170, (expected_of(agent, inputs) - [0, 180]) / [2, 170] * 170)


@by_kind
def test_judging_compares_observations_as_they_are(kind):
    space = KINDS[kind]
    found = numbers_of(space, drawn(space), ROWS)
    np.testing.assert_allclose(found, formula(space, "raw", drawn(space)), rtol=1e-6)


@by_scale
@on_backends
def test_remembering_and_prefill(kind, way, backend):
    """A memory has the steps that were taken, and before them those that were recorded."""
    space = KINDS[kind]
    data, acted = data_of(space)
    changes = BACKENDS[backend]
    if backend != "threads" and "bytes" in kind:  # which are stored frame by frame
        with pytest.raises(ValueError, match="shows pictures, which are stored frame by frame: leave prefill out"):
            made(kind, way, prefill=data, **changes)
        return
    agent = made(kind, way, prefill=data, **changes).learn(20)
    rows = agent.learner.state()["memory.rows"][:]
    wanted = np.concatenate([formula(space, way, acted), formula(space, way, drawn(space))[:20]])
    np.testing.assert_allclose(rows["observation"][: len(wanted)], wanted, rtol=1e-5, atol=1e-5)
    following = formula(space, way, drawn(space))[1:21]
    np.testing.assert_allclose(
        rows["next_observation"][len(wanted) - 20 : len(wanted)], following, rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("way", ["raw", "normalised"])
@by_kind
def test_data(kind, way):
    """What an agent learns from that never steps."""
    space, (data, acted) = KINDS[kind], data_of(KINDS[kind])
    agent = BC(data=data, normalise_observations=way == "normalised", batch_size=4, **HERE).learn(1)
    wanted = formula(space, way, acted, acted)
    np.testing.assert_allclose(agent.learner.ring.rows["observation"], wanted, rtol=1e-4, atol=1e-4)


@by_scale
@pytest.mark.parametrize("before", WAYS)
@by_kind
def test_continuing(kind, before, way):
    """Actor and critics give for the encoding of the one that continues what they gave for the other's."""
    space = KINDS[kind]
    other = made(kind, before)
    other.prepare()
    agent = TD3(lambda: Told(space, drawn(space)), **STEPS, **WAYS[way]).continue_from(other)
    acted = data_of(space)[1]
    inputs = [formula(space, one, drawn(space), acted) for one in (before, way)]
    expected = other.predict(drawn(space), deterministic=True)[0]
    assert_acts(expected, expected_of(other, inputs[0]))
    assert_acts(agent.predict(drawn(space), deterministic=True)[0], expected, tolerance=1e-3)
    actions = np.random.default_rng(2).uniform(-1, 1, (ROWS, 2))
    theirs, ours = (
        one.learner.networks.networks["critics"].forward(np.hstack([read, actions]).astype(np.float32))[0].copy()
        for one, read in zip((other, agent), inputs, strict=True)
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3 * np.abs(theirs).max())


@needs_cc
@by_way
@by_kind
def test_export(kind, way, tmp_path):
    agent, space = made(kind, way), KINDS[kind]
    seen = drawn(space, seed=5)  # beyond what a normaliser has seen, too
    expected = entries_of(ACTION, agent.predict(seen, deterministic=True)[0], ROWS)
    assert_acts(expected, expected_of(agent, formula(space, way, seen, data_of(space)[1])))
    controller = read_controller(agent)
    shape, dtype = raw_space(space)
    raw = np.zeros((ROWS, *shape), dtype)
    write_raw(space, seen, raw)
    raw = raw.reshape(ROWS, -1)
    assert_acts(decide(controller, raw), expected)
    if not is_structured(space):
        assert_acts(Compiled(velocirl.export(agent, tmp_path / "one.c"), tmp_path, controller).all(raw), expected)
    document = parse_json(velocirl.export(agent, tmp_path / "one.json").read_bytes())
    assert_acts([act(document, row.tolist()) for row in raw], expected)
    session = onnxruntime.InferenceSession(str(velocirl.export(agent, tmp_path / "one.onnx")))
    given = {}
    for leaf in leaves_of(space):
        values = seen
        for key in leaf.path:
            values = values[key]
        given[leaf.name or "observation"] = values
    assert_acts(session.run(None, given)[0], expected)


@on_backends
def test_rollouts(kind, backend, tmp_path):
    """What a rollout saw normalises the next one, acts, and is exported; the last number of most never changes."""
    space, steps = KINDS[kind], 20
    changes = {**BACKENDS[backend], "hidden": (), "num_envs": 1, "horizon": steps, "minibatch_size": steps, "seed": 1}
    changes |= {"epochs": 1, "normalise_observations": True, "layer_norm": None}
    changes.pop("critic", None)
    agent = PPO(lambda: Told(space, drawn(space)), **changes).learn(steps)
    inputs = formula(space, "normalised", drawn(space), map_arrays(lambda one: one[:steps], drawn(space)))
    moments = agent.observation_moments
    read = np.zeros((ROWS, agent.encoding.inputs), np.float32)
    raw = np.zeros((ROWS, *raw_space(space)[0]), raw_space(space)[1])
    write_raw(space, drawn(space), raw)
    affine = agent.encoding.affine(moments.mean, moments.inverse_deviation)
    agent.encoding.encode_rows(raw.reshape(ROWS, -1), affine, read)
    np.testing.assert_allclose(read, inputs, rtol=1e-3, atol=2e-4)
    agent.predict(drawn(space), deterministic=True)
    np.testing.assert_array_equal(agent._actor._inputs[:ROWS], read)
    controller = read_controller(agent)
    found, expected = decide(controller, raw.reshape(ROWS, -1)), agent.predict(drawn(space), deterministic=True)[0]
    np.testing.assert_allclose(found, expected, rtol=1e-4)


@by_scale
def test_resuming(way, tmp_path):
    """Saved and loaded, training continues as if nothing had happened."""
    settings = {**STEPS, "hidden": (4,), "learning_starts": 4, **WAYS[way]}
    agent = SAC("ChemicalReactor-v0", **settings).learn(8)
    again = Agent.load(agent.save(tmp_path / "agent"))
    assert again.config.scale_observations == (way == "scaled")
    np.testing.assert_array_equal(again.learn(8).parameters, agent.learn(8).parameters)
    rows = [one.learner.ring.rows["observation"][:16] for one in (again, agent)]
    np.testing.assert_array_equal(*rows)
    assert (np.abs(rows[0]).max() <= 1.0) == (way == "scaled")


def test_frames_are_read_as_whole_observations_are():
    """Bytes that are stored frame by frame, when they are seen and when a stack is put together again."""
    space, stack, size = Box(0, 255, (3, 2, 2), np.uint8), 3, 4
    encoding, seen = encoding_for(space, normalise=False), drawn(Box(0, 255, (5, 12), np.uint8), 1)[0]
    expected, shown, loaded = np.zeros((3, 5, 12), np.float32)
    encoding.encode_rows(seen, encoding.affine(), expected)
    np.testing.assert_allclose(expected, formula(space, "raw", seen.reshape(5, 3, 2, 2)), rtol=1e-6)
    table = encoding.table.view(np.recarray)
    for i in range(5):
        for k in range(stack):
            show(Shown(seen, seen, table, shown), i, k * size, 0, size)
    np.testing.assert_array_equal(shown, expected)
    newest = 3 * np.arange(5) + 2  # frame k of copy i at place 3 i + k
    stacks = Stacks(seen.reshape(15, size), newest, newest - 1, np.full(5, 2), table, stack, 1, 15)
    for n in range(5 * stack):
        load_strip(n, 0, 0, stacks, loaded, 0, 1, size)
    np.testing.assert_array_equal(loaded, expected)
    np.testing.assert_array_equal(seen.astype(np.float32) * encoding.pixel_factor, expected)
