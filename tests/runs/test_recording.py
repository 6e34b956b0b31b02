"""What a run leaves on the disk: decided by steps, so that a run that was killed and resumed leaves the same."""

import errno
from collections import deque
from types import SimpleNamespace

import numpy as np
import pytest

from velocirl.runs import recording
from velocirl.runs.callback import Callback
from velocirl.runs.directory import create_run, open_run
from velocirl.runs.metrics import STEP
from velocirl.runs.model_score import ModelScore, limited_cost
from velocirl.runs.models import model_of
from velocirl.runs.recording import MOST_ROWS, RecordingError, RunPublisher, RunRecorder
from velocirl.runs.state_file import State
from velocirl.training.persistence import Goal


class FakeAgent:
    """Trains nothing: its state and its figures follow from its steps."""

    name = "fake"
    source = SimpleNamespace(id="Fake-v0")

    def __init__(self, total, per_iteration=100, curve=lambda steps: float(steps), steps=0):
        self.goal = Goal(0, total)
        self.per_iteration, self.curve = per_iteration, curve
        self.steps, self.iterations = steps, steps // per_iteration
        self.metrics = {}
        self.stopping = None
        self.recent = SimpleNamespace(returns=deque(maxlen=100))
        self.limits, self.costs = {}, lambda steps: ()  # by which `limited_costs` are judged

    def model_score(self, metric):
        return ModelScore(metric, self.metrics[metric], self.limited_costs())

    def judged_afresh(self, score):
        return score

    def limited_costs(self):
        return tuple(limited_cost("cost", self.limits["cost"], self.costs(self.steps), 10.0) for _ in self.limits)

    @property
    def finished(self):
        return self.steps >= self.goal.stop

    def state(self, *, live=False):
        return State({"weights": np.full(4, self.steps, np.float32)}, {"steps": self.steps})

    def run(self, callbacks, until=None, stopping=None, evaluate_at=()):
        """Train as `Agent.learn` does; stop dead at `until`, unless a reason is given for which to stop properly."""
        for callback in callbacks:
            callback.start(self)
        while not self.finished and (until is None or self.steps < until):
            self.steps += self.per_iteration
            self.iterations += 1
            self.metrics = {STEP: self.steps, "rollout/ep_rew_mean": self.curve(self.steps)}
            if self.steps in evaluate_at:
                self.metrics["eval/mean_reward"] = self.curve(self.steps)
            for callback in callbacks:
                callback.step(self)
        if self.finished or stopping:
            self.stopping = stopping
            for callback in callbacks:
                callback.finish(self)


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("VELOCIRL_HOME", str(tmp_path / "home"))
    return create_run(tmp_path / "run", "Fake-v0", "fake", {}, 0)


def steps_of(run):
    return [row[STEP] for row in run.rows()]


def test_every_iteration_of_a_short_run_has_a_row(run):
    FakeAgent(1000).run([RunRecorder(run, 300)])
    assert steps_of(run) == list(range(100, 1001, 100))
    assert [row["rollout/ep_rew_mean"] for row in run.rows()] == steps_of(run)


def test_a_long_run_has_at_most_so_many_rows_and_the_first_and_the_last(run):
    FakeAgent(10_001 * 100).run([RunRecorder(run, 10**6)])
    steps = steps_of(run)
    assert MOST_ROWS * 0.9 < len(steps) <= MOST_ROWS + 1
    assert (steps[0], steps[-1]) == (100, 1_000_100)
    assert len(set(steps)) == len(steps)


@pytest.mark.parametrize("killed_at", [50, 59_950, 60_000, 123_400, 299_950])
@pytest.mark.parametrize("stopping", [None, "SIGTERM"])
def test_a_resumed_run_has_the_rows_of_one_that_was_never_stopped(run, tmp_path, killed_at, stopping):
    def train(run, steps=0, **given):
        agent, recorder = FakeAgent(300_000, per_iteration=50, steps=steps), RunRecorder(run, 30_000, evaluated=True)
        agent.run([recorder], evaluate_at=range(50_000, 300_000, 50_000), **given)

    whole = create_run(tmp_path / "whole", "Fake-v0", "fake", {}, 0)
    train(whole)
    train(run, until=killed_at, stopping=stopping)
    saved = max(run.checkpoints().steps(), default=0)
    assert saved == (killed_at if stopping else killed_at - killed_at % 30_000)
    train(open_run(run.path), steps=saved)
    assert run.rows() == whole.rows()
    assert MOST_ROWS * 0.9 < len(run.rows()) < 6000
    assert max(run.checkpoints().steps()) == max(whole.checkpoints().steps()) == 300_000
    assert run.checkpoints().best().document == whole.checkpoints().best().document


def test_checkpoints_come_every_so_many_steps_and_at_the_end(run, monkeypatch):
    saved = []
    recorder = RunRecorder(run, 250)
    save = recorder._checkpoints.save
    monkeypatch.setattr(recorder._checkpoints, "save", lambda step, *rest: (saved.append(step), save(step, *rest)))
    FakeAgent(1100).run([recorder])
    assert saved == [300, 500, 800, 1000, 1100]
    latest = run.checkpoints().latest()
    assert latest.step == latest.state.arrays["weights"][0] == 1100
    assert open_run(run.path).description.status == "finished"


def test_a_directory_that_was_moved_away_is_not_made_anew(run, tmp_path):
    class Mover(Callback):
        def step(self, agent):
            if agent.steps == 500:
                run.path.rename(tmp_path / "elsewhere")

    with pytest.raises(
        RecordingError, match=r"cannot be saved at step 600: its directory \S+ is gone.*velocirl resume"
    ):
        FakeAgent(1000).run([RunRecorder(run, 300), Mover()])
    assert not run.path.exists()
    moved = open_run(tmp_path / "elsewhere")
    assert moved.checkpoints().latest().step == 300
    FakeAgent(1000, steps=300).run([RunRecorder(moved, 300)])
    assert steps_of(moved) == list(range(100, 1001, 100))


def test_the_best_is_that_of_the_best_checkpoint(run):
    FakeAgent(1000, curve=lambda steps: -abs(steps - 600.0)).run([RunRecorder(run, 200)])
    best = run.checkpoints().best()
    assert best.document == {"steps": 600, "best": {"metric": "rollout/ep_rew_mean", "score": 0.0}}
    assert best.arrays["weights"][0] == 600


def test_where_there_are_evaluations_only_they_count(run):
    agent = FakeAgent(1000, curve=lambda steps: -abs(steps - 600.0))
    agent.run([RunRecorder(run, 200, evaluated=True)], evaluate_at=(300, 700, 900))
    assert run.checkpoints().best().document == {"steps": 700, "best": {"metric": "eval/mean_reward", "score": -100.0}}


def around(mean):
    """Costs of 100 episodes with a mean, half of them twice as much: the upper end is about a fifth above it."""
    return [0.5 * mean, 1.5 * mean] * 50


def best_of(run, costs, curve=lambda steps: float(steps), steps=0, until=None):
    agent = FakeAgent(1000, curve=curve, steps=steps)
    agent.limits, agent.costs = {"cost": 25.0}, costs
    agent.run([RunRecorder(run, 500)], until)
    document = run.checkpoints().best().document
    return document["steps"], ModelScore.read(document["best"])


def test_the_best_within_its_limits_has_the_best_return_of_those_whose_cost_surely_is(run):
    """The cost rises with the return; it is within the limit by the upper end of its interval until step 600."""
    steps, score = best_of(run, lambda steps: around(steps / 30))
    assert (steps, score.within, score.value) == (600, True, 600.0)
    assert 20.0 == score.costs[0].mean < score.costs[0].high < 25.0
    state, words = model_of(run)
    assert state.document["steps"] == 600
    assert words.startswith("the best model of run (within its limits: cost 20, at most 2")
    assert words.endswith("with 95% confidence (100 episodes), limit 25), of step 600")


def test_where_none_is_within_its_limits_it_is_the_one_that_exceeds_them_least(run):
    steps, score = best_of(run, lambda steps: around(24.0 + abs(steps - 300)))
    assert (steps, score.within) == (300, False)
    assert model_of(run)[1].startswith("the best model of run (not shown to keep its limits: cost 24, at most")
    assert model_of(run)[1].endswith("limit 25, which exceeds them least), of step 300")


def test_a_resumed_run_looks_on_for_the_best_within_its_limits(run):
    best_of(run, lambda steps: around(1000 - steps), until=500)
    steps, score = best_of(run, lambda steps: around(1000 - steps), steps=500)
    assert (steps, score.costs[0].mean) == (1000, 0.0)


def test_costs_that_nobody_has_seen_are_not_taken_for_none():
    """With no cost in 100 episodes of 360 steps, up to 4.3% of episodes may cost up to 360."""
    none = limited_cost("cost", 5.0, np.zeros(100), 360.0)
    assert (none.mean, round(none.high, 1)) == (0.0, 15.4)
    assert not ModelScore("m", 1.0, (none,)).within
    assert ModelScore("m", 1.0, (limited_cost("cost", 25.0, np.zeros(100), 360.0),)).within
    broken = limited_cost("cost", 25.0, [0.0, np.nan, np.inf], 360.0)
    assert broken.mean > 1e30
    assert str(ModelScore("m", 1.0, (broken,))).startswith("over its limits: cost 2.269e+38")
    assert ModelScore("m", 1.0).beats(ModelScore("m", 0.0))
    assert ModelScore.read({"metric": "m", "score": "much"}) is None
    assert ModelScore.read(ModelScore("m", 1.0, (none,)).document()) == ModelScore("m", 1.0, (none,))
    kept = limited_cost("cost", 25.0, np.full(100, 20.0), 360.0)
    afresh = ModelScore("m", 1.0, (kept,), (broken,))  # chosen within its limits, which other episodes do not confirm
    assert ModelScore.read(afresh.document()) == afresh
    assert (afresh.within, afresh.excess, afresh.beats(ModelScore("m", 2.0, (broken,)))) == (False, 0.0, True)
    assert str(afresh).startswith("over its limits: cost 2.269e+38")


def test_a_resumed_run_keeps_a_best_that_it_does_not_beat(run):
    curve = {100: 1.0, 200: 9.0, 300: 5.0, 400: 8.0}.get
    FakeAgent(400, curve=curve).run([RunRecorder(run, 100)], until=200, stopping="SIGINT")
    FakeAgent(400, curve=curve, steps=200).run([RunRecorder(open_run(run.path), 100)])
    assert run.checkpoints().best().document["steps"] == 200


@pytest.mark.parametrize(
    ("stopping", "status", "rows"),
    [("SIGTERM", "stopped", [10_000]), ("SIGINT", "stopped", [10_000]), ("solved", "finished", [10_000, 1_010_000])],
)
def test_how_it_ended_is_written_down(run, stopping, status, rows):
    # Each row stands for 200 iterations, so the one at which it ends is between two of them.
    agent = FakeAgent(4_000_000_000, per_iteration=10_000)
    agent.run([RunRecorder(run, 10**7)], until=1_010_000, stopping=stopping)
    assert steps_of(run) == rows
    assert open_run(run.path).description.status == status
    assert list(run.checkpoints().steps()) == [1_010_000]


@pytest.mark.parametrize(("error", "status"), [(ArithmeticError(), "failed"), (KeyboardInterrupt(), "stopped")])
def test_an_error_leaves_what_was_saved(run, error, status):
    agent, recorder = FakeAgent(1000), RunRecorder(run, 200)
    agent.run([recorder], until=500)
    before = {path.name: path.read_bytes() for path in (run.path / "checkpoints").iterdir()}
    recorder.fail(agent, error)
    assert {path.name: path.read_bytes() for path in (run.path / "checkpoints").iterdir()} == before
    assert max(run.checkpoints().steps()) == 400
    assert open_run(run.path).description.status == status


def test_a_full_disk_is_explained_and_leaves_the_last_checkpoint(run, monkeypatch):
    agent, recorder = FakeAgent(1000), RunRecorder(run, 200)
    agent.run([recorder], until=400)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(recorder._checkpoints, "save", full)
    message = (
        r"cannot be saved at step 600: .*No space left.*; the checkpoint of step 400 is whole: .*`velocirl resume run`"
    )
    with pytest.raises(RecordingError, match=message):
        agent.run([recorder])
    assert run.checkpoints().latest().step == 400


def test_a_disk_that_is_full_at_the_end_is_a_failure(run, monkeypatch):
    recorder = RunRecorder(run, 10**6)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(recorder._checkpoints, "save", full)
    with pytest.raises(RecordingError, match="there is no checkpoint yet"):
        FakeAgent(1000).run([recorder])
    assert open_run(run.path).description.status == "failed"


def test_whoever_listens_gets_the_rows_that_are_written(run):
    heard = []
    FakeAgent(10_001 * 100).run([RunRecorder(run, 10**6, on_row=heard.append)])
    assert heard == run.rows()


def test_a_picture_and_events_are_made_at_the_end_of_a_short_run(run):
    pytest.importorskip("matplotlib")
    pytest.importorskip("tensorboard")
    recorder = RunRecorder(run, 500)
    FakeAgent(1000).run([recorder, RunPublisher(recorder)])
    assert run.curve_path.read_bytes()[:4] == b"\x89PNG"
    assert events_of(run) == {step: float(step) for step in range(100, 1001, 100)}


def test_events_of_a_resumed_run_hold_every_row_once(run, monkeypatch):
    pytest.importorskip("tensorboard")
    monkeypatch.setattr(recording, "draw_curve", lambda *_: False)
    monkeypatch.setattr(recording, "EVENTS_AFTER", 0.0)
    recorder = RunRecorder(run, 300)
    publisher = RunPublisher(recorder)
    FakeAgent(1000).run([recorder, publisher], until=800)
    publisher._writer.close()  # as a kill would
    monkeypatch.setattr(recording, "EVENTS_AFTER", 1000.0)  # once there are events, the others follow at once
    recorder = RunRecorder(open_run(run.path), 300)
    FakeAgent(1000, steps=600).run([recorder, RunPublisher(recorder)])
    assert len(list(run.events_path.iterdir())) == 2
    assert events_of(run) == {step: float(step) for step in range(100, 1001, 100)}


@pytest.mark.skipif(not recording.available(), reason="tensorboard is not installed")
def test_a_signal_is_not_kept_waiting_for_pictures(run, monkeypatch):
    drawn = []
    monkeypatch.setattr(recording, "draw_curve", lambda *given: drawn.append(given))
    for resumed, stopping in ((0, "SIGTERM"), (500, None)):
        recorder = RunRecorder(open_run(run.path), 300)
        agent = FakeAgent(1000, steps=resumed)
        agent.run([recorder, RunPublisher(recorder)], until=resumed + 500, stopping=stopping)
        assert bool(drawn) == run.events_path.exists() == (stopping is None)
    assert events_of(run) == {step: float(step) for step in range(100, 1001, 100)}


def events_of(run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run.events_path))
    events.Reload()
    return {event.step: event.value for event in events.Scalars("rollout/ep_rew_mean")}


def test_a_picture_that_cannot_be_written_does_not_fail_the_run(run, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(recording, "draw_curve", full)
    monkeypatch.setattr(recording, "available", lambda: False)
    recorder = RunRecorder(run, 500)
    with pytest.warns(UserWarning, match="the picture of the learning curve could not be written"):
        FakeAgent(1000).run([recorder, RunPublisher(recorder)])
    assert open_run(run.path).description.status == "finished"


def test_an_impossible_interval_is_refused(run):
    with pytest.raises(ValueError, match="at least 1 step, got 0"):
        RunRecorder(run, 0)
