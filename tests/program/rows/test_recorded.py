"""Recorded data as learners read it, against the scalar functions that do the same for one observation or action."""

import numpy as np
import pytest

from velocirl import Box, Dict, Discrete, MultiDiscrete
from velocirl.networks.encoding import encode, encoding_for
from velocirl.networks.observations import raw_space, write_raw
from velocirl.program.normalizing import RunningMoments
from velocirl.program.rows.commands import command_for
from velocirl.program.rows.recorded import Recorded

SPACES = [
    Box(-5.0, 5.0, (3,)),
    Box(0, 255, (2, 2), np.uint8),
    Discrete(4, start=-1),
    MultiDiscrete([2, 3]),
    Dict({"a": Box(-20.0, 20.0, (2,)), "b": Discrete(3)}),
]


@pytest.mark.parametrize("way", ["raw", "normalised", "scaled"])
@pytest.mark.parametrize("space", SPACES, ids=str)
def test_many_observations_are_encoded_as_one(space, way):
    space.seed(0)
    encoding = encoding_for(space, way == "normalised", scale=way == "scaled")
    samples = [space.sample() for _ in range(9)]
    shape, dtype = raw_space(space)
    raw = np.zeros((9, *shape), dtype)
    batch = {key: np.stack([one[key] for one in samples]) for key in space} if isinstance(space, Dict) else samples
    write_raw(space, batch if isinstance(space, Dict) else np.stack(samples), raw)
    raw = raw.reshape(9, -1)
    generator = np.random.default_rng(0)
    centre, inverse = generator.uniform(0.5, 2, (2, encoding.inputs)).astype(np.float32)
    expected, found = np.zeros((2, 9, encoding.inputs), np.float32)
    for one, into in zip(raw, expected, strict=True):
        encode(one, encoding.table.view(np.recarray), centre, inverse, into)
    encoding.encode_rows(raw, encoding.affine(centre, inverse), found)
    np.testing.assert_array_equal(found, expected)


def recorded(action_space):
    seen = Box(-1.0, 1.0, (1,))
    encoding = encoding_for(seen, True)
    return Recorded(lambda: None, seen, action_space, encoding, RunningMoments(1), ())


def test_actions_are_those_that_a_policy_would_have_commanded():
    space = Box(np.array([-2.0, 10.0], np.float32), np.array([2.0, 350.0], np.float32))
    policy = np.random.default_rng(0).uniform(-1, 1, (20, 2)).astype(np.float32)
    command, table = command_for(space)
    given = np.zeros((20, 2), np.float32)
    for one, row in zip(given, policy, strict=True):
        command(one, np.rec.array((row,), dtype=[("action", np.float32, 2)]), table[0])
    np.testing.assert_allclose(recorded(space).actions(given), policy, atol=1e-5)
    beyond = recorded(space).actions(np.array([[-3.0, 400.0]]))
    np.testing.assert_array_equal(beyond, [[-1, 1]])


def test_choices_begin_with_0():
    found = recorded(Discrete(3, start=5)).actions(np.array([5, 7]))
    np.testing.assert_array_equal(found, [[0], [2]])
