import time

import pytest

from velocirl.bench import PerformanceBenchmark
from velocirl.bench.measuring import QUICK
from velocirl.bench.reading import read_report
from velocirl.bench.units import SECONDS, STEPS


def test_exactly_so_many_calls_are_timed_after_the_warm_up():
    calls = []
    result = PerformanceBenchmark().measure(lambda: calls.append(1), "appending", "custom", iterations=5, warmup=3)
    assert len(calls) == 8
    assert (result.name, result.category, result.unit) == ("appending", "custom", SECONDS)
    assert len(result.contestants[0].samples) == 5


def test_a_call_is_measured_in_seconds_or_by_its_amount():
    benchmarks = PerformanceBenchmark()
    seconds = benchmarks.measure(lambda: time.sleep(0.01), "sleeping", iterations=3)
    assert 0.01 <= seconds.contestants[0].estimate.median < 0.1
    rate = benchmarks.measure(lambda: time.sleep(0.01), "steps", iterations=3, amount=100, unit=STEPS)
    assert 1e3 < rate.contestants[0].estimate.median <= 1e4


def test_without_iterations_samples_are_calibrated():
    result = PerformanceBenchmark(QUICK).measure(lambda: sum(range(10)), "summing")
    assert result.contestants[0].iterations > 100
    assert QUICK.fewest_rounds <= len(result.contestants[0].samples) <= QUICK.most_rounds


def test_what_was_measured_is_kept_with_its_metadata(tmp_path):
    benchmarks = PerformanceBenchmark(QUICK)
    benchmarks.measure(list, "making", "rl_training", 3, batch_size=256, environment="Mine-v0")
    benchmarks.save(tmp_path / "mine.json")
    report = read_report(tmp_path / "mine.json")
    assert report == benchmarks.report()
    assert report.results[0].metadata == {"batch_size": 256, "environment": "Mine-v0"}


def test_it_is_shown(capsys):
    benchmarks = PerformanceBenchmark(QUICK)
    benchmarks.measure(list, "making", iterations=3)
    benchmarks.show()
    assert "making" in capsys.readouterr().out


@pytest.mark.parametrize("given", [{"iterations": 0}, {"iterations": 3, "warmup": -1}])
def test_wrong_numbers_are_refused(given):
    with pytest.raises(ValueError, match="must be at least"):
        PerformanceBenchmark().measure(list, "making", **given)


def test_a_name_is_measured_once():
    benchmarks = PerformanceBenchmark()
    benchmarks.measure(list, "making", iterations=1)
    with pytest.raises(ValueError, match="'making' was measured already"):
        benchmarks.measure(list, "making", iterations=1)


def test_what_the_function_raises_is_the_callers():
    with pytest.raises(ZeroDivisionError):
        PerformanceBenchmark().measure(lambda: 1 / 0, "dividing", iterations=1)
