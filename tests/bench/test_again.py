from contextlib import nullcontext
from dataclasses import replace

import pytest
from neighbours import busy_neighbours
from planted_samples import MACHINE, report_of

from velocirl.bench import Counted, Timed, again
from velocirl.bench.again import AGAIN, compare_and_confirm, measure_twice, together
from velocirl.bench.measuring import QUICK, Settings
from velocirl.bench.quiet import disturbed
from velocirl.bench.registry import Benchmark
from velocirl.bench.regression import Thresholds, compare
from velocirl.bench.session import run_benchmarks
from velocirl.bench.units import STEPS
from velocirl.engine.targets.cpu import available_cores


class Silent:
    def begin(self, benchmark): ...
    def advance(self, share): ...
    def finish(self, result): ...


def planted(*medians):
    """A benchmark that gives one figure each time it is made, the last one ever after."""
    left, made = list(medians), []

    def define():
        """Title."""
        made.append(left.pop(0) if len(left) > 1 else left[0])
        return Counted(lambda: made[-1])

    return Benchmark("test", define), made


def compared(benchmark):
    base = run_benchmarks([benchmark], QUICK, MACHINE, Silent(), "")
    report = run_benchmarks([benchmark], QUICK, MACHINE, Silent(), "")
    return compare_and_confirm(base, report, [benchmark], Thresholds(), Silent(), peers=True)


def test_what_was_worse_for_a_moment_only_is_not_called():
    benchmark, made = planted(100.0, 80.0, 100.0)
    report, found = compared(benchmark)
    assert made[:3] == [100.0, 80.0, 100.0]
    assert not found.regressions
    assert set(report.results[0].contestants[0].samples) == {80.0, 100.0}


def test_what_stays_worse_is_called_after_it_was_measured_again():
    benchmark, made = planted(100.0, 80.0)
    report, found = compared(benchmark)
    assert len(made) == 2 + AGAIN
    assert [change.severity for change in found.regressions] == ["failure"]
    assert len(report.results[0].contestants[0].samples) >= 3 * QUICK.fewest_rounds


def test_what_became_better_for_a_moment_only_is_not_called():
    benchmark, made = planted(100.0, 125.0, 100.0)
    report, found = compared(benchmark)
    assert made[:3] == [100.0, 125.0, 100.0]
    (change,) = found.changes
    assert (change.severity, change.reason) == ("inconclusive", "in 1 of 3 measurements only")
    assert report.results[0].measurements == (QUICK.most_rounds,) * 3


def test_what_stays_better_is_called_after_it_was_measured_again():
    benchmark, made = planted(100.0, 125.0)
    _, found = compared(benchmark)
    assert len(made) == 2 + AGAIN
    assert [change.severity for change in found.changes] == ["improved"]


@pytest.mark.parametrize("busy", ["baseline", "run"])
def test_the_same_code_beside_busy_processes_and_without_them_is_not_called(busy):
    """Real ones, on every core, that no reference and no clock of a process can be blamed for."""
    settings = Settings(0.02, 0.05, fewest_rounds=6, most_rounds=10, budget_seconds=1.0)

    def define():
        """Title."""
        return Timed(lambda: sum(number * number for number in range(5000)), amount=5000)

    def run(beside):
        with busy_neighbours(available_cores()) if beside else nullcontext():
            return run_benchmarks([Benchmark("test", define)], settings, MACHINE, Silent(), "")

    base, report = run(busy == "baseline"), run(busy == "run")
    disturbed_one = base if busy == "baseline" else report
    assert disturbed(disturbed_one)
    assert len(disturbed_one.results[0].company_by_round) == len(disturbed_one.results[0].reference)
    (change,) = compare(base, report, Thresholds()).changes
    assert change.severity in ("none", "inconclusive")
    if busy == "baseline":
        _, found = compare_and_confirm(base, report, [Benchmark("test", define)], Thresholds(), Silent(), peers=True)
        assert [change.severity for change in found.changes] == ["inconclusive"]
        assert "save it again" in found.changes[0].reason


def test_a_baseline_that_others_disturbed_is_measured_again_and_said_to_be_none(monkeypatch):
    benchmark, _ = planted(100.0)
    report = run_benchmarks([benchmark], QUICK, MACHINE, Silent(), "")
    rounds = len(report.results[0].reference)
    busy = replace(report.results[0], unit=STEPS, company=2.0, company_by_round=(2.0,) * rounds)
    assert disturbed(report) == []
    assert disturbed(replace(report, results=[busy])) == [
        "other programs kept too many cores busy: no change of define will be called beside this baseline,"
        " save it again when nothing else runs"
    ]
    measured = iter([busy, busy, replace(busy, company=0.0, company_by_round=(0.0,) * rounds)])
    monkeypatch.setattr(again, "run_benchmarks", lambda *_, **__: replace(report, results=[next(measured)]))
    found = measure_twice(replace(report, results=[busy]), [benchmark], Silent(), peers=True)
    assert found.results[0].measurements == (rounds,) * (1 + AGAIN)


def test_what_is_as_before_is_not_measured_again():
    benchmark, made = planted(100.0)
    compared(benchmark)
    assert made == [100.0, 100.0]


def test_two_measurements_are_joined_round_by_round():
    benchmark, _ = planted(1.0, 2.0)
    first, second = (run_benchmarks([benchmark], QUICK, MACHINE, Silent(), "").results[0] for _ in range(2))
    both = together(first, second)
    rounds = len(first.reference) + len(second.reference)
    assert len(both.reference) == len(both.contestants[0].samples) == rounds
    assert both.contestants[0].samples[0] == 1.0
    assert both.contestants[0].samples[-1] == 2.0


def test_an_interrupted_run_is_compared_as_far_as_it_came():
    benchmark, made = planted(100.0, 80.0)
    base, report = (run_benchmarks([benchmark], QUICK, MACHINE, Silent(), "") for _ in range(2))
    report = replace(report, complete=False)
    after, found = compare_and_confirm(base, report, [benchmark], Thresholds(), Silent(), peers=True)
    assert after == report
    assert found.failed
    assert len(made) == 2


def test_a_benchmark_that_fails_the_second_time_keeps_what_it_had():
    calls = []

    def define():
        """Title."""
        calls.append(1)
        if len(calls) > 2:
            raise RuntimeError("gone")
        return Counted(lambda: 100.0 if len(calls) == 1 else 80.0)

    benchmark = Benchmark("test", define)
    report, found = compared(benchmark)
    assert found.failed
    assert not report.failures


@pytest.mark.parametrize("peers", [True, False])
def test_a_report_without_results_has_no_changes(peers):
    report = report_of()
    assert compare_and_confirm(report, report, [], Thresholds(), Silent(), peers=peers)[1].changes == []


def test_a_baseline_is_measured_twice():
    benchmark, made = planted(80.0, 100.0)
    report = run_benchmarks([benchmark], QUICK, MACHINE, Silent(), "")
    twice = measure_twice(report, [benchmark], Silent(), peers=True)
    assert made == [80.0, 100.0]
    assert set(twice.results[0].contestants[0].samples) == {80.0, 100.0}
    assert measure_twice(replace(report, complete=False), [benchmark], Silent(), peers=True).results == report.results
