"""Many seeds together: means, intervals and curves as by hand, and groups that nothing is written over."""

import json
import math

import numpy as np
import pytest
from scipy import stats

from velocirl.runs.directory import (
    DamagedRunError,
    Plan,
    RunBusyError,
    RunExistsError,
    RunNotFoundError,
    create_run,
    open_run,
)
from velocirl.runs.finding import find
from velocirl.runs.groups import create_group, find_group, is_group, open_group, status_of
from velocirl.runs.placement import place_run
from velocirl.runs.seeds import SeedResult, aggregate, summarise

STEP, RETURN, ELAPSED = "time/total_timesteps", "rollout/ep_rew_mean", "time/time_elapsed"
PLAN = Plan(total_steps=400, checkpoint_every=100)


def rows(*points):
    return [{STEP: step, RETURN: mean, ELAPSED: step / 100} for step, mean in points]


@pytest.fixture
def group(tmp_path, monkeypatch):
    monkeypatch.setenv("VELOCIRL_HOME", str(tmp_path / "home"))
    return create_group(tmp_path / "group", "CartPole-v1", "ppo", [3, 4, 5], {"gamma": 0.9, "seed": 3}, PLAN)


def add_run(group, seed, points, status):
    run = create_run(group.run_path(seed), "CartPole-v1", "ppo", {}, seed)
    with run.metrics() as log:
        for row in rows(*points):
            log.append(row)
    run.set_status(status)
    return run


def test_a_summary_is_the_mean_of_what_did_not_fail_and_how_sure_it_is():
    results = [
        SeedResult(1, "finished", rows((100, None), (200, 10.0), (300, None))),
        SeedResult(2, "stopped", rows((200, 20.0))),
        SeedResult(3, "finished", rows((100, 5.0), (400, 36.0))),
        SeedResult(4, "failed", rows((100, 1000.0)), "unlucky"),
        SeedResult(5, "waiting", ()),
    ]
    found = summarise("CartPole-v1", "ppo", results, 10.0)
    low, high = stats.t.interval(0.95, 2, 22.0, stats.sem([10.0, 20.0, 36.0]))
    assert (found.averaged, found.mean) == (3, pytest.approx(22.0))
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))
    assert [(one.seed, one.steps, one.final_return) for one in found.seeds] == [
        (1, 300, 10.0), (2, 200, 20.0), (3, 400, 36.0), (4, 100, 1000.0), (5, 0, None),
    ]  # fmt: skip
    assert found.seeds[3].error == "unlucky"
    assert (found.steps, found.seconds, found.steps_per_second) == (1000, 10.0, 100.0)


def test_of_one_seed_or_none_nobody_knows_how_sure_it_is():
    one = summarise("", "", [SeedResult(1, "finished", rows((100, 7.0)))], 1.0)
    assert (one.averaged, one.mean, one.low, one.high) == (1, 7.0, None, None)
    none = summarise("", "", [SeedResult(1, "waiting", ())], 1.0)
    assert (none.averaged, none.mean, none.low, none.steps_per_second) == (0, None, None, 0.0)


def test_the_seconds_of_a_run_that_was_resumed_are_those_of_all_its_parts():
    times = [1.0, 2.0, 0.5, 1.5]  # the clock begins anew with the third row
    result = SeedResult(1, "finished", [{STEP: step, ELAPSED: time} for step, time in enumerate(times)])
    assert result.seconds == pytest.approx(3.5)
    assert summarise("", "", [result], 0.0).seconds == 3.5


def test_the_mean_curve_is_interpolated_to_common_steps():
    results = [
        SeedResult(1, "finished", rows((100, 0.0), (300, 20.0), (500, 40.0))),
        SeedResult(2, "finished", rows((100, None), (200, 30.0), (400, 50.0))),
        SeedResult(3, "failed", rows((100, -1e6))),
        SeedResult(4, "waiting", ()),
    ]
    found = aggregate(results)
    assert found.count == 2
    assert found.steps.tolist() == [200, 300, 400]  # where both have been
    assert found.mean.tolist() == [20.0, 30.0, 40.0]
    reach = stats.t.ppf(0.975, 1) * np.std([10.0, 30.0], ddof=1) / math.sqrt(2)
    np.testing.assert_allclose(found.high - found.mean, reach)
    np.testing.assert_allclose(found.mean - found.low, reach)


def test_long_curves_are_thinned_and_keep_their_ends():
    points = [(step, float(step)) for step in range(5000)]
    found = aggregate([SeedResult(seed, "finished", rows(*points)) for seed in (1, 2)])
    assert len(found.steps) == 1000
    assert (found.steps[0], found.steps[-1]) == (0, 4999)
    np.testing.assert_allclose(found.mean, found.steps)
    np.testing.assert_allclose(found.high, found.low)


@pytest.mark.parametrize("results", [[], [SeedResult(1, "waiting", ())], [SeedResult(1, "running", rows((1, None)))]])
def test_without_returns_there_is_no_curve(results):
    assert aggregate(results) is None


def test_seeds_that_have_no_steps_in_common_have_no_mean_curve():
    early, late = rows((100, 1.0), (200, 1.0)), rows((300, 1.0), (400, 1.0))
    assert aggregate([SeedResult(1, "stopped", early), SeedResult(2, "stopped", late)]) is None


def test_a_group_is_found_again_and_says_how_its_seeds_stand(group, tmp_path):
    add_run(group, 3, [(100, 1.0), (400, 30.0)], "finished")
    add_run(group, 4, [(100, 2.0)], "running")  # which no process holds
    again = open_group(tmp_path / "group")
    assert again.description == group.description
    assert again.description.config == {"gamma": 0.9}
    results = again.results({5: "it never began"})
    assert [(one.seed, one.status, one.steps) for one in results] == [
        (3, "finished", 400), (4, "interrupted", 100), (5, "failed", 0),
    ]  # fmt: skip
    assert status_of(results) == "failed"
    assert status_of(again.results()) == "interrupted"
    assert status_of(results[:1]) == "finished"
    assert [find_group(name).path for name in ("group", "gro", str(tmp_path / "group"))] == [group.path] * 3
    assert find_group("nothing") is None
    assert not is_group(tmp_path)


def test_a_name_that_several_groups_and_runs_begin_with_is_an_error_that_lists_them(tmp_path, monkeypatch):
    monkeypatch.setenv("VELOCIRL_HOME", str(tmp_path))
    common = {"environment": "CartPole-v1", "algorithm": "ppo", "config": {}}
    groups = [create_group(None, seeds=seeds, plan=PLAN, **common)
              for seeds in (range(2), range(4))]  # fmt: skip
    with pytest.raises(RunNotFoundError) as raised:
        find("CartPole-v1-ppo-s")
    assert str(raised.value).startswith(
        "'CartPole-v1-ppo-s' matches 2 runs, give more of the name: CartPole-v1-ppo-see"
    )
    assert all(group.name in str(raised.value) for group in groups)
    run = create_run(None, seed=1, **common)
    with pytest.raises(RunNotFoundError, match="'Cart' matches 3 runs") as raised:
        find("Cart")
    assert run.name in str(raised.value)
    assert find(groups[1].name).path == groups[1].path
    assert find("CartPole-v1-ppo-seeds-0-3").path == groups[1].path
    assert find(run.name).path == run.path


def test_what_a_group_publishes_is_what_its_runs_say(group):
    for seed, mean in zip((3, 4, 5), (10.0, 20.0, 30.0), strict=True):
        add_run(group, seed, [(100, 1.0), (400, mean)], "finished")
    assert group.summary() is None
    summary = group.publish(12.0)
    assert group.summary() == summary
    written = json.loads((group.path / "summary.json").read_text())
    assert (written["mean"], written["method"], written["confidence"]) == (20.0, "Student t over seeds", 0.95)
    assert written["seeds"][1] == {
        "seed": 4, "status": "finished", "steps": 400, "return": 20.0, "seconds": 4.0, "error": "",
    }  # fmt: skip
    assert (written["steps"], written["steps_per_second"]) == (1200, 100.0)
    assert group.curve_path.read_bytes().startswith(b"\x89PNG")


def test_nothing_that_exists_is_written_over(group, tmp_path):
    with pytest.raises(RunExistsError, match="is a group of runs already: go on with it by `velocirl resume"):
        create_group(tmp_path / "group", "CartPole-v1", "ppo", [1], {}, PLAN)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(RunExistsError, match="not an empty directory"):
        create_group(tmp_path / "full", "CartPole-v1", "ppo", [1], {}, PLAN)
    with pytest.raises(ValueError, match="none of them twice"):
        create_group(tmp_path / "new", "CartPole-v1", "ppo", [1, 1], {}, PLAN)
    assert not (tmp_path / "new").exists()


def test_a_group_may_be_overwritten_unless_it_has_what_is_not_velocirls(group, tmp_path):
    where = tmp_path / "group"
    for seed in (3, 4, 5):
        add_run(group, seed, [(100, 1.0), (400, 2.0)], "finished")
    group.publish(1.0)
    assert place_run(where, "next", told=lambda *_: None) == tmp_path / "group-2"
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "step_000000000001.safetensors").touch()
    stranger = where / "seed-4" / "checkpoints"
    stranger.symlink_to(tmp_path / "outside")
    before = sorted(where.rglob("*"))
    with pytest.raises(RunExistsError, match=r"seed-4/checkpoints was not written by velocirl"):
        place_run(where, "overwrite", told=lambda *_: None)
    assert sorted(where.rglob("*")) == before
    stranger.unlink()
    with group.hold(), pytest.raises(RunBusyError):
        place_run(where, "overwrite", told=lambda *_: None)
    with open_run(where / "seed-3").hold(), pytest.raises(RunBusyError):
        place_run(where, "overwrite", told=lambda *_: None)
    assert place_run(where, "overwrite", told=lambda *_: None) == where
    assert list(where.iterdir()) == []
    assert list((tmp_path / "outside").iterdir()) != []
    create_group(where, "CartPole-v1", "ppo", [1], {}, PLAN)


def test_a_damaged_run_is_not_overwritten(tmp_path):
    run = create_run(tmp_path / "run", "CartPole-v1", "ppo", {}, 1, plan=PLAN)
    (run.path / "run.json").write_text('{"name": "my own"}')
    with pytest.raises(DamagedRunError, match="does not describe a run"):
        place_run(run.path, "overwrite", told=lambda *_: None)
    assert (run.path / "run.json").read_text() == '{"name": "my own"}'


def test_a_new_group_has_a_name_and_one_process(group):
    named = create_group(None, "CartPole-v1", "ppo", [7, 8], {}, PLAN)
    assert named.name.startswith("CartPole-v1-ppo-seeds-7-8-")
    with (
        named.hold(),
        pytest.raises(RunBusyError, match="is running in another process"),
        open_group(named.path).hold(),
    ):
        pass


def test_a_damaged_group_says_which_file(group):
    (group.path / "group.json").write_text("{}")
    with pytest.raises(DamagedRunError, match=r"group.json does not describe a group of runs"):
        open_group(group.path)
