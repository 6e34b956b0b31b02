"""Trends: the figures of a history, and the changes of their level with the commits that they began with."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from past_runs import HERE, PEER, commit, planted_report, planted_result, planted_series, stepping

from velocirl.bench.history.change_points import FEWEST_RUNS
from velocirl.bench.history.rows import identity_of, points_of
from velocirl.bench.history.runs import History
from velocirl.bench.history.trends import trend
from velocirl.bench.units import BYTES, SECONDS

MACHINE = identity_of(HERE)


def history(reports):
    """The history of reports, as it is once they were added."""
    return History(Path("history.sqlite"), map(points_of, reports))


def test_a_change_begins_with_the_commit_of_its_first_run():
    found = trend(history(planted_series(stepping(24, 14, 0.8))), "steps", machine=MACHINE)
    (change,) = found.changes
    assert change.place == 14
    assert (change.began, change.before) == (commit(14), commit(13))
    assert change.started == found.points[14].run.started
    assert change.ratio.low <= change.ratio.median <= change.ratio.high
    assert change.ratio.median == pytest.approx(0.8, rel=0.02)
    assert change.worse
    assert (found.benchmark, found.contestant, found.category, found.peer) == (
        "steps",
        "velocirl",
        "environment",
        False,
    )
    assert (found.note, found.relative, len(found.points)) == ("", True, 24)


def test_of_a_time_less_is_better():
    reports = planted_series([median * 1e-9 for median in stepping(24, 14, 0.8)], unit=SECONDS)
    (change,) = trend(history(reports), "steps", machine=MACHINE).changes
    assert change.ratio.median == pytest.approx(1.25, rel=0.02)
    assert not change.worse


@pytest.mark.parametrize(("unit", "relative"), [(SECONDS, True), (BYTES, False)])
def test_a_machine_that_became_slower_is_no_change_of_times(unit, relative):
    """The fixed work became slower too; for memory that says nothing."""
    slower = stepping(24, 14, 1.3)
    reports = [
        planted_report(number, [planted_result(median=median, unit=unit, reference=1e-8 * median)])
        for number, median in enumerate(slower)
    ]
    found = trend(history(reports), "steps", machine=MACHINE)
    assert found.relative == relative
    assert [change.place for change in found.changes] == ([] if relative else [14])


def test_fixed_work_that_is_far_noisier_is_not_used():
    noise = np.random.default_rng(1).normal(0.0, 0.2, 24)
    reports = [
        planted_report(number, [planted_result(median=median, reference=float(0.005 * np.exp(noise[number])))])
        for number, median in enumerate(stepping(24, 14, 0.9))
    ]
    found = trend(history(reports), "steps", machine=MACHINE)
    assert not found.relative
    assert [change.place for change in found.changes] == [14]


def test_without_fixed_work_in_some_runs_the_figures_themselves_are_compared():
    reports = planted_series(stepping(24, 14, 0.9))
    reports[3] = planted_report(3, [planted_result(median=1e6, reference=None)])
    found = trend(history(reports), "steps", machine=MACHINE)
    assert not found.relative
    assert [change.place for change in found.changes] == [14]


def test_new_versions_are_named():
    reports = planted_series(stepping(24, 14, 0.8))
    newer = replace(HERE, versions={"python": "3.11.7", "numba": "0.62.1", "numpy": "2.4.6"})
    reports[14:] = [replace(one, machine=replace(newer, commit=commit(13))) for one in reports[14:]]
    (change,) = trend(history(reports), "steps", machine=MACHINE).changes
    assert change.versions == ("numba 0.61.0 to 0.62.1", "numpy not there to 2.4.6")
    assert change.began == change.before == commit(13)


def test_the_last_runs_and_the_changes_among_them():
    kept = history(planted_series(stepping(24, 14, 0.8)))
    cut = trend(kept, "steps", machine=MACHINE, last=12)
    assert len(cut.points) == 12
    assert [change.place for change in cut.changes] == [2]
    assert cut.points[2].run.commit == commit(14)
    assert trend(kept, "steps", machine=MACHINE, last=5).changes == ()
    assert len(trend(kept, "steps", machine=MACHINE, last=500).points) == 24


def test_too_few_runs():
    few = trend(history(planted_series(stepping(FEWEST_RUNS - 1, 5, 0.5))), "steps", machine=MACHINE)
    assert few.changes == ()
    assert few.note == f"too few runs to find changes: {FEWEST_RUNS - 1}, and {FEWEST_RUNS} are needed"


def test_figures_without_ratios():
    found = trend(history(planted_series([0.0, 1.0, 2.0, -3.0] * 4, unit=BYTES)), "steps", machine=MACHINE)
    assert (found.changes, found.note) == ((), "changes are ratios, and not all figures are above 0")


def test_a_peer_has_a_trend_of_its_own():
    found = trend(history(planted_series(stepping(24, 14, 0.8))), "steps", PEER, machine=MACHINE)
    assert found.peer
    assert found.changes == ()
    assert {point.median for point in found.points} == {1.1e4}
