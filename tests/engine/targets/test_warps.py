"""Sums over the threads of a warp, in plain Python; tests of training compare a GPU's with the CPU's."""

import numpy as np

from velocirl.engine.targets.warps import WARP, keep_sum

RECORD = np.dtype([("loss", np.float64), ("entropy", np.float64)])


def test_each_warp_has_a_sum_and_what_was_there_counts_for_nothing():
    given = np.random.default_rng(0).normal(size=(3 * WARP, 2))
    sums = np.full(3, 7.0).repeat(2).view(RECORD)
    for _ in range(2):
        for i, row in enumerate(given.view(RECORD)[:, 0]):
            keep_sum(sums, i, row)
        np.testing.assert_allclose(sums.view(np.float64).reshape(3, 2), given.reshape(3, WARP, 2).sum(1))
