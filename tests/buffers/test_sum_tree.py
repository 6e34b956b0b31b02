"""The sum tree against a plain list of numbers, in Python and compiled."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some

from velocirl.buffers.sum_tree import (
    CHILDREN,
    allocate_tree,
    find,
    find_all,
    leaf_of,
    put,
    put_all,
    put_range,
    total_of,
)
from velocirl.engine.compiler.compiling import compile_loop, learning_translator

SINGLE = 2.0**-24  # the relative error of rounding to single precision
numbers = some.one_of(some.just(0.0), some.floats(2.0**-10, 2.0**20, width=32))


def put_one(tree, starts, leaves, values):
    for i in range(len(leaves)):
        put(tree, starts, leaves[i], np.float32(values[i]))


def fill(tree, starts, leaves, values):
    put_range(tree, starts, leaves[0], leaves[1], np.float32(values[0]))


def seek(tree, starts, masses, leaves):
    for i in range(len(masses)):
        leaves[i] = find(tree, starts, masses[i])


@pytest.fixture(scope="module", params=["python", "compiled"])
def run(request):
    def run(loop, *arguments):
        if request.param == "compiled":
            loop = compile_loop(loop, arguments, learning_translator("sum_tree"), before=lambda: None)
        loop(*arguments)

    return run


def leaves_of(tree, size):
    return tree.reshape(-1)[:size]


def assert_sums(tree, starts, size):
    """Every node is the sum of its children, rounded once."""
    width = size
    for level in range(1, len(starts)):
        below = tree[starts[level - 1] : starts[level]].astype(np.float64)
        width = -(-width // CHILDREN)
        nodes = tree[starts[level] :].reshape(-1)[:width]
        np.testing.assert_allclose(nodes, below.sum(axis=1), rtol=1.01 * SINGLE)
    assert width == 1
    np.testing.assert_allclose(
        total_of(tree), leaves_of(tree, size).astype(np.float64).sum(), rtol=SINGLE * len(starts)
    )


@pytest.mark.parametrize("size", [1, 2, 15, 16, 17, 256, 257, 4096, 5000])
def test_the_shape(size):
    tree, starts = allocate_tree(size)
    assert starts[0] == 0
    assert starts[1] == -(-size // CHILDREN)
    assert len(tree) == starts[-1] + 1
    assert CHILDREN ** (len(starts) - 1) >= size
    assert len(starts) == 2 or CHILDREN ** (len(starts) - 2) < size
    assert tree.ctypes.data % 64 == 0
    assert not tree.any()


@settings(max_examples=60, deadline=None)
@given(data=some.data(), size=some.sampled_from([1, 3, 16, 17, 100, 300]))
def test_changes_against_a_list(run, data, size):
    tree, starts = allocate_tree(size)
    plain = np.zeros(size, np.float32)
    for _ in range(data.draw(some.integers(1, 4))):
        leaves = np.array(data.draw(some.lists(some.integers(0, size - 1), min_size=2, max_size=20)))
        values = np.array(data.draw(some.lists(numbers, min_size=len(leaves), max_size=len(leaves))))
        kind = data.draw(some.sampled_from(["one", "all", "range"]))
        if kind == "range":
            leaves[:2].sort()
            leaves[1] += data.draw(some.integers(0, 1))
            run(fill, tree, starts, leaves, values)
            plain[leaves[0] : leaves[1]] = values[0]
        else:
            run(put_one if kind == "one" else put_all, tree, starts, leaves, values)
            for leaf, value in zip(leaves, values, strict=True):
                plain[leaf] = value
        np.testing.assert_array_equal(leaves_of(tree, size), plain)
        assert [leaf_of(tree, leaf) for leaf in range(size)] == plain.tolist()
        assert_sums(tree, starts, size)


@settings(max_examples=100, deadline=None)
@given(
    values=some.lists(numbers, min_size=1, max_size=300).filter(any),
    shares=some.lists(some.floats(0, 1), min_size=1, max_size=20),
)
@example(values=[0.1] * 7 + [0.0] * 40, shares=[0.0, 1.0, 0.999999999])
@example(values=[0.0] * 40 + [0.1] * 7, shares=[0.0, 1.0, 0.999999999])
@example(values=[0.0] * 12 + [1.0, 1.0], shares=[1.0])
def test_a_leaf_is_found_by_its_share(run, values, shares):
    tree, starts = allocate_tree(len(values))
    put_all(tree, starts, np.arange(len(values)), np.array(values))
    total = total_of(tree)
    masses = np.sort(shares) * total  # the total itself too, which rounding may reach
    leaves, together = np.zeros(len(masses), np.int64), np.zeros(len(masses), np.int64)
    run(seek, tree, starts, masses, leaves)
    run(find_all, tree, starts, masses.copy(), together)
    ends = np.cumsum(np.array(values, np.float32).astype(np.float64))
    slack = total * SINGLE * (len(starts) + 1)
    for found in (leaves, together):
        for mass, leaf in zip(masses, found, strict=True):
            assert values[leaf] > 0
            assert ends[leaf] - values[leaf] - slack <= mass <= ends[leaf] + slack


def test_sums_do_not_drift():
    """After many changes of very different size, the tree is the one that was made at once."""
    generator = np.random.default_rng(0)
    tree, starts = allocate_tree(1000)
    shape = np.zeros(256, np.int64), np.zeros(256)
    change = compile_loop(put_all, (tree, starts, *shape), learning_translator("sum_tree"), before=lambda: None)
    for _ in range(2000):
        change(tree, starts, generator.integers(0, 1000, 256), 10.0 ** generator.uniform(-9, 9, 256))
    fresh, _ = allocate_tree(1000)
    put_all(fresh, starts, np.arange(1000), leaves_of(tree, 1000).astype(np.float64))
    np.testing.assert_array_equal(tree, fresh)
