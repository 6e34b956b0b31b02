"""Runs side by side: the interquartile mean and its interval against oracles, and lines told apart."""

import numpy as np
import pytest
from scipy import stats

from velocirl.runs.curves.comparing import (
    Subject,
    bootstrap,
    curve_of,
    find_subjects,
    interquartile_mean,
    known_metrics,
    plot_of,
)
from velocirl.runs.directory import Plan, create_run
from velocirl.runs.groups import create_group
from velocirl.runs.metrics import STEP
from velocirl.runs.seeds import SeedResult

RETURN, LOSS, EVALUATION = "rollout/ep_rew_mean", "train/loss", "eval/mean_reward"


def rows(values, metric=RETURN, every=100):
    return [{STEP: every * (n + 1), "time/time_elapsed": 0.5 * (n + 1), metric: one} for n, one in enumerate(values)]


def subject(*seeds, status="finished", name="mine"):
    results = [SeedResult(n, status, one) for n, one in enumerate(seeds)]
    return Subject(name, "ppo", "CartPole-v1", "/mine", results)


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("VELOCIRL_HOME", str(tmp_path / "home"))

    def make(path, environment="CartPole-v1", algorithm="ppo", seed=0, values=(1.0, 2.0)):
        run = create_run(tmp_path / path, environment, algorithm, {}, seed)
        with run.metrics() as log:
            for row in rows(values):
                log.append(row)
        return str(run.path)

    return make


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 8, 20])
def test_the_interquartile_mean_is_that_of_the_middle_half(count):
    values = np.random.default_rng(count).normal(size=(count, 6))
    np.testing.assert_allclose(interquartile_mean(values), stats.trim_mean(values, 0.25))
    np.testing.assert_allclose(interquartile_mean(values.T, 1), stats.trim_mean(values, 0.25))


def test_one_broken_seed_of_eight_hardly_moves_it():
    values = np.full((8, 1), 100.0)
    values[3] = -1e6
    assert interquartile_mean(values) == 100.0


def test_the_interval_is_that_of_seeds_drawn_anew(monkeypatch):
    values = np.random.default_rng(0).normal(size=(9, 3))
    low, high = bootstrap(values)
    drawn = np.random.default_rng(1)
    means = [stats.trim_mean(values[drawn.integers(0, 9, 9)], 0.25) for _ in range(1500)]
    np.testing.assert_allclose(low, np.percentile(means, 2.5, axis=0), atol=0.08)
    np.testing.assert_allclose(high, np.percentile(means, 97.5, axis=0), atol=0.08)
    monkeypatch.setattr("velocirl.runs.curves.comparing.AT_A_TIME", 1)  # one point at a time: the same
    np.testing.assert_array_equal(bootstrap(values), (low, high))


def test_the_interval_holds_what_it_should_about_as_often_as_it_should():
    drawn = np.random.default_rng(5)
    low, high = bootstrap(drawn.normal(size=(10, 400)))  # 400 experiments of ten seeds, whose truth is 0
    assert 0.84 < np.mean((low < 0.0) & (high > 0.0)) < 0.98


def test_a_single_seed_is_its_own_curve():
    found = curve_of(subject(rows([1.0, None, 3.0])), RETURN)
    assert (found.x.tolist(), found.y.tolist()) == ([100.0, 300.0], [1.0, 3.0])
    assert (found.low, found.high, found.seeds) == (None, None, 1)


def test_seeds_are_compared_over_what_all_have_passed():
    found = curve_of(subject(rows([0.0, 2.0, 4.0]), rows([2.0, 4.0]), rows([4.0, 6.0, 8.0, 10.0])), RETURN)
    assert found.x.tolist() == [100.0, 200.0]
    np.testing.assert_allclose(found.y, [2.0, 4.0])
    assert (found.low <= found.y).all()
    assert (found.y <= found.high).all()
    assert found.seeds == 3


def test_a_seed_that_failed_is_left_out_where_there_are_others():
    good, bad = subject(rows([1.0, 2.0])).results[0], SeedResult(9, "failed", rows([50.0]))
    assert curve_of(Subject("a", "", "", "", [good, bad]), RETURN).y.tolist() == [1.0, 2.0]
    assert curve_of(Subject("a", "", "", "", [bad]), RETURN).y.tolist() == [50.0]


def test_along_time_and_smoothed():
    timed = curve_of(subject(rows([1.0, 3.0, 5.0, 7.0])), RETURN, "time", smooth=2)
    assert (timed.x.tolist(), timed.y.tolist()) == ([0.5, 1.0, 1.5, 2.0], [1.0, 2.0, 4.0, 6.0])
    assert curve_of(subject(rows([1.0, 3.0])), RETURN, smooth=99).y.tolist() == [1.0, 2.0]


def test_evaluations_stand_beside_the_return_and_nothing_else():
    one = subject([*rows([1.0, 2.0]), *rows([None, None, 9.0], EVALUATION)])
    (line,) = plot_of([one], RETURN).lines
    assert line.evaluation.y.tolist() == [9.0]
    (line,) = plot_of([subject([*rows([1.0], LOSS), *rows([None, 2.0], EVALUATION)])], LOSS).lines
    assert line.evaluation is None
    assert plot_of([subject(rows([None]))], RETURN).lines == []


def test_names_that_repeat_are_told_apart(place):
    first = [place("a/run"), place("b/run", algorithm="dqn")]
    assert [one.name for one in find_subjects(first)] == ["ppo CartPole-v1", "dqn CartPole-v1"]
    same = [place("c/other", seed=1), place("d/other", seed=2)]
    assert [one.name for one in find_subjects(same)] == same
    assert [one.name for one in find_subjects([first[0], same[0], same[0]])] == ["run", "other"]


def test_runs_are_put_together_as_seeds_of_one(place):
    names = [place(f"seed{n}", seed=n, values=(n, 2.0 * n)) for n in range(3)] + [place("dqn", algorithm="dqn")]
    together = find_subjects(names, together=True)
    assert [(one.name, len(one.results)) for one in together] == [("ppo CartPole-v1", 3), ("dqn CartPole-v1", 1)]
    curve = curve_of(together[0], RETURN)
    assert (curve.seeds, curve.y.tolist()) == (3, [1.0, 2.0])


def test_a_group_is_one_line(place, tmp_path):
    plan = Plan(total_steps=1000, checkpoint_every=100)
    group = create_group(tmp_path / "group", "CartPole-v1", "ppo", [3, 4], {}, plan)
    for seed in (3, 4):
        place(f"group/seed-{seed}", seed=seed, values=(seed, 10.0 * seed))
    (one,) = find_subjects([str(group.path)])
    assert (one.name, [result.seed for result in one.results]) == ("group", [3, 4])
    assert curve_of(one, RETURN).y.tolist() == [3.5, 35.0]
    assert plot_of([one], RETURN).title == "CartPole-v1  ppo"
    assert known_metrics([one]) == [STEP, "time/time_elapsed", RETURN]
