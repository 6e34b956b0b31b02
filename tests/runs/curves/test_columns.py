"""Figures as arrays: what a run says, with NaN where it says nothing, and the time across interruptions."""

import sys
from types import ModuleType

import numpy as np
import pytest

import velocirl
from velocirl.runs.curves.columns import clock, column, names_of
from velocirl.runs.directory import RunNotFoundError, create_run
from velocirl.runs.metrics import STEP, DamagedMetricsError

ROWS = [
    {STEP: 100, "rollout/ep_rew_mean": None, "time/time_elapsed": 1.0},
    {STEP: 200, "rollout/ep_rew_mean": 5.0, "time/time_elapsed": 3.0, "eval/mean_reward": 7.0},
    {STEP: 300, "rollout/ep_rew_mean": 6.0, "time/time_elapsed": 0.5},  # resumed
    {STEP: 400, "rollout/ep_rew_mean": 8.0, "time/time_elapsed": 2.0},
]


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("VELOCIRL_HOME", str(tmp_path / "home"))
    run = create_run(tmp_path / "mine", "CartPole-v1", "ppo", {}, 0)
    with run.metrics() as log:
        for row in ROWS:
            log.append(row)
    return run


def test_a_missing_figure_is_nan():
    assert names_of(ROWS) == [STEP, "rollout/ep_rew_mean", "time/time_elapsed", "eval/mean_reward"]
    np.testing.assert_array_equal(column(ROWS, "rollout/ep_rew_mean"), [np.nan, 5.0, 6.0, 8.0])
    np.testing.assert_array_equal(column(ROWS, "eval/mean_reward"), [np.nan, 7.0, np.nan, np.nan])
    assert column([], STEP).shape == (0,)


def test_the_clock_goes_on_where_a_run_was_resumed():
    assert clock(ROWS).tolist() == [1.0, 3.0, 3.5, 5.0]
    assert clock([]).tolist() == []


def test_the_figures_of_a_run_by_whatever_names_it(run):
    for given in (run, run.path, str(run.path), "mine", "mi", run.metrics_path):
        found = velocirl.read_metrics(given)
        assert list(found) == names_of(ROWS)
        np.testing.assert_array_equal(found[STEP], [100, 200, 300, 400])
        np.testing.assert_array_equal(found["eval/mean_reward"], [np.nan, 7.0, np.nan, np.nan])
        assert all(one.dtype == np.float64 and len(one) == 4 for one in found.values())


def test_what_is_no_run_is_said(run, tmp_path):
    with pytest.raises(RunNotFoundError, match="there is no run 'yours'"):
        velocirl.read_metrics("yours")
    run.metrics_path.write_text("nonsense\n")
    with pytest.raises(DamagedMetricsError, match="line 1"):
        velocirl.read_metrics(run)


def test_a_frame_is_made_where_pandas_is_installed_and_somebody_asks(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert isinstance(velocirl.read_metrics(run), dict)
    with pytest.raises(ValueError, match="frame=True needs pandas: pip install pandas"):
        velocirl.read_metrics(run, frame=True)
    pandas = ModuleType("pandas")
    pandas.DataFrame = lambda columns: ("frame", list(columns))
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    assert velocirl.read_metrics(run, frame=True) == ("frame", names_of(ROWS))
