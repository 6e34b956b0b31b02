"""Structured spaces as rows: exact round trips, views instead of copies, the layout by hand, errors that say where."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Graph, MultiBinary, MultiDiscrete, OneOf, Sequence, Space, Text, Tuple
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array
from hypothesis import given, settings
from hypothesis import strategies as st

from velocirl.vector.structured import OPAQUE_FROM_ROWS, Leaf, RowLayout

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
DTYPES = ["bool", "float16", "float32", "float64", *INTEGERS]
BATCHES = [0, 1, 3, OPAQUE_FROM_ROWS - 1, OPAQUE_FROM_ROWS]

shapes = st.lists(st.integers(0, 3), max_size=3).map(tuple)
boxes = st.builds(lambda shape, dtype: Box(0, 1, shape, np.dtype(dtype)), shapes, st.sampled_from(DTYPES))
discretes = st.builds(
    lambda n, start, dtype: Discrete(n, start=start, dtype=np.dtype(dtype)),
    st.integers(1, 20),
    st.integers(0, 100),
    st.sampled_from(INTEGERS),
)
multi_discretes = st.builds(
    lambda counts, dtype: MultiDiscrete(counts, dtype=np.dtype(dtype)),
    st.lists(st.integers(1, 9), min_size=1, max_size=4),
    st.sampled_from(INTEGERS),
)
multi_binaries = st.integers(1, 9).map(MultiBinary)
spaces = st.recursive(
    st.one_of(boxes, discretes, multi_discretes, multi_binaries),
    lambda inner: st.one_of(
        st.dictionaries(st.text("abcxyz", min_size=1, max_size=3), inner, max_size=4).map(Dict),
        st.lists(inner, max_size=4).map(Tuple),
    ),
    max_leaves=8,
)
seeds = st.integers(0, 2**32 - 1)


def random_bits(space: Space[Any], lead: tuple[int, ...], generator: np.random.Generator) -> Any:
    """Value of `space` with leading axes, its numbers being arbitrary bits: NaNs with payloads, infinities."""
    if isinstance(space, Dict):
        return {key: random_bits(child, lead, generator) for key, child in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(random_bits(child, lead, generator) for child in space.spaces)
    dtype, shape = np.dtype(space.dtype), (*lead, *space.shape)
    if dtype.kind == "b":
        return np.asarray(generator.integers(0, 2, shape)).astype(bool)
    return np.frombuffer(generator.bytes(int(np.prod(shape)) * dtype.itemsize), dtype).reshape(shape)


def leaves_of(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for child in value.values() for leaf in leaves_of(child)]
    if isinstance(value, tuple):
        return [leaf for child in value for leaf in leaves_of(child)]
    return [value]


def row_of(value: Any, index: int) -> Any:
    if isinstance(value, dict):
        return {key: row_of(child, index) for key, child in value.items()}
    if isinstance(value, tuple):
        return tuple(row_of(child, index) for child in value)
    return value[index]


def assert_same(got: Any, expected: Any) -> None:
    """Same nesting, key order, shapes, dtypes and bytes."""
    assert type(got) is type(expected) or not isinstance(expected, (dict, tuple))
    if isinstance(expected, dict):
        assert list(got) == list(expected)
        for key in expected:
            assert_same(got[key], expected[key])
    elif isinstance(expected, tuple):
        assert len(got) == len(expected)
        for got_part, expected_part in zip(got, expected, strict=True):
            assert_same(got_part, expected_part)
    else:
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
        assert got.tobytes() == expected.tobytes()


@given(spaces, seeds)
@settings(max_examples=150, deadline=None)
def test_one_value_makes_an_exact_round_trip(space, seed):
    layout = RowLayout(space)
    value = random_bits(space, (), np.random.default_rng(seed))
    row = layout.flatten(value)
    assert (row.shape, row.dtype) == ((layout.width,), layout.dtype)
    assert_same(layout.unflatten(row), value)


@given(spaces, seeds)
@settings(max_examples=100, deadline=None)
def test_a_sample_comes_back_as_a_member_of_its_space(space, seed):
    layout = RowLayout(space)
    space.seed(seed)
    sample = space.sample()
    value = layout.unflatten(layout.flatten(sample))
    assert value in space
    assert_same(value, sample)


@given(spaces, seeds, st.sampled_from(BATCHES))
@settings(max_examples=150, deadline=None)
def test_a_batch_makes_an_exact_round_trip_and_its_rows_are_those_of_its_values(space, seed, num_rows):
    layout = RowLayout(space)
    value = random_bits(space, (num_rows,), np.random.default_rng(seed))
    out = layout.empty(num_rows)
    assert layout.flatten_batch(value, out) is out
    assert out.shape == (num_rows, layout.width)
    assert_same(layout.unflatten_batch(out), value)
    for index in {0, num_rows // 2, num_rows - 1} if num_rows else ():
        assert out[index].tobytes() == layout.flatten(row_of(value, index)).tobytes()
    if layout.leaves:
        assert layout.flatten_batch(value).tobytes() == out.tobytes()


@given(spaces, seeds)
@settings(max_examples=50, deadline=None)
def test_a_batch_is_what_gymnasium_calls_one(space, seed):
    layout = RowLayout(space)
    space.seed(seed)
    samples = [space.sample() for _ in range(3)]
    batched = concatenate(space, samples, create_empty_array(space, 3))
    rows = layout.flatten_batch(batched, layout.empty(3))
    assert rows.tobytes() == b"".join(layout.flatten(sample).tobytes() for sample in samples)
    assert layout.unflatten_batch(rows) in batch_space(space, 3)


@given(spaces, st.sampled_from([(), (1,), (5,), (2, 3)]))
@settings(max_examples=100, deadline=None)
def test_unflattened_leaves_are_aligned_views_of_their_own_part_of_the_rows(space, lead):
    layout = RowLayout(space)
    rows = np.zeros((*lead, layout.width), layout.dtype)
    value = layout.unflatten_batch(rows) if lead else layout.unflatten(rows)
    for leaf, view in zip(layout.leaves, leaves_of(value), strict=True):
        assert (view.dtype, view.shape) == (leaf.dtype, (*lead, *leaf.shape))
        part = rows[..., leaf.offset : leaf.offset + leaf.size]
        if view.size and (lead or not isinstance(leaf.space, Discrete)):
            assert np.shares_memory(view, part)
            assert view.flags.aligned
            assert all(stride % view.itemsize == 0 for stride in view.strides)
            view[...] = 1
            assert part.tobytes() == view.tobytes()
            assert np.count_nonzero(rows.view(np.uint8)) == np.count_nonzero(part.view(np.uint8))
            view[...] = 0


def test_leaves_of_one_dtype_make_rows_of_it_in_the_order_of_the_space():
    space = Dict(b=Box(-9, 9, (2,)), a=Tuple((Box(-9, 9, ()), Box(-9, 9, (1, 2)))))  # keywords are not sorted
    layout = RowLayout(space)
    assert (layout.dtype, layout.width) == (np.float32, 5)
    assert [(leaf.path, leaf.offset, leaf.size) for leaf in layout.leaves] == [
        (("b",), 0, 2),
        (("a", 0), 2, 1),
        (("a", 1), 3, 2),
    ]
    numbers = np.arange(1, 6, dtype=np.float32)
    value = {"b": numbers[:2], "a": (numbers[2], numbers[3:].reshape(1, 2))}
    np.testing.assert_array_equal(layout.flatten(value), numbers)
    assert list(layout.unflatten(numbers)) == ["b", "a"]


def test_mixed_leaves_make_bytes_packed_by_alignment_with_zeros_at_the_end():
    space = Dict({"a": Box(0, 255, (3,), np.uint8), "b": Box(-1, 1, (), np.float64), "c": Discrete(9, dtype=np.int32)})
    layout = RowLayout(space)
    assert (layout.dtype, layout.width) == (np.uint8, 16)
    assert layout.leaves == (
        Leaf(("a",), space["a"], np.dtype(np.uint8), (3,), 12, 3),
        Leaf(("b",), space["b"], np.dtype(np.float64), (), 0, 8),
        Leaf(("c",), space["c"], np.dtype(np.int32), (), 8, 4),
    )
    value = {"a": np.array([7, 8, 9], np.uint8), "b": np.array(0.5), "c": np.int32(5)}
    expected = np.array(0.5).tobytes() + np.array(5, np.int32).tobytes() + bytes([7, 8, 9, 0])
    dirty = np.full(16, 255, np.uint8)
    assert layout.flatten(value).tobytes() == expected
    assert layout.flatten(value, out=dirty).tobytes() == expected
    for num_rows in (2, OPAQUE_FROM_ROWS):
        batch = {key: np.repeat(np.asarray(part)[None], num_rows, 0) for key, part in value.items()}
        dirty = np.full((num_rows, 16), 255, np.uint8)
        assert layout.flatten_batch(batch, out=dirty).tobytes() == expected * num_rows


def test_not_a_number_keeps_its_payload_and_sign():
    bits = np.array([0x7FC00001, 0xFFC12345, 0x7F800001, 0x7F800000, 0x80000000], np.uint32)
    layout = RowLayout(Tuple((Box(-np.inf, np.inf, (5,)), Discrete(2))))
    row = layout.flatten((bits.view(np.float32), 1))
    floats, choice = layout.unflatten(row)
    np.testing.assert_array_equal(floats.view(np.uint32), bits)
    assert choice == 1
    assert type(choice) is np.int64


def test_a_single_leaf_is_flattened_without_a_copy():
    layout = RowLayout(Dict(image=Box(0, 255, (4, 5, 3), np.uint8)))
    image = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
    row = layout.flatten({"image": image})
    assert np.shares_memory(row, image)
    np.testing.assert_array_equal(row, np.arange(60))
    images = np.arange(120, dtype=np.uint8).reshape(2, 4, 5, 3)
    rows = layout.flatten_batch({"image": images})
    assert np.shares_memory(rows, images)
    np.testing.assert_array_equal(rows, images.reshape(2, 60))
    out = layout.empty(2)
    assert layout.flatten_batch({"image": images}, out) is out
    assert not np.shares_memory(out, images)
    np.testing.assert_array_equal(out, rows)


@pytest.mark.parametrize("num_rows", [4, OPAQUE_FROM_ROWS])
def test_strided_values_and_strided_rows_of_a_larger_buffer(num_rows):
    layout = RowLayout(Tuple((Box(-9, 9, (2, 3)), Discrete(5))))
    boxes = np.arange(num_rows * 6, dtype=np.float32).reshape(3, 2, num_rows).T
    choices = np.arange(2 * num_rows)[::2]
    buffer = np.zeros((num_rows, 7, layout.width), np.uint8)
    layout.flatten_batch((boxes, choices), out=buffer[:, 2])
    got_boxes, got_choices = layout.unflatten_batch(buffer)
    assert np.shares_memory(got_boxes, buffer)
    np.testing.assert_array_equal(got_boxes[:, 2], boxes)
    np.testing.assert_array_equal(got_choices[:, 2], choices)
    assert not np.delete(buffer, 2, axis=1).any()


@pytest.mark.parametrize("space", [Dict({}), Tuple(()), Dict(a=Tuple(()), b=Dict({}))])
def test_a_space_without_leaves_has_rows_without_width(space):
    layout = RowLayout(space)
    assert (layout.width, layout.leaves) == (0, ())
    value = space.sample()
    assert layout.flatten(value).shape == (0,)
    assert layout.unflatten(layout.flatten(value)) == value
    assert layout.flatten_batch(value, out=layout.empty(4)).shape == (4, 0)
    assert layout.unflatten_batch(layout.empty(4)) == value
    with pytest.raises(ValueError, match=r"has no leaves.*give out"):
        layout.flatten_batch(value)


def test_values_of_other_dtypes_are_taken_where_nothing_is_lost():
    layout = RowLayout(
        Dict(wide=Box(-9, 9, (2,), np.float64), small=Discrete(9, dtype=np.int8), flags=MultiBinary(2))  # flags: int8
    )
    value = layout.unflatten(
        layout.flatten({"wide": np.array([0.1, 2], np.float32), "small": 7, "flags": np.array([True, False])})
    )
    np.testing.assert_array_equal(value["wide"], np.array([0.1, 2], np.float32).astype(np.float64))
    assert (value["small"], value["small"].dtype) == (7, np.int8)
    np.testing.assert_array_equal(value["flags"], np.array([1, 0], np.int8))
    np.testing.assert_array_equal(RowLayout(MultiDiscrete([3, 4])).flatten([2, 3]), [2, 3])


@pytest.mark.parametrize(
    ("leaf", "value"),
    [
        (Box(-1, 1, (2,), np.float32), np.array([0.5, 0.5], np.float64)),
        (Box(-1, 1, (1,), np.float64), np.array([2**53 + 1])),
        (Box(0, 255, (1,), np.uint8), np.array([256])),
        (Box(0, 255, (1,), np.uint8), np.array([-1])),
        (Box(0, 255, (1,), np.uint8), np.array([1.0])),
        (Box(0, 1, (1,), np.bool_), np.array([2])),
        (Box(-5, 5, (1,), np.int64), np.array([2**63], np.uint64)),
        (Box(0, 5, (1,), np.uint64), np.array([-1])),
        (Discrete(3), 2**70),
        (Discrete(3), "one"),
        (Discrete(3), None),
    ],
)
def test_a_dtype_that_would_lose_information_is_refused(leaf, value):
    layout = RowLayout(Dict(action=Tuple((leaf,))))
    got = np.asarray(value).dtype
    message = rf"value\['action'\]\[0\]: expected {leaf.dtype} .*, got {got} .*cannot hold exactly"
    with pytest.raises(ValueError, match=message):
        layout.flatten({"action": (value,)})
    with pytest.raises(ValueError, match=message):
        layout.flatten_batch({"action": (np.asarray(value)[None],)})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": 1}, r"^value: expected a dict with keys \['a', 'b'\], got keys \['a'\]$"),
        ({"a": 1, "c": 2}, r"^value: expected a dict with keys \['a', 'b'\], got keys \['a', 'c'\]$"),
        ({"a": 1, "b": (), "c": 2}, r"got keys \['a', 'b', 'c'\]$"),
        ((1, 2), r"^value: expected a dict with keys \['a', 'b'\], got tuple$"),
        ({"a": 1, "b": (np.zeros(3),)}, r"^value\['b'\]: expected a tuple of 2, got tuple of 1$"),
        ({"a": 1, "b": np.zeros(2)}, r"^value\['b'\]: expected a tuple of 2, got ndarray$"),
        ({"a": 1, "b": (np.zeros(4), 0)}, r"^value\['b'\]\[0\]: expected float64 \(3,\), got float64 \(4,\)$"),
        ({"a": 1, "b": (np.zeros(3), [0])}, r"^value\['b'\]\[1\]: expected int64 \(\), got int64 \(1,\)$"),
        ({"a": 1, "b": ([[0], 1, 2], 0)}, r"^value\['b'\]\[0\]: expected float64 \(3,\), got .*inhomogeneous"),
    ],
)
def test_a_wrong_value_is_named_by_its_path_and_nothing_is_written(value, message):
    layout = RowLayout(Dict(a=Discrete(3), b=Tuple((Box(-1, 1, (3,), np.float64), Discrete(3)))))
    out = np.full(layout.width, 77, layout.dtype)
    with pytest.raises(ValueError, match=message):
        layout.flatten(value, out)
    np.testing.assert_array_equal(out, np.full(layout.width, 77))


def test_a_wrong_batch_is_named_by_its_path_and_nothing_is_written():
    layout = RowLayout(Tuple((Discrete(3), Box(-1, 1, (2,)))))
    boxes = np.zeros((4, 2), np.float32)
    with pytest.raises(ValueError, match=r"^value\[1\]: expected float32 \(5, 2\), got float32 \(4, 2\)$"):
        layout.flatten_batch((np.zeros(5, int), boxes))
    with pytest.raises(ValueError, match=r"^value\[0\]: expected a batch of rows, got 1$"):
        layout.flatten_batch((1, boxes))
    out = np.full((4, layout.width), 77, layout.dtype)
    with pytest.raises(ValueError, match=r"^value\[0\]: expected int64 \(4,\), got int64 \(5,\)$"):
        layout.flatten_batch((np.zeros(5, int), boxes), out)
    assert (out == 77).all()


def test_rows_that_are_not_of_the_layout_are_refused():
    layout = RowLayout(Box(-1, 1, (3,)))
    value = np.zeros(3, np.float32)
    with pytest.raises(ValueError, match=r"^row: expected float32 \(3,\), got float32 \(4,\)$"):
        layout.unflatten(np.zeros(4, np.float32))
    with pytest.raises(ValueError, match=r"^rows: expected float32 \(2, 3\), got float64 \(2, 3\)$"):
        layout.unflatten_batch(np.zeros((2, 3)))
    with pytest.raises(ValueError, match=r"^out: expected float32 \(3,\), got float32 \(1, 3\)$"):
        layout.flatten(value, out=layout.empty(1))
    with pytest.raises(ValueError, match=r"^out: expected float32 \(2, 3\), got float32 \(2, 4\)$"):
        layout.flatten_batch(np.stack([value, value]), out=np.zeros((2, 4), np.float32))


@pytest.mark.parametrize(
    "space",
    [Text(5), Sequence(Discrete(2)), OneOf([Discrete(2), Discrete(3)]), Graph(Discrete(2), None)],
    ids=lambda space: type(space).__name__,
)
def test_a_space_of_no_fixed_size_is_refused_by_path_and_name(space):
    with pytest.raises(TypeError, match=rf"^value\['robot'\]\[1\] is {type(space).__name__}\(.*no fixed size"):
        RowLayout(Dict(robot=Tuple((Discrete(2), space))))
