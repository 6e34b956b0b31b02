"""A sum tree: numbers, of which one is found by its share of the total, in O(log n).

Every node has sixteen children, one row of the tree and one line of the cache, and is their sum. A node is always
summed anew from its children, never corrected by a difference, so that after a billion changes it is as exact as after
the first: the sum in double precision, rounded to single. What is searched for is a mass in double precision, since a
share among a million is finer than single precision.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

ALONG = 16  # rows of a level along which many searches walk rather than descend to it
CHILDREN = 16  # of four bytes; a million leaves have five levels above them


def allocate_tree(leaves: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """A tree of zeros (rows, CHILDREN), leaves first and the root last, and the row where each level begins."""
    starts, width = [0], leaves
    while width > 1 or len(starts) == 1:
        width = -(-width // CHILDREN)  # of the next level, which has a node for each row of this one
        starts.append(starts[-1] + width)
    rows = starts[-1] + 1
    room = np.zeros((rows + 1) * CHILDREN, np.float32)
    first = -(room.ctypes.data // 4) % CHILDREN  # a row begins where a cache line does
    return room[first : first + rows * CHILDREN].reshape(rows, CHILDREN), np.array(starts, np.int64)


def total_of(tree):
    """The sum of all leaves."""
    return np.float64(tree[len(tree) - 1, 0])


def leaf_of(tree, leaf):
    """The number of a leaf."""
    return np.float64(tree[leaf // CHILDREN, leaf % CHILDREN])


def put(tree, starts, leaf, number):
    """Change one leaf, and the sums above it."""
    tree[leaf // CHILDREN, leaf % CHILDREN] = number
    node = leaf
    for level in range(1, len(starts)):
        node = node // CHILDREN
        sum_up(tree, starts, level, node)


def put_all(tree, starts, leaves, numbers):
    """Change many leaves, level by level; where a leaf is named twice, the last number counts."""
    for i in range(len(leaves)):
        tree[leaves[i] // CHILDREN, leaves[i] % CHILDREN] = numbers[i]
    below = CHILDREN
    for level in range(1, len(starts)):
        before = np.int64(-1)
        for i in range(len(leaves)):
            node = leaves[i] // below
            if node != before:  # neighbours are often brothers
                sum_up(tree, starts, level, node)
            before = node
        below *= CHILDREN


def put_range(tree, starts, first, stop, number):
    """Change the leaves from `first` up to `stop` to the same number."""
    for leaf in range(first, stop):
        tree[leaf // CHILDREN, leaf % CHILDREN] = number
    low, high = first, stop - 1
    if low <= high:
        for level in range(1, len(starts)):
            low, high = low // CHILDREN, high // CHILDREN
            for node in range(low, high + 1):
                sum_up(tree, starts, level, node)


def sum_up(tree, starts, level, node):
    """Sum a node anew, four sums at a time."""
    row = starts[level - 1] + node
    total = np.float64(0.0)
    for child in range(0, CHILDREN, 4):
        total += four_from(tree, row, child)
    tree[starts[level] + node // CHILDREN, node % CHILDREN] = total


def four_from(tree, row, child):
    """The sum of four neighbours."""
    first = np.float64(tree[row, child]) + np.float64(tree[row, child + 1])
    return first + (np.float64(tree[row, child + 2]) + np.float64(tree[row, child + 3]))


def find(tree, starts, mass):
    """The leaf in whose share of the total `mass` falls, counted from the first; never one that is zero."""
    node, rest = np.int64(0), mass
    for level in range(len(starts) - 2, -1, -1):
        node, rest = descend(tree, starts[level] + node, node, rest)
    return node


def find_all(tree, starts, masses, leaves):
    """The leaves of many masses, which ascend; `masses` is used up.

    The first levels are passed by all of them together, in one walk along the last level of at most `ALONG` rows; the
    others level by level, so that no search waits for another.
    """
    level = len(starts) - 1
    while level > 0 and starts[level] - starts[level - 1] <= ALONG:
        level -= 1
    walk(tree, starts[level], starts[level + 1] if level + 1 < len(starts) else len(tree), masses, leaves)
    for below in range(level - 1, -1, -1):
        if touch(tree, starts[below], leaves) < 0.0:
            return  # never: but so the compiler keeps the touch
        for i in range(len(leaves)):
            leaves[i], masses[i] = descend(tree, starts[below] + leaves[i], leaves[i], masses[i])


def touch(tree, first, nodes):
    """Read one number of each row: as many accesses to memory are under way at once as there can be."""
    total = np.float32(0.0)
    for i in range(len(nodes)):
        total += tree[first + nodes[i], 0]
    return total


def walk(tree, first, stop, masses, nodes):
    """The nodes of a level, its rows from `first` up to `stop`, in whose shares masses fall that ascend."""
    last, node = (stop - first) * CHILDREN - 1, np.int64(0)
    passed_by, share = np.float64(0.0), np.float64(tree[first, 0])
    for i in range(len(nodes)):
        while node < last and passed_by + share <= masses[i]:
            passed_by += share
            node += 1
            share = np.float64(tree[first + node // CHILDREN, node % CHILDREN])
        found, rest = node, masses[i] - passed_by
        if share == 0.0:  # rounding has carried beyond the last node that is not zero
            while found > 0 and tree[first + found // CHILDREN, found % CHILDREN] == 0:
                found -= 1
            rest = np.float64(tree[first + found // CHILDREN, found % CHILDREN])
        nodes[i] = found
        masses[i] = rest


def descend(tree, row, node, mass):
    """The child of a node in whose share `mass` falls, and how far into it: first among its fours, then in one of them.

    Comparisons are counted as numbers, since branches on them could not be predicted.
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
        # Rounding has carried beyond the last child that is not zero: it is that one, and in there again.
        chosen = np.int64(CHILDREN - 1) if beyond else min(chosen, np.int64(CHILDREN - 1))
        while chosen > 0 and tree[row, chosen] == 0:
            chosen -= 1
        rest = np.float64(tree[row, chosen])
    return node * CHILDREN + chosen, rest
