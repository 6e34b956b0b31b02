"""Callbacks: when they are called, what they leave behind, and how they end training."""

import numpy as np
import pytest

from velocirl import PPO, Callback, Checkpoint, EarlyStopping, Evaluate, Evaluation, StopOnReward
from velocirl.runs.checkpoints import Checkpoints
from velocirl.runs.directory import RunExistsError
from velocirl.training import callbacks
from velocirl.training.callbacks import as_callbacks

SMALL = {"num_envs": 6, "horizon": 16, "minibatch_size": 32, "epochs": 2, "hidden": (16, 16), "threads": 2, "seed": 1,
         "shared": True, "activation": "tanh"}  # fmt: skip
BATCH = 96


def test_counts_of_steps_may_be_floats_without_a_fraction(tmp_path):
    evaluating, saving = Evaluate(every=1e2, episodes=2.0, env="Counter-v0"), Checkpoint(tmp_path, every=np.float32(64))
    agent = build(num_envs=2.0, epochs=1.0)
    agent.learn(1.6e2, [evaluating, saving, EarlyStopping(patience=1e9)])
    assert (agent.steps, agent.goal.total, type(agent.goal.total)) == (160, 160, int)
    assert [steps for steps, _ in evaluating.results] == [128, 160]
    assert len(evaluating.results[0][1].returns) == 2
    assert agent.config.num_envs == 2
    for wrong in (1.5, float("inf"), float("nan"), True):
        with pytest.raises(ValueError, match="patience must be a whole number of steps"):
            EarlyStopping(patience=wrong)
        with pytest.raises(ValueError, match="total_steps must be a whole number"):
            agent.learn(wrong)


def build(**changes):
    return PPO("Counter-v0", **{**SMALL, **changes})


def keep_parameters(kept):
    return lambda agent: kept.update({agent.steps: agent.parameters.copy()})


def scored(scores):
    """Adds a metric "score" to each iteration."""
    return lambda agent: agent.metrics.update(score=scores[agent.iterations - 1])


def evaluations(monkeypatch, means):
    """Let the coming evaluations have these mean returns."""
    left = iter(means)
    monkeypatch.setattr(
        callbacks, "evaluate", lambda *_, **__: Evaluation(np.array([next(left)] * 2), np.array([3, 5]))
    )


class Recorder(Callback):
    """Notes what it is told."""

    def __init__(self):
        self.calls = []

    def start(self, agent):
        self.calls.append(("start", agent.steps))

    def step(self, agent):
        self.calls.append(("step", agent.steps))

    def finish(self, agent):
        self.calls.append(("finish", agent.steps, agent.stopping))

    def fail(self, agent, error):
        self.calls.append(("fail", agent.steps, type(error)))


def test_order_of_calls():
    recorder = Recorder()
    build().learn(2 * BATCH, recorder)
    assert recorder.calls == [("start", 0), ("step", BATCH), ("step", 2 * BATCH), ("finish", 2 * BATCH, None)]


def test_a_function_that_returns_false_stops():
    recorder = Recorder()
    answers = iter([None, True, 0, False, None])
    agent = build().learn(10 * BATCH, [recorder, lambda _: next(answers)])
    assert agent.iterations == 4
    assert recorder.calls[-1] == ("finish", 4 * BATCH, "a callback stopped it")
    assert agent.learn(BATCH).iterations == 5  # that was for one call of learn


def test_an_error_is_told_and_goes_on_its_way(tmp_path):
    recorder = Recorder()

    def fail(agent):
        if agent.iterations == 2:
            raise RuntimeError("out of coffee")

    with pytest.raises(RuntimeError, match="out of coffee"):
        build().learn(5 * BATCH, [recorder, Checkpoint(tmp_path), fail])
    assert recorder.calls[-1] == ("fail", 2 * BATCH, RuntimeError)
    assert not Checkpoints(tmp_path).steps()


def test_what_is_no_callback_is_refused():
    for wrong in (3, "evaluate", [Recorder], [None]):
        with pytest.raises(TypeError, match="a callback is a velocirl callback or a function of the agent"):
            as_callbacks(wrong)
    assert len(as_callbacks([Recorder(), print])) == 2
    assert as_callbacks(()) == []


def test_evaluate(monkeypatch, tmp_path):
    evaluations(monkeypatch, [1.0, 3.0, 2.0])
    kept, rows = {}, []
    agent = build()
    evaluation = Evaluate(every=2 * BATCH, episodes=2, directory=tmp_path)
    agent.learn(5 * BATCH, [evaluation, keep_parameters(kept), lambda agent: rows.append(dict(agent.metrics))])
    assert [steps for steps, _ in evaluation.results] == [2 * BATCH, 4 * BATCH, 5 * BATCH]  # and at the end
    assert [row.get("eval/mean_reward") for row in rows] == [None, 1.0, None, 3.0, 2.0]
    assert rows[1]["eval/mean_ep_length"] == 4
    assert rows[1]["eval/std_reward"] == 0
    assert evaluation.best == 3
    best = PPO.load(tmp_path / "best.safetensors")
    assert best.steps == 4 * BATCH
    assert best.parameters.tobytes() == kept[4 * BATCH].tobytes() != agent.parameters.tobytes()


def test_the_best_of_an_earlier_call_has_to_be_beaten(monkeypatch, tmp_path):
    evaluations(monkeypatch, [5.0, 4.0])
    agent = build().learn(BATCH, Evaluate(every=BATCH, directory=tmp_path))
    agent.learn(BATCH, Evaluate(every=BATCH, directory=tmp_path))
    assert PPO.load(tmp_path / "best.safetensors").steps == BATCH


def test_a_better_best_model_of_another_training_stays_where_it_is(monkeypatch, tmp_path, capsys):
    """Another environment or setting, not another seed: the new training keeps its own elsewhere."""
    where = tmp_path / "models"
    evaluations(monkeypatch, [500.0, -900.0, -800.0, 7.0])
    build().learn(BATCH, Evaluate(every=BATCH, directory=where))
    kept = (where / "best.safetensors").read_bytes()
    swinging = Evaluate(every=BATCH, directory=where)
    other = PPO("Pendulum-v1", **SMALL).learn(BATCH, swinging)
    assert swinging.directory == tmp_path / "models-2"
    assert capsys.readouterr().err == (
        f"{where} has the best model of another training (environment='Counter-v0', not 'Pendulum-v1'): this training"
        f" saves into {where}-2\n"
    )
    assert PPO.load(swinging.directory / "best.safetensors").source.id == "Pendulum-v1"
    other.learn(BATCH, swinging)  # the same callback goes on with its own
    again = Evaluate(every=BATCH, directory=where)
    build(gamma=0.5).learn(BATCH, again)
    assert (swinging.directory, again.directory) == (tmp_path / "models-2", tmp_path / "models-3")
    assert "(gamma=0.99, not 0.5)" in capsys.readouterr().err
    assert (where / "best.safetensors").read_bytes() == kept


def test_a_best_model_of_another_training_may_be_replaced_or_refused(monkeypatch, tmp_path):
    evaluations(monkeypatch, [500.0, -900.0, -901.0])
    build().learn(BATCH, Evaluate(every=BATCH, directory=tmp_path))
    other = PPO("Pendulum-v1", **SMALL)
    for exist, message in (("error", "has models already"), ("resume", "has the best model of another training")):
        with pytest.raises(RunExistsError, match=message):
            other.learn(BATCH, Evaluate(every=BATCH, directory=tmp_path, exist=exist))
    assert other.iterations == 0
    replacing = Evaluate(every=BATCH, directory=tmp_path, exist="overwrite")
    other.learn(BATCH, replacing)
    other.learn(BATCH, replacing)  # which does not replace its own
    best = PPO.load(tmp_path / "best.safetensors")
    assert (best.source.id, best.steps) == ("Pendulum-v1", BATCH)


def test_evaluate_really_evaluates():
    agent = build()
    agent.learn(BATCH, Evaluate(every=10**9, episodes=3))
    assert agent.metrics["eval/mean_reward"] == 45
    assert agent.metrics["eval/mean_ep_length"] == 10


def test_checkpoints_rotate(tmp_path):
    agent = build().learn(5 * BATCH, Checkpoint(tmp_path, every=BATCH, keep=2))
    assert list(Checkpoints(tmp_path).steps()) == [4 * BATCH, 5 * BATCH]
    newest = PPO.from_state(Checkpoints(tmp_path).latest().state)
    assert newest.parameters.tobytes() == agent.parameters.tobytes()


def test_checkpoints_of_an_earlier_training_are_found_before_the_first_step(tmp_path, capsys):
    where = tmp_path / "checkpoints"
    build().learn(3 * BATCH, Checkpoint(where, every=BATCH))
    for exist, message in (("error", "has models already"), ("resume", "has a checkpoint of step 288 already: choose")):
        steps = []
        with pytest.raises(RunExistsError, match=message):
            build().learn(BATCH, [Checkpoint(where, exist=exist), lambda agent, steps=steps: steps.append(agent.steps)])
        assert steps == []
    (tmp_path / "checkpoints-2").mkdir(0o700)
    saving = Checkpoint(where)
    second = build().learn(2 * BATCH, saving)
    assert capsys.readouterr().err == (
        f"{where} has a checkpoint of step 288 already: this training saves into {where}-2\n"
    )
    assert list(Checkpoints(tmp_path / "checkpoints-2").steps()) == [2 * BATCH]
    second.learn(BATCH, Checkpoint(where))  # is where the first one ended, too
    assert list(Checkpoints(where).steps()) == [BATCH, 2 * BATCH, 3 * BATCH]
    assert PPO.load(where, best=False).learn(BATCH, Checkpoint(where)).steps == 4 * BATCH
    assert list(Checkpoints(where).steps())[-1] == 4 * BATCH
    (where / "notes.txt").write_text("")
    build(seed=2).learn(BATCH, Checkpoint(where, exist="overwrite"))
    assert sorted(one.name for one in where.iterdir()) == ["notes.txt", f"step_{BATCH:012d}.safetensors"]


def test_a_place_where_nothing_can_be_saved_is_found_before_the_first_step(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        build().learn(BATCH, Checkpoint(tmp_path / "file"))
    agent = build()
    with pytest.raises(OSError, match="file"):
        agent.learn(BATCH, Evaluate(directory=tmp_path / "file"))
    assert agent.steps == 0


def test_checkpoints_at_the_end(tmp_path):
    build().learn(3 * BATCH, Checkpoint(tmp_path / "end", every=2 * BATCH))
    assert list(Checkpoints(tmp_path / "end").steps()) == [2 * BATCH, 3 * BATCH]
    build().learn(9 * BATCH, [Checkpoint(tmp_path / "stopped"), lambda agent: agent.iterations < 2])
    assert list(Checkpoints(tmp_path / "stopped").steps()) == [2 * BATCH]


def test_going_on_from_a_checkpoint(tmp_path):
    agent = build().learn(5 * BATCH, [Checkpoint(tmp_path, every=2 * BATCH), lambda agent: agent.iterations < 3])
    state = Checkpoints(tmp_path).latest().state
    resumed = PPO.from_state(state).learn(callbacks=Checkpoint(tmp_path, every=2 * BATCH))
    assert list(Checkpoints(tmp_path).steps()) == [3 * BATCH, 4 * BATCH, 5 * BATCH]
    assert resumed.parameters.tobytes() == agent.learn().parameters.tobytes()


def test_early_stopping_goes_back_to_the_best():
    kept, agent = {}, build()
    stopping = EarlyStopping(3 * BATCH, metric="score")
    agent.learn(20 * BATCH, [scored([1, 5, 4, 5, 3, 9, 9]), keep_parameters(kept), stopping])
    assert agent.iterations == 5
    assert agent.stopping == f"score has not improved on 5 for {3 * BATCH} steps"
    assert stopping.best == 5
    assert agent.parameters.tobytes() == kept[2 * BATCH].tobytes() != kept[5 * BATCH].tobytes()
    # What it draws from and learns with is the best model too, not only what is saved.
    other = build()
    other.load_policy_arrays(agent.policy_arrays())
    seen = np.linspace(0, 10, 50, dtype=np.float32)[:, None]
    np.testing.assert_array_equal(
        agent.predict(seen, deterministic=True)[0], other.predict(seen, deterministic=True)[0]
    )


def test_early_stopping_counts_from_a_change_that_is_large_enough():
    agent = build()
    scores = [1, 1.4, 1.8, 1.9, 2, 2]
    agent.learn(20 * BATCH, [scored(scores), EarlyStopping(3 * BATCH, "score", min_change=0.5)])
    assert agent.iterations == 6  # 1.8 was better by more than that, the others were not
    hasty = build().learn(20 * BATCH, [scored(scores), EarlyStopping(3 * BATCH, "score", min_change=1)])
    assert hasty.iterations == 4
    patient = build()
    patient.learn(4 * BATCH, [scored([1, 2, 3, 4]), EarlyStopping(2 * BATCH, "score")])
    assert patient.iterations == 4
    assert patient.stopping is None


def test_early_stopping_by_evaluations(monkeypatch):
    evaluations(monkeypatch, [1.0, 3.0, 2.0, 2.0, 2.0, 2.0])
    agent = build()
    agent.learn(20 * BATCH, [Evaluate(every=2 * BATCH), EarlyStopping(4 * BATCH, "eval/mean_reward")])
    assert agent.steps == 8 * BATCH  # the best was at 4; the figures are there only now and then


def test_stop_on_reward_waits_for_a_hundred_episodes():
    """Every episode earns 45, but only in iteration 11 have a hundred of them ended."""
    agent = build().learn(20 * BATCH, StopOnReward(45))
    assert agent.iterations == 11
    assert agent.stopping == "rollout/ep_rew_mean reached 45"
    assert build().learn(15 * BATCH, StopOnReward(45.5)).iterations == 15
    other = build().learn(20 * BATCH, [scored([1, 2, 3]), StopOnReward(2, "score")])
    assert other.iterations == 2


@pytest.mark.parametrize("callback", [StopOnReward(1, "rollout/ep_rew_meen"), EarlyStopping(10, "rollout/ep_rew_meen")])
def test_a_metric_that_does_not_exist(callback):
    with pytest.raises(
        ValueError, match="there is no metric 'rollout/ep_rew_meen': did you mean 'rollout/ep_rew_mean'"
    ):
        build().learn(BATCH, callback)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Evaluate(every=0), "every must be a whole number of steps of at least 1, got 0"),
        (lambda: Evaluate(every=1.5), "every must be"),
        (lambda: Evaluate(episodes=0), "episodes must be at least 1"),
        (lambda: Checkpoint("x", every=-1), "every must be"),
        (lambda: Checkpoint("x", keep=0), "keep must be at least 1"),
        (lambda: EarlyStopping(0), "patience must be"),
        (lambda: EarlyStopping(1, min_change=-1), "min_change must be at least 0"),
    ],
)
def test_impossible_settings(make, message):
    with pytest.raises(ValueError, match=message):
        make()
