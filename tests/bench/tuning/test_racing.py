"""The race, on trainings that are planted: who drops out when, and what is said where there is no time."""

import time

import pytest
from planted_tuning import measured, trial

from velocirl.bench.tuning.candidates import Candidate
from velocirl.bench.tuning.evidence import Measured
from velocirl.bench.tuning.racing import MOST_CONTESTANTS, Seeds, contestants, race
from velocirl.bench.tuning.watching import Deadline
from velocirl.program.faults import NumericalError


class Silent:
    def begin(self, stage):
        pass

    def advance(self, share, detail=""):
        assert 0.0 <= share <= 1.0


def run(reference, others, returns, seeds=(0, 3, 3), budget=60.0, cost=0.0):
    """Race with trainings whose returns are `returns[name](seed)` and that take `cost` seconds each."""

    def train(candidate, seed, enough):
        time.sleep(cost)
        return trial(returns[candidate.name](seed), seed=seed)

    return race(reference, others, train, Seeds(*seeds), 0.02, Deadline(budget), Silent())


@pytest.fixture
def reference():
    return measured(100.0)


def named(*names):
    return [measured(200.0, name=name) for name in names]


def test_everybody_is_trained_with_the_same_seeds(reference):
    (other,) = named(64)
    goal, said = run(
        reference, [other], {"reference": lambda seed: 100.0, "num_envs=64": lambda seed: 100.0}, (7, 3, 3)
    )
    assert said == ""
    assert goal.quality == 98.0
    for row in (reference, other):
        assert [one.seed for one in row.trials] == [7, 8, 9]


def test_who_falls_far_behind_drops_out_early_and_who_is_worse_after_the_fewest_seeds(reference):
    far, worse, good = named(64, 128, 256)
    returns = {
        "reference": lambda seed: 100.0 + seed,
        "num_envs=64": lambda seed: 10.0,
        "num_envs=128": lambda seed: 80.0,
        "num_envs=256": lambda seed: 101.0,
    }
    run(reference, [far, worse, good], returns, (0, 3, 6))
    assert [len(row.trials) for row in (reference, far, worse, good)] == [6, 2, 3, 6]
    assert "fell far behind" in far.failure
    assert worse.failure == ""


def test_who_is_only_behind_a_lucky_seed_of_the_reference_goes_on(reference):
    (other,) = named(64)
    returns = {"reference": lambda seed: 100.0 if seed == 0 else 20.0, "num_envs=64": lambda seed: 21.0}
    run(reference, [other], returns)
    assert len(other.trials) == 3
    assert other.failure == ""


def test_further_seeds_only_while_there_is_time(reference):
    (other,) = named(64)
    returns = {"reference": lambda seed: 100.0, "num_envs=64": lambda seed: 100.0}
    run(reference, [other], returns, (0, 3, 1000), budget=1.0, cost=0.05)
    assert 3 <= len(other.trials) < 20


def test_where_not_all_fit_the_first_ones_are_trained(reference):
    others = named(*range(64, 74))
    returns = {row.name: lambda seed: 100.0 for row in [reference, *others]}
    goal, said = run(reference, others, returns, budget=1.0, cost=0.05)
    trained = [len(row.trials) for row in others]
    assert goal is not None
    assert trained[0] == 3
    assert trained[-1] == 0
    assert sorted(trained, reverse=True) == trained
    assert said.startswith(f"{trained.count(0)} of 10 candidates were not trained")
    assert others[-1].skipped == "no time"


def test_where_no_candidate_fits_nothing_is_judged(reference):
    (other,) = named(64)
    goal, said = run(reference, [other], {"reference": lambda seed: 100.0}, budget=0.2, cost=0.1)
    assert goal is None
    assert "not in the budget" in said
    assert "--budget 2 would do" in said  # a fifth more than six trainings of 0.1 s in 0.6 of it
    assert other.trials == []


def test_where_the_reference_learns_nothing_nothing_is_judged(reference):
    (other,) = named(64)
    goal, said = run(reference, [other], {"reference": lambda seed: 0.0, "num_envs=64": lambda seed: 5.0})
    assert goal is None
    assert "learns nothing" in said


def test_a_candidate_whose_numbers_overflow_is_out_but_a_reference_is_an_error(reference):
    (other,) = named(64)

    def overflow(seed):
        raise NumericalError("the loss is not a number")

    run(reference, [other], {"reference": lambda seed: 100.0, "num_envs=64": overflow})
    assert other.failure == "seed 0: the loss is not a number"
    with pytest.raises(NumericalError):
        run(measured(100.0), [other], {"reference": overflow})


def test_once_the_references_best_is_reached_nobody_looks_until_the_end(reference):
    (other,) = named(64)
    heard = []

    def train(candidate, seed, enough):
        heard.append(enough)
        return trial(100.0 + seed, seed=seed)

    race(reference, [other], train, Seeds(0, 2, 2), 0.02, Deadline(60.0), Silent())
    assert heard[:2] == [float("inf"), 100.0]


def candidate(glance, power, threads=None):
    learning = {"num_envs": 2**power} if power else {}
    return Measured(Candidate(learning, {"threads": threads} if threads else {}, {}, float(power)), glance)


def test_of_each_shape_the_fastest_is_trained_unless_it_is_far_slower_than_the_reference_at_its_best():
    rows = [
        candidate(100.0, 0),
        candidate(150.0, 0, threads=1),
        candidate(140.0, 1),
        candidate(160.0, 1, threads=1),
        candidate(100.0, 2),
        candidate(110.0, 3),
        Measured(Candidate({"num_envs": 99}, distance=1.0)),  # there was no time to look at it
    ]
    assert [row.name for row in contestants(rows)] == ["threads=1", "num_envs=2 threads=1", "num_envs=8"]


def test_first_those_that_gain_most_for_what_they_risk():
    rows = [candidate(100.0, 0), candidate(120.0, 1), candidate(110.0, 2), candidate(130.0, 3), candidate(105.0, 4)]
    assert [row.candidate.distance for row in contestants(rows)] == [1, 3, 2, 4]


def test_the_reference_itself_is_nobody_it_competes_with():
    assert contestants([candidate(100.0, 0), candidate(50.0, 1)]) == []
    many = [candidate(100.0, 0), *(candidate(100.0 + power, power) for power in range(1, 40))]
    assert len(contestants(many)) == MOST_CONTESTANTS
