"""The numbers of states: every space of whole numbers, both ways, compiled and not."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple
from hypothesis import given
from hypothesis import strategies as st

from velocirl.engine.compiler.compiling import compile_loop, cpu_translator
from velocirl.networks.observations import raw_space, write_raw
from velocirl.tabular.tables.states import decode, states_of

SPACES = {
    "discrete": Discrete(7),
    "with a start": Discrete(5, start=-2),
    "multi-discrete": MultiDiscrete([3, 4, 2]),
    "multi-discrete with starts": MultiDiscrete([3, 4], start=[1, -5]),
    "table": MultiDiscrete([[2, 3], [3, 2]]),
    "multi-binary": MultiBinary([2, 3]),
    "dict": Dict({"b": Discrete(3, start=4), "a": MultiDiscrete([2, 5])}),
    "nested": Tuple((Discrete(2), Dict({"x": MultiBinary(3), "y": Tuple((Discrete(4), Discrete(1)))}))),
}


def rows_of(space, count, seed=0):
    """Random observations as rows of numbers, as compiled code sees them."""
    space.seed(seed)
    shape, dtype = raw_space(space)
    rows = np.empty((count, *shape), dtype)
    for row in rows:
        sample = space.sample()
        write_raw(space, batched(sample), row[None])
    return rows.reshape(count, -1)


def batched(sample):
    if isinstance(sample, dict):
        return {key: batched(part) for key, part in sample.items()}
    if isinstance(sample, tuple):
        return tuple(batched(part) for part in sample)
    return np.asarray(sample)[None]


def compiled_encode(states, rows):
    encode = states.encode

    def encode_all(rows, numbers):
        for i in range(len(rows)):
            numbers[i] = encode(rows[i])

    numbers = np.empty(len(rows), np.int64)
    run = compile_loop(encode_all, (rows, numbers), cpu_translator("states", double=False), before=lambda: None)
    run(rows, numbers)
    return numbers


@pytest.mark.parametrize("name", SPACES)
def test_every_number_is_one_observation(name):
    states = states_of(SPACES[name])
    observations = decode(states, np.arange(states.count))
    assert len(np.unique(observations, axis=0)) == states.count
    assert [states.encode(one) for one in observations] == list(range(states.count))


@pytest.mark.parametrize("name", SPACES)
def test_every_observation_has_a_number(name):
    states = states_of(SPACES[name])
    rows = rows_of(SPACES[name], 200)
    numbers = np.array([states.encode(row) for row in rows])
    assert ((numbers >= 0) & (numbers < states.count)).all()
    np.testing.assert_array_equal(decode(states, numbers), rows.astype(np.int64))


@pytest.mark.parametrize("name", ["multi-discrete with starts", "dict"])
def test_compiled_numbers_are_those_of_plain_python(name):
    states = states_of(SPACES[name])
    rows = rows_of(SPACES[name], 200)
    rows[::3] += np.random.default_rng(0).integers(-3, 4, rows[::3].shape).astype(rows.dtype)  # some lie outside
    expected = np.array([states.encode(row) for row in rows])
    assert 0 < (expected == -1).sum() < 100
    np.testing.assert_array_equal(compiled_encode(states, rows), expected)


def test_the_first_number_counts_most():
    """As the digits of a number, which is what numpy calls C order."""
    states = states_of(MultiDiscrete([3, 4, 5]))
    assert states.count == 60
    for observation in np.ndindex(3, 4, 5):
        assert states.encode(observation) == np.ravel_multi_index(observation, (3, 4, 5))


def test_parts_stand_in_the_order_of_the_space():
    """Gymnasium sorts the keys of a Dict: a, b."""
    states = states_of(SPACES["dict"])
    assert states.sizes == (2, 5, 3)
    assert states.starts == (0, 0, 4)
    assert states.encode((1, 2, 6)) == 1 * 15 + 2 * 3 + 2


@pytest.mark.parametrize("name", SPACES)
def test_what_lies_outside_has_no_number(name):
    """Each number of an observation just below, just above, and far away."""
    states = states_of(SPACES[name])
    inside = decode(states, states.count // 2)[0]
    for k, (size, start) in enumerate(zip(states.sizes, states.starts, strict=True)):
        for wrong in (start - 1, start + size, start - 1000, start + 10**6):
            observation = inside.copy()
            observation[k] = wrong
            assert states.encode(observation) == -1


@given(st.lists(st.tuples(st.integers(1, 1000), st.integers(-1000, 1000)), min_size=1, max_size=6), st.data())
def test_decoding_is_the_inverse_of_encoding(digits, data):
    sizes, starts = zip(*digits, strict=True)
    states = states_of(MultiDiscrete(sizes, start=starts))
    observation = [data.draw(st.integers(start, start + size - 1)) for size, start in digits]
    number = states.encode(observation)
    assert 0 <= number < states.count
    assert decode(states, number).tolist() == [observation]


def test_as_many_states_as_a_table_can_number():
    states = states_of(MultiDiscrete([2**31, 2**31]))
    assert states.count == 2**62
    assert states.encode((2**31 - 1, 2**31 - 1)) == 2**62 - 1
    assert decode(states, 2**62 - 1).tolist() == [[2**31 - 1, 2**31 - 1]]


@pytest.mark.parametrize(
    ("space", "said"),
    [
        (MultiDiscrete([2**31, 2**31, 2]), "Huge-v0 has about 2^63 states"),
        (MultiDiscrete([256] * 1000), "Huge-v0 has about 2^8000 states"),  # more than a float can say
    ],
    ids=["just too many", "far too many"],
)
def test_more_states_than_that_are_refused(space, said):
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the message is checked below, without a pattern
        states_of(space, "Huge-v0")
    assert said in str(refused.value)
    assert "use DQN or PPO, or coarser observations" in str(refused.value)


@pytest.mark.parametrize(
    "space",
    [Box(0, 1, (4,)), Box(0, 255, (8, 8), np.uint8), Dict({"a": Discrete(3), "b": Box(0, 1, (1,))}), Text(3)],
    ids=["box", "pixels", "box in a dict", "text"],
)
def test_what_is_no_whole_number_is_refused_with_advice(space):
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        states_of(space, "Smooth-v0")
    assert "a table needs observations of whole numbers" in str(refused.value)
    assert "Smooth-v0" in str(refused.value)
    assert "use DQN, SAC or PPO, or an observation wrapper" in str(refused.value)


@pytest.mark.parametrize(
    "space",
    [
        Dict({"a": Discrete(2**24 + 2)}),
        Tuple((Discrete(2), MultiDiscrete([3, 2**25]))),
        Tuple((Discrete(4, start=-(2**24) - 1),)),
    ],
    ids=["discrete", "multi-discrete", "far below 0"],
)
def test_parts_that_single_precision_cannot_hold_are_refused(space):
    with pytest.raises(ValueError, match=r"a part of the observations of Parts-v0 goes up to [\d,]+, and within"):
        states_of(space, "Parts-v0")


def test_the_largest_part_is_exact():
    space = Dict({"a": Discrete(2**24 + 1), "b": Discrete(2)})
    states = states_of(space)
    row = np.array([2**24, 1], np.float32)
    assert states.encode(row) == 2 * 2**24 + 1
    assert states_of(Discrete(2**40)).count == 2**40  # by itself it is a 64-bit number
