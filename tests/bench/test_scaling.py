"""Scaling: which numbers of workers are compared, and how efficient they are."""

import io

import numpy as np
import pytest
from planted_samples import report_of
from rich.console import Console

from velocirl.bench import scaling
from velocirl.bench.reports.html.details import detail_section
from velocirl.bench.reports.markdown import section
from velocirl.bench.reports.terminal import show_result
from velocirl.bench.results import Measured, Result
from velocirl.bench.units import SECONDS, STEPS


def result(*speeds, unit=STEPS):
    """A serial contestant, and so many threads as the place of a speed says, doubling."""
    rounds = np.linspace(0.9, 1.1, 5)
    contestants = [Measured("serial", tuple(90.0 * rounds), 1)]
    for power, speed in enumerate(speeds):
        name = scaling.named(1 << power, "thread")
        contestants.append(Measured(name, tuple(speed * rounds), 1, workers=1 << power))
    return Result("threads", "scaling", "Threads.", "", unit, tuple(contestants), (), 1.0)


@pytest.mark.parametrize(
    ("cores", "expected"), [(1, [1, 2]), (2, [1, 2]), (6, [1, 2, 4, 6]), (16, [1, 2, 4, 8, 16])], ids=str
)
def test_numbers_of_workers(monkeypatch, cores, expected):
    monkeypatch.setattr(scaling, "available_cores", lambda: cores)
    assert scaling.worker_counts() == expected
    comparison = scaling.scaling("process", lambda count: count, at_least=1.6)
    assert list(comparison.contestants)[:2] == ["1 process", "2 processes"]
    assert [make() for make in comparison.contestants.values()] == expected
    assert list(comparison.workers.values()) == expected
    assert [(claim.to, claim.at_least) for claim in comparison.claims] == [
        ("1 process", 1.6 if count == 2 else None) for count in expected[1:]
    ]


def test_another_contestant_beside_them_has_the_target(monkeypatch):
    monkeypatch.setattr(scaling, "available_cores", lambda: 4)
    comparison = scaling.scaling("thread", lambda count: count, at_least=1.5, beside={"serial": lambda: 0})
    assert list(comparison.contestants) == ["serial", "1 thread", "2 threads", "4 threads"]
    assert "serial" not in comparison.workers
    assert [(claim.of, claim.to, claim.at_least) for claim in comparison.claims] == [
        ("2 threads", "serial", 1.5), ("2 threads", "1 thread", None), ("4 threads", "1 thread", None)
    ]  # fmt: skip


def test_efficiency_is_the_speed_over_n_times_the_speed_of_one():
    found = result(100.0, 180.0, 240.0)
    serial, *threads = (scaling.efficiency(found, one) for one in found.contestants)
    assert serial is None
    assert [one.median for one in threads] == pytest.approx([1.0, 0.9, 0.6])
    seconds = result(1.0, 0.625, unit=SECONDS)  # half of the time would be all of it
    assert scaling.efficiency(seconds, seconds.contestants[2]).median == pytest.approx(0.8)


def test_reports_have_a_column_of_efficiencies():
    report = report_of(result(100.0, 180.0, 240.0))
    assert "| 4 threads | 240 steps/s | 216 to 264 | 10.0% | 5 x 1 calls | 60% |" in section(report)
    page = detail_section(report)
    assert "efficiency" in page
    assert "60%" in page
    console = Console(width=120, record=True, file=io.StringIO())
    show_result(console, report.results[0])
    shown = console.export_text()
    assert "efficiency" in shown
    assert [line.split()[-1] for line in shown.splitlines() if " threads " in line] == ["90%", "60%"]


def test_reports_have_no_such_column_where_nothing_scales():
    report = report_of(result())
    assert "efficiency" not in section(report)
    assert "efficiency" not in detail_section(report)
