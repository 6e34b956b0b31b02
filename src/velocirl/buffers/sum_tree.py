"""Sum tree: samples an index in proportion to its value in O(log n).

Every node is the sum of its sixteen children, which are one row of the tree and one cache line. A node is always
recomputed from its children, never corrected by a difference. It is therefore as exact after a billion changes as after
the first: the sum in double precision, rounded to single. The mass to search for is in double precision, because a
share among a million leaves is finer than single precision.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

ALONG = 16  # rows of a level at most that batched searches scan instead of descending to it
CHILDREN = 16  # of four bytes; a million leaves have five levels above them


def allocate_tree(leaves: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return a tree of zeros (rows, CHILDREN), leaves first and the root last, and the first row of each level."""
    starts, width = [0], leaves
    while width > 1 or len(starts) == 1:
        width = -(-width // CHILDREN)  # of the next level, with one node per row of this one
        starts.append(starts[-1] + width)
    rows = starts[-1] + 1
    room = np.zeros((rows + 1) * CHILDREN, np.float32)
    first = -(room.ctypes.data // 4) % CHILDREN  # a row begins where a cache line does
    return room[first : first + rows * CHILDREN].reshape(rows, CHILDREN), np.array(starts, np.int64)


def total_of(tree):
    """Return the sum of all leaves."""
    return np.float64(tree[len(tree) - 1, 0])


def leaf_of(tree, leaf):
    """Return the value of a leaf."""
    return np.float64(tree[leaf // CHILDREN, leaf % CHILDREN])


def put(tree, starts, leaf, number):
    """Set one leaf, and update the sums above it."""
    tree[leaf // CHILDREN, leaf % CHILDREN] = number
    node = leaf
    for level in range(1, len(starts)):
        node = node // CHILDREN
        sum_up(tree, starts, level, node)


def put_all(tree, starts, leaves, numbers):
    """Set many leaves, level by level; if a leaf occurs twice, the last value counts."""
    for i in range(len(leaves)):
        tree[leaves[i] // CHILDREN, leaves[i] % CHILDREN] = numbers[i]
    below = CHILDREN
    for level in range(1, len(starts)):
        before = np.int64(-1)
        for i in range(len(leaves)):
            node = leaves[i] // below
            if node != before:  # neighbors are often siblings
                sum_up(tree, starts, level, node)
            before = node
        below *= CHILDREN


def put_range(tree, starts, first, stop, number):
    """Set the leaves from `first` up to `stop` to the same value."""
    for leaf in range(first, stop):
        tree[leaf // CHILDREN, leaf % CHILDREN] = number
    low, high = first, stop - 1
    if low <= high:
        for level in range(1, len(starts)):
            low, high = low // CHILDREN, high // CHILDREN
            for node in range(low, high + 1):
                sum_up(tree, starts, level, node)


def sum_up(tree, starts, level, node):
    """Recompute the sum of a node, four children at a time."""
    row = starts[level - 1] + node
    total = np.float64(0.0)
    for child in range(0, CHILDREN, 4):
        total += four_from(tree, row, child)
    tree[starts[level] + node // CHILDREN, node % CHILDREN] = total


def four_from(tree, row, child):
    """Return the sum of four adjacent children."""
    first = np.float64(tree[row, child]) + np.float64(tree[row, child + 1])
    return first + (np.float64(tree[row, child + 2]) + np.float64(tree[row, child + 3]))


def find(tree, starts, mass):
    """Return the leaf in whose share of the total `mass` falls, counted from the first; never one that is zero."""
    node, rest = np.int64(0), mass
    for level in range(len(starts) - 2, -1, -1):
        node, rest = descend(tree, starts[level] + node, node, rest)
    return node


def find_all(tree, starts, masses, leaves):
    """Find the leaves of many masses in ascending order; `masses` is overwritten.

    One scan along the last level of at most `ALONG` rows replaces the search of the levels above it. The levels below
    are searched one by one for all masses, so that no search waits for another.
    """
    level = len(starts) - 1
    while level > 0 and starts[level] - starts[level - 1] <= ALONG:
        level -= 1
    walk(tree, starts[level], starts[level + 1] if level + 1 < len(starts) else len(tree), masses, leaves)
    for below in range(level - 1, -1, -1):
        if touch(tree, starts[below], leaves) < 0.0:
            return  # never true; keeps the compiler from removing `touch`
        for i in range(len(leaves)):
            leaves[i], masses[i] = descend(tree, starts[below] + leaves[i], leaves[i], masses[i])


def touch(tree, first, nodes):
    """Read one number of each row, to have as many memory accesses in flight as possible."""
    total = np.float32(0.0)
    for i in range(len(nodes)):
        total += tree[first + nodes[i], 0]
    return total


def walk(tree, first, stop, masses, nodes):
    """Find the nodes of a level, its rows from `first` up to `stop`, for masses in ascending order."""
    last, node = (stop - first) * CHILDREN - 1, np.int64(0)
    passed_by, share = np.float64(0.0), np.float64(tree[first, 0])
    for i in range(len(nodes)):
        while node < last and passed_by + share <= masses[i]:
            passed_by += share
            node += 1
            share = np.float64(tree[first + node // CHILDREN, node % CHILDREN])
        found, rest = node, masses[i] - passed_by
        if share == 0.0:  # rounding has carried past the last nonzero node
            while found > 0 and tree[first + found // CHILDREN, found % CHILDREN] == 0:
                found -= 1
            rest = np.float64(tree[first + found // CHILDREN, found % CHILDREN])
        nodes[i] = found
        masses[i] = rest


def descend(tree, row, node, mass):
    """Return the child of a node in whose share `mass` falls, and the rest of the mass within it.

    The search goes by groups of four children, then within one group. Comparisons are summed as numbers, because
    branches on them could not be predicted.
    """
    count, passed_by, total = np.float64(0.0), np.float64(0.0), np.float64(0.0)
    for child in range(0, CHILDREN, 4):
        four = four_from(tree, row, child)
        total += four
        passed = np.float64(total <= mass)
        count += passed
        passed_by += passed * four
    beyond = count == CHILDREN // 4
    first, rest = min(4 * np.int64(count), np.int64(CHILDREN - 4)), mass - passed_by
    count, passed_by, total = np.float64(0.0), np.float64(0.0), np.float64(0.0)
    for child in range(4):
        one = np.float64(tree[row, first + child])
        total += one
        passed = np.float64(total <= rest)
        count += passed
        passed_by += passed * one
    chosen, rest = first + np.int64(count), rest - passed_by
    if beyond or chosen == CHILDREN or tree[row, chosen] == 0:
        # Rounding has carried past the last nonzero child: choose it with its whole sum as the rest, and so on below.
        chosen = np.int64(CHILDREN - 1) if beyond else min(chosen, np.int64(CHILDREN - 1))
        while chosen > 0 and tree[row, chosen] == 0:
            chosen -= 1
        rest = np.float64(tree[row, chosen])
    return node * CHILDREN + chosen, rest
