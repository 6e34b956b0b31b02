"""Encodings of observations against NumPy, in plain Python and compiled."""

import numpy as np
import pytest
from deployed import Spaces
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Sequence, Text, Tuple
from gymnasium.vector.utils import concatenate, create_empty_array

from velocirl import SAC
from velocirl.engine.compiler.compiling import compile_loop, learning_translator
from velocirl.engine.compiler.registers import as_rows, row
from velocirl.networks.encoding import LIMIT, Part, encode, encoding_for
from velocirl.networks.observations import raw_space, write_raw
from velocirl.program.rows.commands import CENTRE, REACH, bounds_of

SPACES = {
    "box": Box(-10, 10, (3,)),
    "matrix": Box(-10, 10, (2, 3)),
    "double": Box(-10, 10, (3,), np.float64),
    "whole": Box(-10, 10, (3,), np.int32),
    "pixels": Box(0, 255, (2, 2, 3), np.uint8),
    "frames": Box(0, 255, (2, 3, 2, 3), np.uint8),
    "discrete": Discrete(4),
    "discrete from 3": Discrete(4, start=3),
    "several": MultiDiscrete([2, 3, 1]),
    "several from": MultiDiscrete([2, 3], start=[5, -1]),
    "bits": MultiBinary(5),
}


def loop(observations, table, centre, inverse_scale, encoded, checks):
    for i in range(len(observations)):
        checks[i] = encode(row(observations, i), table, centre, inverse_scale, encoded[i])


def encoded(space, observations, **options):
    """Encode observations, all of which are finite."""
    rows, checks = encoded_and_checked(space, observations, **options)
    assert checks.tolist() == [0] * len(rows)
    return rows


def encoded_and_checked(
    space, observations, *, normalise=False, scale=False, centre=None, inverse_scale=None, compiled=True
):
    """Encode observations (rows, *shape); those of Discrete are (rows, 1)."""
    encoding = encoding_for(space, normalise, scale=scale)
    result = np.full((len(observations), encoding.inputs), 77, np.float32)
    centre = np.zeros(encoding.inputs, np.float32) if centre is None else np.asarray(centre, np.float32)
    inverse = np.ones(encoding.inputs, np.float32) if inverse_scale is None else np.asarray(inverse_scale, np.float32)
    checks = np.full(len(observations), 77, np.float32)
    seen = np.asarray(observations, raw_space(space)[1]).reshape(len(observations), -1)
    table = encoding.table if compiled else encoding.table.view(np.recarray)
    arguments = (as_rows(seen) if compiled else seen, table, centre, inverse, result, checks)
    run = compile_loop(loop, arguments, learning_translator("encoding"), before=lambda: None) if compiled else loop
    with np.errstate(invalid="ignore"):
        run(*arguments)
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
    factor = 1 / 255 if name in ("pixels", "frames") else 1
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


@pytest.mark.parametrize("compiled", [False, True], ids=["python", "compiled"])
def test_scaled_by_the_bounds_of_the_space_where_it_has_some(compiled):
    space = Box(np.array([200, 0, -np.inf, 3], np.float32), np.array([400, 1e6, np.inf, 3], np.float32))
    found = encoded(space, [[200, 1e6, 7, 3], [350, 2.5e5, -0.5, 3]], scale=True, compiled=compiled)
    np.testing.assert_allclose(found, [[-1, 1, 7, 3], [0.5, -0.5, -0.5, 3]], rtol=1e-6)
    pixels = SPACES["pixels"]
    np.testing.assert_array_equal(encoded(pixels, samples(pixels), scale=True), encoded(pixels, samples(pixels)))


@pytest.mark.parametrize("huge", [np.finfo(np.float32).max, 2e12])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_huge_bounds_are_no_scale(huge, kind):
    space = Box(np.array([-huge, 0, 200], kind), np.array([huge, huge, 400], kind), dtype=kind)
    found = encoded(space, [[0.5, 7, 300], [-3, 2, 400]], scale=True, compiled=False)
    np.testing.assert_array_equal(found, [[0.5, 7, 0], [-3, 2, 1]])
    bounds = bounds_of(space)
    np.testing.assert_array_equal(bounds[CENTRE : REACH + 1], [[0, 0, 300], [1, 1, 100]])
    with pytest.raises(ValueError, match="with one so huge that it is no scale"):
        SAC(lambda: Spaces(Box(-1, 1, (1,)), space), device="python")


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


@pytest.mark.parametrize(
    "space", [Text(3), MultiDiscrete([[2, 2]]), Dict({"a": MultiDiscrete([[2, 2]])}), Sequence(Discrete(2))]
)
def test_other_spaces_are_refused(space):
    with pytest.raises(ValueError, match="no network reads observations of"):
        encoding_for(space, False)


def test_more_than_four_dimensions_are_refused():
    with pytest.raises(ValueError, match="observations of 5 dimensions; flatten them"):
        encoding_for(Box(0, 1, (2, 2, 2, 2, 2)), False)


def test_empty_observations_are_refused():
    with pytest.raises(ValueError, match="no numbers to learn from"):
        encoding_for(Box(0, 1, (0,)), False)


def test_flat_spaces_are_one_part():
    for name, space in SPACES.items():
        encoding = encoding_for(space, False)
        shape = space.shape if isinstance(space, (Box, MultiBinary)) else (encoding.inputs,)
        assert encoding.parts == (Part("", 0, encoding.inputs, shape),), name


STRUCTURED = Dict(
    {
        "arm": Tuple([Box(-10, 10, (2, 2)), Discrete(3, start=-1)]),
        "bits": MultiBinary([2, 2]),
        "camera": Box(0, 255, (2, 2, 1), np.uint8),
        "double": Box(-10, 10, (), np.float64),
        "several": MultiDiscrete([2, 3], start=[0, 5]),
    }
)


def raw(space, observations):
    """Raw rows of single observations, and their parts as arrays (rows, ...)."""
    batch = concatenate(space, observations, create_empty_array(space, len(observations)))
    shape, dtype = raw_space(space)
    rows = np.full((len(observations), *shape), 77, dtype)
    write_raw(space, batch, rows)
    return rows, batch


def test_parts_of_a_structured_space():
    encoding = encoding_for(STRUCTURED, False)
    assert encoding.parts == (
        Part("arm/0", 0, 4, (2, 2)),
        Part("arm/1", 4, 3, (3,)),
        Part("bits", 7, 4, (2, 2)),
        Part("camera", 11, 4, (2, 2, 1)),
        Part("double", 15, 1, ()),
        Part("several", 16, 5, (5,)),
    )
    assert encoding.inputs == 21
    assert not encoding.normalises
    assert [part.name for part in encoding_for(Tuple([Discrete(2), Box(0, 1, (1,))]), False).parts] == ["0", "1"]


@pytest.mark.parametrize("compiled", [False, True], ids=["python", "compiled"])
@pytest.mark.parametrize("normalise", [False, True])
def test_a_structured_space(compiled, normalise):
    STRUCTURED.seed(3)
    rows, batch = raw(STRUCTURED, [STRUCTURED.sample() for _ in range(20)])
    generator = np.random.default_rng(4)
    centre, scale = generator.normal(size=21), generator.uniform(0.1, 0.2, size=21)
    found, checks = encoded_and_checked(
        STRUCTURED, rows, normalise=normalise, centre=centre, inverse_scale=scale, compiled=compiled
    )
    parts = [
        batch["arm"][0].reshape(20, -1),
        one_hot(batch["arm"][1][:, None], [3], [-1]),
        batch["bits"].reshape(20, -1),
        batch["camera"].reshape(20, -1) * (1 if normalise else 1 / 255),
        batch["double"][:, None],
        one_hot(batch["several"], [2, 3], [0, 5]),
    ]
    wanted = np.concatenate(parts, axis=1)
    if normalise:  # numbers only: neither codes nor bits
        boxes = [*range(4), *range(11, 16)]
        normalised = (wanted - centre.astype(np.float32)) * scale.astype(np.float32)
        wanted[:, boxes] = np.clip(normalised[:, boxes], -LIMIT, LIMIT)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    assert checks.tolist() == [0] * 20


@pytest.mark.parametrize("normalise", [False, True])
def test_what_is_not_finite_shows_in_a_structured_space(normalise):
    space = Dict({"a": Discrete(2), "b": Box(-np.inf, np.inf, (2,))})
    observations = [[0, 0, 1], [1, np.nan, 0], [0, 0, np.inf]]
    for compiled in (False, True):
        _, checks = encoded_and_checked(space, observations, normalise=normalise, compiled=compiled)
        assert np.isnan(checks).tolist() == [False, True, True]


def test_codes_that_single_precision_cannot_hold_are_refused():
    last = 2**24
    assert encoding_for(Dict({"a": Discrete(1, start=last)}), False).inputs == 1
    for space in (Discrete(2, start=last), Discrete(2, start=-last - 1), MultiDiscrete([2], start=[last])):
        with pytest.raises(ValueError, match=f"'a' is .*single precision.*at most {last}"):
            encoding_for(Dict({"a": space}), False)
