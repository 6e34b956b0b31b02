"""The last episodes of training: means, costs that may be unknown, and what is saved of them."""

from math import nan

import numpy as np
import pytest

from velocirl.engine.disk.saved import check_arrays
from velocirl.program.counting.recent import RECENT, RecentEpisodes


def test_means_are_over_the_last_hundred_episodes():
    recent = RecentEpisodes(("distance",), (), native=True)
    assert recent.metrics() == {"rollout/ep_rew_mean": None, "rollout/ep_len_mean": None, "episode/distance": None}
    numbers = list(range(RECENT + 50))
    recent.take([float(one) for one in numbers], numbers, {"distance": [2.0 * one for one in numbers]})
    mean = sum(numbers[50:]) / RECENT
    assert recent.metrics() == {
        "rollout/ep_rew_mean": mean, "rollout/ep_len_mean": mean, "episode/distance": 2 * mean,
    }  # fmt: skip


@pytest.mark.parametrize("native", [True, False])
def test_costs_of_other_environments_are_told_once_one_is_known(native):
    """Ours have constraints, whose costs are always known; of others an episode without a cost counts for nothing."""
    recent = RecentEpisodes((), ("cost",), native=native)
    names = {"episode/cost", "episode/cost/cost", "rollout/violations"}
    assert (names <= recent.metrics().keys()) is native
    recent.take([1.0], [5], {"cost": [nan], "cost/cost": [nan]})
    assert (names <= recent.metrics().keys()) is native
    recent.take([1.0], [5], {"cost": [3.0], "cost/cost": [3.0]}, violations=3)
    row = recent.metrics()
    assert row["rollout/violations"] == 3
    assert row["episode/cost"] == (None if native else 3.0)


def test_what_is_saved_brings_them_back():
    recent = RecentEpisodes(("distance",), ("level",), native=True)
    recent.take(
        [1.0, 2.0], [3, 4], {"distance": [5.0, 6.0], "cost": [1.0, 0.0], "cost/level": [1.0, 0.0]}, violations=7
    )
    again = RecentEpisodes(("distance",), ("level",), native=True)
    check_arrays(recent.arrays(), again.specs())
    again.load(recent.arrays())
    assert again.metrics() == recent.metrics()
    assert (list(again.lengths), again.violations) == ([3, 4], 7)
    again.load({"recent.returns": np.array([9.0]), "recent.lengths": np.array([2])})  # of an agent from before
    assert list(again.returns) == [1.0, 2.0, 9.0]
