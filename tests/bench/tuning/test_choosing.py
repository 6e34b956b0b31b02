"""Choosing on planted tables: who is there soonest is taken, unless it learns worse or the difference is noise."""

import pytest
from planted_tuning import measured

from velocirl.bench.tuning.candidates import Candidate
from velocirl.bench.tuning.choosing import ACCEPTED, IS_REFERENCE, UNCLEAR, UNTRIED, WORSE, choose
from velocirl.bench.tuning.evidence import Measured, goal_of


def chosen(reference, *others, tolerance=0.02):
    return choose([reference, *others], goal_of(reference, tolerance))


def reference(finals=(100.0, 99.0, 101.0), speed=100.0, **more):
    return measured(speed, finals, **more)


def test_the_soonest_of_those_that_learn_as_well_is_taken():
    fast = measured(300.0, [100.0, 101.0, 99.5], name=64)
    faster = measured(400.0, [100.5, 100.0, 100.0], name=128)
    found = chosen(reference(), fast, faster)
    assert found.name == "num_envs=128"
    verdict = found.verdicts["num_envs=128"]
    assert verdict.state == ACCEPTED
    assert verdict.gain.median == pytest.approx(4.0)
    assert verdict.seconds == pytest.approx(500 / 400.0)
    assert found.verdicts["reference"].state == IS_REFERENCE
    assert found.verdicts["reference"].seconds == pytest.approx(500 / 100.0)


def test_faster_but_worse_is_refused():
    worse = measured(1000.0, [90.0, 91.0, 89.0], name=64)
    found = chosen(reference(), worse)
    assert found.name == "reference"
    assert found.reason == "no candidate learnt as well"
    assert found.verdicts["num_envs=64"].state == WORSE
    assert "lower by 10" in found.verdicts["num_envs=64"].reason
    assert chosen(reference(), worse, tolerance=0.2).name == "num_envs=64"  # who allows a fifth less gets it


def test_faster_with_returns_too_noisy_to_tell_is_not_taken():
    noisy = measured(1000.0, [100.0, 60.0, 110.0], name=64)
    found = chosen(reference(), noisy)
    assert found.name == "reference"
    assert found.verdicts["num_envs=64"].state == UNCLEAR
    assert "too few seeds" in found.verdicts["num_envs=64"].reason
    assert found.reason.endswith("1 are unclear, and more --seeds and --budget may tell")


def test_more_steps_a_second_are_nothing_where_more_steps_are_needed():
    hasty = measured(150.0, [100.0, 100.0, 100.0], at=1000, name=64)
    found = chosen(reference(at=500), hasty)
    assert found.name == "reference"
    assert found.verdicts["num_envs=64"].state == ACCEPTED
    assert found.verdicts["num_envs=64"].reason.endswith("but slower")
    assert found.verdicts["num_envs=64"].gain.median == pytest.approx(0.75)


def test_a_gain_within_noise_leaves_the_reference():
    lucky = measured(100.0, [100.0, 100.0, 100.0], at=[300, 600, 500], name=64)
    found = chosen(reference(at=[400, 600, 500]), lucky)
    assert found.verdicts["num_envs=64"].gain.median > 1.0
    assert found.name == "reference"
    assert found.reason == "no candidate was faster beyond noise"


def test_a_sure_gain_stands_above_a_larger_one_that_may_be_luck():
    sure = measured(200.0, [100.0, 100.0, 100.0], name=64)
    unsure = measured(200.0, [100.0, 100.0, 100.0], at=[100, 100, 900], name=128)
    found = chosen(reference(), sure, unsure)
    assert found.verdicts["num_envs=128"].gain.median > found.verdicts["num_envs=64"].gain.median
    assert found.name == "num_envs=64"


def test_of_equals_the_nearest_to_the_reference_is_taken():
    near, far = (measured(200.0, [100.0, 100.0, 100.0], name=name) for name in (64, 16))
    far.candidate = Candidate(far.candidate.learning, distance=2.0)
    assert chosen(reference(), far, near).name == "num_envs=64"
    assert chosen(reference(), near, far).name == "num_envs=64"


def test_where_it_is_computed_needs_no_proof_but_may_be_refuted():
    noisy = measured(200.0, [100.0, 60.0, 110.0], name=1, neutral=True)
    found = chosen(reference(), noisy)
    assert found.name == "threads=1"
    assert found.verdicts["threads=1"].gain.median == pytest.approx(2.0)  # by speed alone
    broken = measured(200.0, [50.0, 60.0, 55.0], name=1, neutral=True)
    assert chosen(reference(), broken).verdicts["threads=1"].state == WORSE


def test_without_a_goal_only_what_cannot_change_learning_is_taken():
    neutral = measured(150.0, name=1, neutral=True)
    shape = measured(900.0, name=64)
    slower = measured(50.0, name=4, neutral=True)
    found = choose([reference(()), neutral, shape, slower], None)
    assert found.name == "threads=1"
    assert found.verdicts["num_envs=64"].state == UNTRIED
    assert found.verdicts["threads=4"].reason.endswith("but slower")


def test_speed_within_noise_leaves_the_reference():
    same = measured(101.0, name=1, neutral=True, jitter=0.05)
    same.speeds.reverse()
    found = choose([measured(100.0, jitter=0.05), same], None)
    assert found.name == "reference"
    assert found.verdicts["threads=1"].reason.endswith("not faster beyond noise")


def test_a_policy_that_never_ends_an_episode_is_worse():
    stuck = measured(900.0, [100.0, float("-inf"), 100.0], name=64)
    found = chosen(reference(), stuck)
    assert found.name == "reference"
    assert "do not end" in found.verdicts["num_envs=64"].reason


def test_alone_the_reference_is_taken_and_it_is_said_why():
    found = choose([reference(()), Measured(Candidate({"num_envs": 3}, distance=1.0), glance=3.0)], None)
    assert found.name == "reference"
    assert found.reason == "there was no candidate that could have been faster"
    assert found.verdicts["num_envs=3"].state == UNTRIED
