"""joblib, whose processes are sent what they work on by cloudpickle, as Ray's are."""

import numpy as np
import pytest

import velocirl

pytestmark = pytest.mark.slow


def test_fleets_go_on_in_its_processes_as_here():
    joblib = pytest.importorskip("joblib", reason="needs joblib: pip install 'velocirl[clients]'")

    def play(envs):  # in here, since its processes cannot import this file
        for _ in range(50):
            seen, *_ = envs.step(np.ones(envs.num_envs, int))
        return seen

    fleets = [velocirl.make_vec("CartPole-v1", 3, seed=seed) for seed in range(2)]
    for fleet in fleets:
        fleet.reset()
        fleet.run_randomly(7)
    elsewhere = joblib.Parallel(n_jobs=2)(joblib.delayed(play)(fleet) for fleet in fleets)
    for fleet, seen in zip(fleets, elsewhere, strict=True):
        np.testing.assert_array_equal(play(fleet), seen)
