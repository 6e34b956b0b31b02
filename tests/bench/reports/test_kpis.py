import pytest
from planted_report import measured, planted_report, result

from velocirl.bench.registry import find_benchmarks
from velocirl.bench.reports.kpis import INDICATORS, Indicator, Source, judge, readings
from velocirl.bench.results import Measured
from velocirl.bench.statistics import Estimate
from velocirl.bench.units import BYTES, MEGABYTES, SECONDS, STEPS


def named(report):
    return {reading.indicator.name: reading for reading in readings(report)}


def test_targets_and_alerts_are_those_that_were_agreed():
    assert {(one.name, one.target, one.alert, one.unit.more_is_better) for one in INDICATORS} == {
        ("Environment step", 1e-3, 5e-3, False),
        ("Environment step in a fleet", 1e-3, 5e-3, False),
        ("Policy forward pass", 1e-4, 1e-3, False),
        ("Safety checks", 10.0, 25.0, False),
        ("Memory of an episode", 100.0, 500.0, False),
        ("Compile time", 5.0, 30.0, False),
        ("Training throughput", 1000.0, 100.0, True),
    }


def test_every_key_figure_of_a_report():
    found = named(planted_report())
    told = {name: (reading.status, reading.benchmark, reading.says_measured) for name, reading in found.items()}
    assert told == {
        "Environment step": ("met", "single_step", "2.10 µs"),
        "Environment step in a fleet": ("met", "cartpole_4096", "8.47 ns"),
        "Policy forward pass": ("met", "predict_one", "6.40 µs"),
        "Safety checks": ("not measured", "", "not measured"),
        "Memory of an episode": ("short", "episode_memory", "140 MB"),
        "Compile time": ("short", "training_start", "7.20 s"),
        "Training throughput": ("met", "ppo_4_epochs", "1.31M steps/s"),
    }
    assert found["Compile time"].contestant == "cold cache"
    assert (found["Compile time"].says_target, found["Compile time"].says_alert) == ("< 5.00 s", "> 30.0 s")
    training = found["Training throughput"]
    assert (training.says_target, training.says_alert) == ("> 1.00k steps/s", "< 100 steps/s")


def test_every_figure_but_training_is_told_by_a_plant_where_one_was_measured():
    """By benchmarks that there are, and in units from which the figure follows."""
    plants = {
        "Environment step": "plant_step",
        "Environment step in a fleet": "plant_fleet",
        "Policy forward pass": "plant_decision",
        "Safety checks": "safety_overhead",
        "Memory of an episode": "plant_episode_memory",
        "Compile time": "plant_start",
    }
    results = []
    for name in plants.values():
        comparison = find_benchmarks([name])[0].define()
        contestants = [measured(one, 3.0) for one in comparison.contestants]
        results.append(result(name, "environment", comparison.unit, contestants))
    found = named(planted_report(results=[*planted_report().results, *results]))
    assert {name: found[name].benchmark for name in plants} == plants


def test_a_rate_becomes_the_time_of_a_step_with_its_bounds_in_order():
    report = planted_report(results=[result("random_loop", "environment", STEPS, [measured("velocirl", 2e6, 0.05)])])
    found = named(report)["Environment step in a fleet"].estimate
    rate = report.results[0].contestants[0].estimate
    assert (found.median, found.low, found.high) == (1 / rate.median, 1 / rate.high, 1 / rate.low)
    assert found.low < found.median < found.high


@pytest.mark.parametrize(
    ("low", "high", "unit", "status"),
    [
        (0.5, 0.9, SECONDS, "met"),
        (0.9, 1.1, SECONDS, "short"),  # not all of it
        (2.0, 3.0, SECONDS, "short"),
        (4.0, 6.0, SECONDS, "short"),
        (5.5, 6.0, SECONDS, "alert"),
        (5.5, 6.0, STEPS, "met"),
        (0.5, 1.2, STEPS, "short"),
        (0.5, 0.9, STEPS, "alert"),
    ],
)
def test_the_whole_interval_decides(low, high, unit, status):
    target, alert = (5.0, 1.0) if unit.more_is_better else (1.0, 5.0)
    indicator = Indicator("it", "", unit, target, alert)
    assert judge(Estimate((low + high) / 2, low, high), indicator) == status


def test_the_first_source_that_was_measured_counts_and_no_peer_does():
    indicator = Indicator("memory", "", MEGABYTES, 100.0, 500.0, [Source("missing"), Source("mem*", "*ours*")])
    contestants = [
        measured("not this", 1.0),
        measured("ours, but somebody else's", 2.0, peer=True),
        Measured("ours too", unavailable="not here"),
        measured("ours at last", 3.0, 0.0),
    ]
    report = planted_report(results=[result("memory", "memory", MEGABYTES, contestants)])
    (reading,) = readings(report, [indicator])
    assert (reading.benchmark, reading.contestant, reading.estimate.median) == ("memory", "ours at last", 3.0)


def test_the_memory_of_an_episode_is_that_of_the_hungriest_in_megabytes():
    contestants = [measured("one", 2e6, 0.0), measured("training", 150e6, 0.0), measured("a table", 3e6, 0.0)]
    report = planted_report(results=[result("episode_memory", "memory", BYTES, contestants)])
    reading = named(report)["Memory of an episode"]
    assert (reading.contestant, reading.says_measured, reading.status) == ("training", "150 MB", "short")


def test_a_figure_in_another_unit_is_none():
    report = planted_report(results=[result("predict_one", "network", MEGABYTES, [measured("velocirl", 3.0)])])
    assert named(report)["Policy forward pass"].status == "not measured"
