"""The suite as a whole: that every benchmark is complete, with peers and without, and that each one runs."""

import inspect

import pytest

from velocirl.bench.comparison import Comparison, as_comparison
from velocirl.bench.machine.facts import Machine
from velocirl.bench.measuring import QUICK, Counted, Settings, Timed
from velocirl.bench.registry import CATEGORIES, SUITE, Benchmark, find_benchmarks
from velocirl.bench.session import run_benchmarks
from velocirl.bench.units import STEPS

BENCHMARKS = [one for one in find_benchmarks(everything=True) if one.define.__module__.startswith(SUITE)]
BY_NAME = {one.name: one for one in BENCHMARKS}
OTHERS = (
    "ALE",
    "Gymnasium",
    "EnvPool",
    "JAX",
    "torch",
    "Stable-Baselines3",
    "d3rlpy",
    "cpprb",
    "d3rlpy",
    "Python lists",
    "NumPy",
    "the package",
)
NOT_RIVALS = {"NumPy, matrix product on 2 cores"}  # the machine's peak
MACHINE = Machine("a processor", 2, 2**34, "a system", 0.1, "", {})
MINIMAL = Settings(warm_up_seconds=0.0, sample_seconds=1e-4, fewest_rounds=1, most_rounds=1, budget_seconds=1e-3)


class Silent:
    def begin(self, benchmark): ...
    def advance(self, share): ...
    def finish(self, result): ...


def test_every_category_has_benchmarks_and_every_benchmark_a_category():
    assert {one.category for one in BENCHMARKS} == set(CATEGORIES)
    assert {one.category for one in BENCHMARKS if one.standard} == set(CATEGORIES)


def test_names_and_titles_are_unique():
    assert len(BY_NAME) == len(BENCHMARKS)
    assert len({one.title for one in BENCHMARKS}) == len(BENCHMARKS)
    for one in BENCHMARKS:
        assert inspect.getdoc(one.define).partition("\n")[0].endswith("."), one.name


@pytest.mark.parametrize("name", BY_NAME)
def test_a_benchmark_is_complete_with_peers_and_without(name):
    comparison = as_comparison(name, BY_NAME[name].define())
    rivals = {one for one in comparison.contestants if one.startswith(OTHERS)} - NOT_RIVALS
    assert set(comparison.peers) == rivals
    alone = comparison.without_peers()
    assert alone.contestants
    assert not rivals & set(alone.contestants)
    assert set(alone.contestants) | rivals == set(comparison.contestants)
    for claim in alone.claims:
        assert {claim.of, claim.to} - {""} <= set(alone.contestants)


def measured(define, settings=QUICK):
    (result,) = run_benchmarks([Benchmark("vector", define)], settings, MACHINE, Silent(), "a command").results
    assert not result.error
    return result


def test_facts_stand_beside_a_result():
    calls = []

    def telling():
        """Facts of the first contestant that has some."""
        return Comparison(
            STEPS,
            {
                "silent": lambda: Counted(lambda: 1.0),
                "first": lambda: Timed(lambda: calls.append(1), 1.0, facts=lambda: {"phase:rollout": len(calls)}),
                "second": lambda: Timed(lambda: None, 1.0, facts=lambda: {"phase:update": 1.0}),
            },
        )

    metadata = measured(telling).metadata
    assert metadata == {"phase:rollout": len(calls)}
    assert len(calls) > 3  # after the last sample


def test_without_facts_nothing_is_added():
    def silent():
        """Nothing to tell."""
        return Timed(lambda: None)

    assert measured(silent).metadata == {}


def test_training_tells_its_phases(monkeypatch):
    from velocirl.bench.suite.training import ppo

    monkeypatch.setattr(ppo, "FOUR_EPOCHS", ppo.Work(num_envs=16, horizon=8, epochs=2, minibatch_size=32))

    def training():
        """PPO alone."""
        return ppo.ppo_4_epochs().without_peers()

    shares = measured(training).metadata
    top = {name: share for name, share in shares.items() if name.count("/") == 0}
    assert {"phase:rollout", "phase:update"} <= set(top)
    assert sum(top.values()) == pytest.approx(1.0, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("category", CATEGORIES)
def test_every_standard_benchmark_runs(category):
    benchmarks = [one for one in BENCHMARKS if one.category == category and one.standard]
    results = run_benchmarks(benchmarks, MINIMAL, MACHINE, Silent(), "a command", peers=False).results
    assert {result.name: result.error for result in results if result.error} == {}
    assert len(results) == len(benchmarks)
    for result in results:
        for one in result.contestants:
            assert one.samples or one.unavailable, (result.name, one.name)
            assert all(sample >= 0 for sample in one.samples)
