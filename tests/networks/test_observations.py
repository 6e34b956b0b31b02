"""Observations as raw rows, against Gymnasium's own batching."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Graph, MultiBinary, MultiDiscrete, Sequence, Text, Tuple
from gymnasium.vector.utils import concatenate, create_empty_array

from velocirl.networks.observations import batch_size, raw_space, write_raw

NESTED = Dict(
    {
        "arm": Dict({"left": Box(-1, 1, (2, 3), np.float64), "right": Discrete(5)}),
        "pair": Tuple([MultiDiscrete([3, 4]), MultiBinary(2)]),
        "camera": Box(0, 255, (2, 2), np.uint8),
    }
)


def batched(space, count, seed=0):
    space.seed(seed)
    observations = [space.sample() for _ in range(count)]
    return observations, concatenate(space, observations, create_empty_array(space, count))


def flattened(observation):
    """In the space's order, by recursion over the values themselves."""
    if isinstance(observation, dict):
        return np.concatenate([flattened(one) for one in observation.values()])
    if isinstance(observation, tuple):
        return np.concatenate([flattened(one) for one in observation])
    return np.asarray(observation, np.float32).reshape(-1)


@pytest.mark.parametrize(
    ("space", "shape", "dtype"),
    [
        (Box(-1, 1, (2, 3), np.float64), (2, 3), np.float64),
        (Box(0, 255, (4, 4, 3), np.uint8), (4, 4, 3), np.uint8),
        (Discrete(3), (1,), np.int64),
        (MultiDiscrete([3, 4]), (2,), np.int64),
        (MultiBinary([2, 3]), (2, 3), np.int8),
        (NESTED, (15,), np.float32),
        (Tuple([Discrete(2), Box(0, 1, ())]), (2,), np.float32),
    ],
)
def test_the_array_of_one_observation(space, shape, dtype):
    assert raw_space(space) == (shape, np.dtype(dtype))
    observations, batch = batched(space, 4)
    out = np.full((4, *shape), 77, dtype)
    write_raw(space, batch, out)
    if isinstance(space, (Dict, Tuple)):
        np.testing.assert_array_equal(out, [flattened(one) for one in observations])
    else:
        np.testing.assert_array_equal(out, np.reshape(observations, (4, *shape)))
    assert batch_size(space, batch) == 4
    assert batch_size(space, observations[0]) is None


def test_the_order_is_that_of_the_space_and_not_of_the_observation():
    _, batch = batched(NESTED, 3)
    turned = {name: batch[name] for name in reversed(batch)}
    rows, turned_rows = np.zeros((2, 3, 15), np.float32)
    write_raw(NESTED, batch, rows)
    write_raw(NESTED, turned, turned_rows)
    np.testing.assert_array_equal(turned_rows, rows)
    assert rows.any()


def changed(name, value):
    observation = dict(batched(NESTED, 1)[0][0])
    observation["arm"] = dict(observation["arm"])
    target = observation["arm"] if name in observation["arm"] else observation
    target[name] = value
    return observation


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        (changed("left", np.zeros((3, 2))), r"'arm/left' has the shape \(2, 3\), or \(rows, 2, 3\) .*; got \(3, 2\)"),
        (changed("left", np.zeros((4, 2, 3))), "'arm/left' has 4 rows, observation 'arm/right' a single row"),
        (changed("right", 0.5), "'arm/right' is int64, got float64"),
        (changed("right", np.zeros((2, 1), int)), r"'arm/right' has the shape \(\), or \(rows,\) .*; got \(2, 1\)"),
        (changed("camera", np.full((2, 2), 0.5)), "'camera' is uint8, got float64"),
        (changed("camera", "red"), r"'camera' has the shape \(2, 2\).*got \(\)"),
        (changed("camera", [[1, 2], [3]]), "'camera' is no array"),
        (changed("pair", (np.zeros(2, int),)), "'pair' must have a part 1, got a tuple of 1"),
        (changed("pair", {}), "'pair' must have a part 0, got a dict of nothing"),
        (changed("arm", np.zeros(3)), "'arm' must have a part 'left', got a ndarray"),
        ({"arm": {}}, "'arm' must have a part 'left', got a dict of nothing"),
        (np.zeros(15), "an observation must have a part 'arm', got a ndarray"),
    ],
)
def test_what_does_not_fit_is_named(observation, message):
    with pytest.raises(ValueError, match=message):
        batch_size(NESTED, observation)


def test_a_flat_observation_that_does_not_fit():
    with pytest.raises(
        ValueError, match=r"an observation has the shape \(3,\), or \(rows, 3\) for several; got \(4,\)"
    ):
        batch_size(Box(-1, 1, (3,)), np.zeros(4))
    with pytest.raises(ValueError, match="is int64, got float64"):
        batch_size(Discrete(3), np.zeros(3))


def test_rows_of_another_shape_are_not_written():
    _, batch = batched(NESTED, 3)
    with pytest.raises(ValueError, match=r"'arm/left' must have the shape \(4, 2, 3\), got \(3, 2, 3\)"):
        write_raw(NESTED, batch, np.zeros((4, 15), np.float32))


@pytest.mark.parametrize("part", [Text(3), Sequence(Discrete(2)), Graph(Discrete(2), None)])
def test_what_has_no_fixed_size_is_refused_by_name(part):
    with pytest.raises(ValueError, match=r"no network reads observations of .*\(part 'a/0'\): use Box"):
        raw_space(Dict({"a": Tuple([part])}))


def test_names_and_sizes_that_do_not_do_are_refused():
    with pytest.raises(ValueError, match="are called 'a/b'; rename one"):
        raw_space(Dict({"a": Dict({"b": Discrete(2)}), "a/b": Discrete(2)}))
    with pytest.raises(ValueError, match=r"\(part 'a'\) has no numbers"):
        raw_space(Dict({"a": Box(0, 1, (0,)), "b": Discrete(2)}))
    with pytest.raises(ValueError, match="has no numbers to learn from"):
        raw_space(Dict({}))
