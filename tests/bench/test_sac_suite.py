"""The benchmarks of SAC: that everybody does the work that is measured."""

from velocirl.bench.registry import find_benchmarks
from velocirl.bench.suite.training import sac


def test_what_is_claimed():
    claims = {(one.name, claim.at_least) for one in find_benchmarks(["sac"]) for claim in one.define().claims}
    assert claims == {("sac_pendulum", 1.8), ("sac_share_of_peak", 0.45), ("sac_time_to_solve", 4.0)}


def test_operations_by_hand():
    """Sixteen passes of 256 rows through a hidden layer of 256x256, and what little the other layers add to that."""
    passes = 16 * 2 * 256 * 256 * 256
    assert passes < sac.operations() < 1.03 * passes


def test_there_is_an_update_for_each_step_after_the_first_hundred():
    settings = sac.settings()
    assert (settings["hidden"], settings["batch_size"], settings["num_envs"]) == ((256, 256), 256, 1)
    assert settings["gradient_steps"] == settings["train_every"] == settings["actor_every"] == 1
    assert settings["learning_starts"] == sac.WARM
