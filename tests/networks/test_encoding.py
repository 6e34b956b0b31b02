"""Encodings of observations against NumPy, in plain Python and compiled."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple

from velocirl.engine.compiling import compile_loop, learning_translator
from velocirl.engine.registers import as_rows, row
from velocirl.networks.encoding import LIMIT, encoding_for

SPACES = {
    "box": Box(-10, 10, (3,)),
    "matrix": Box(-10, 10, (2, 3)),
    "double": Box(-10, 10, (3,), np.float64),
    "whole": Box(-10, 10, (3,), np.int32),
    "pixels": Box(0, 255, (2, 2, 3), np.uint8),
    "discrete": Discrete(4),
    "discrete from 3": Discrete(4, start=3),
    "several": MultiDiscrete([2, 3, 1]),
    "several from": MultiDiscrete([2, 3], start=[5, -1]),
    "bits": MultiBinary(5),
}


def loop_of(encode):
    def loop(observations, centre, inverse_scale, encoded, checks):
        for i in range(len(observations)):
            checks[i] = encode(row(observations, i), centre, inverse_scale, encoded[i])

    return loop


def encoded(space, observations, **options):
    """Encode observations, all of which are finite."""
    rows, checks = encoded_and_checked(space, observations, **options)
    assert checks.tolist() == [0] * len(rows)
    return rows


def encoded_and_checked(space, observations, *, normalise=False, centre=None, inverse_scale=None, compiled=True):
    """Encode observations (rows, *shape); those of Discrete are (rows, 1)."""
    encoding = encoding_for(space, normalise)
    result = np.full((len(observations), encoding.inputs), 77, np.float32)
    centre = np.zeros(encoding.inputs, np.float32) if centre is None else np.asarray(centre, np.float32)
    scale = np.ones(encoding.inputs, np.float32) if inverse_scale is None else np.asarray(inverse_scale, np.float32)
    checks = np.full(len(observations), 77, np.float32)
    loop, seen = loop_of(encoding.encode), np.asarray(observations, space.dtype)
    arguments = (as_rows(seen) if compiled else seen, centre, scale, result, checks)
    if compiled:
        loop = compile_loop(loop, arguments, learning_translator("encoding"), before=lambda: None)
    with np.errstate(invalid="ignore"):
        loop(*arguments)
    return result, checks


def samples(space, count=20):
    space.seed(1)
    return np.array([space.sample() for _ in range(count)]).reshape(count, *(space.shape or (1,)))


def one_hot(observations, counts, starts):
    parts = [np.eye(n)[observations[:, k] - start] for k, (n, start) in enumerate(zip(counts, starts, strict=True))]
    return np.concatenate(parts, axis=1)


def expected(name, observations):
    codes = {
        "discrete": ([4], [0]),
        "discrete from 3": ([4], [3]),
        "several": ([2, 3, 1], [0, 0, 0]),
        "several from": ([2, 3], [5, -1]),
    }
    if name in codes:
        return one_hot(observations, *codes[name])
    factor = 1 / 255 if name == "pixels" else 1
    return observations.reshape(len(observations), -1) * factor


@pytest.mark.parametrize("compiled", [False, True], ids=["python", "compiled"])
@pytest.mark.parametrize("name", SPACES)
def test_every_space(name, compiled):
    observations = samples(SPACES[name])
    found = encoded(SPACES[name], observations, compiled=compiled)
    np.testing.assert_allclose(found, expected(name, observations), rtol=1e-6)
    assert np.ptp(found) > 0


@pytest.mark.parametrize("compiled", [False, True], ids=["python", "compiled"])
def test_normalisation_and_its_limit(compiled):
    space = Box(-np.inf, np.inf, (4,))
    observations = [[1.0, 5.0, 1e6, -1e6], [3.0, 2.0, 0.0, 0.5]]
    found = encoded(
        space, observations, normalise=True, centre=[1, 2, 0, 1], inverse_scale=[4, 0.5, 1, 2], compiled=compiled
    )
    np.testing.assert_allclose(found, [[0, 1.5, LIMIT, -LIMIT], [8, 0, 0, -1]], rtol=1e-6)


@pytest.mark.parametrize("normalise", [False, True])
def test_what_is_not_finite_shows(normalise):
    """The limit of a normalised number must not hide from the guard that it was infinite."""
    space = Box(-np.inf, np.inf, (2,))
    observations = [[0, 1], [np.nan, 0], [0, np.inf], [-np.inf, 0]]
    for compiled in (False, True):
        _, checks = encoded_and_checked(space, observations, normalise=normalise, compiled=compiled)
        assert np.isnan(checks).tolist() == [False, True, True, True]


def test_only_numbers_are_normalised():
    for name, space in SPACES.items():
        assert encoding_for(space, True).normalises == isinstance(space, Box), name
        assert not encoding_for(space, False).normalises
    pixels = encoded(SPACES["pixels"], np.full((1, 2, 2, 3), 200), normalise=True, centre=[190] * 12)
    np.testing.assert_array_equal(pixels, 10)  # in their own units: the moments are those of the raw numbers


def test_nothing_outside_a_discrete_space_is_coded():
    assert not encoded(SPACES["discrete"], [[4], [-1]]).any()


@pytest.mark.parametrize("space", [Dict({"a": Discrete(2)}), Tuple([Discrete(2)]), Text(3), MultiDiscrete([[2, 2]])])
def test_other_spaces_are_refused(space):
    with pytest.raises(ValueError, match="no network reads observations of"):
        encoding_for(space, False)


def test_more_than_three_dimensions_are_refused():
    with pytest.raises(ValueError, match="observations of 4 dimensions; flatten them"):
        encoding_for(Box(0, 1, (2, 2, 2, 2)), False)


def test_empty_observations_are_refused():
    with pytest.raises(ValueError, match="no numbers to learn from"):
        encoding_for(Box(0, 1, (0,)), False)
