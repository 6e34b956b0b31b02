"""`learn(..., run_dir=...)`: the run that `velocirl train` makes, made from Python, and gone on with by either."""

import json
import sys

import numpy as np
import pytest
from same_runs import assert_same, timeless

import velocirl
from velocirl import DQN, PPO, Evaluate, StopOnReward
from velocirl.cli.main import main
from velocirl.engine import registry
from velocirl.monitor.heartbeat_file import read_heartbeat
from velocirl.runs import recording
from velocirl.runs.directory import RunBusyError, RunExistsError, list_runs, open_run
from velocirl.runs.metrics import STEP
from velocirl.training.running import file_of

SMALL = {"num_envs": 8, "horizon": 16, "minibatch_size": 64, "epochs": 1, "threads": 1, "seed": 3, "device": "cpu"}
BATCH = 128
OPTIONS = [word for name, value in SMALL.items() for word in (f"--{name.replace('_', '-')}", str(value))]
MINE = """
from velocirl import Environment
from velocirl.environments.cartpole import State, Params, environment as original


def step(state, params, action, rng):
    return 1.0, state.position > 2


environment = Environment(
    "Mine-v0", state=State, params=Params, observation=original.observation, action=original.action, max_steps=20,
    reset=original.reset, step=step, observe=original.observe,
)
"""


@pytest.fixture(autouse=True)
def own_place(tmp_path, monkeypatch, keep_runs_at):
    """Runs are noted here, and pictures have tests of their own."""
    for name, value in keep_runs_at(tmp_path / "data").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(recording, "draw_curve", lambda *_: False)
    monkeypatch.setattr(recording, "available", lambda: False)


def agent(**changes):
    return PPO("CartPole-v1", **{**SMALL, **changes})


def steps_of(run):
    return [row[STEP] for row in run.rows()]


def test_it_is_the_run_that_the_command_makes(tmp_path, capsys):
    main(["train", "CartPole-v1", *OPTIONS, "--total-steps", "1280", "--evaluate-every", "512", "--run-dir",
          str(tmp_path / "command"), "--quiet"])  # fmt: skip
    agent().learn(1280, Evaluate(512), run_dir=tmp_path / "python")
    theirs, ours = open_run(tmp_path / "command"), open_run(tmp_path / "python")
    assert_same(ours, theirs)
    assert timeless(ours.rows()) == timeless(theirs.rows())
    assert ours.description.plan == theirs.description.plan
    assert ours.description.config == theirs.description.config
    assert (ours.path / "config.toml").read_text() == (theirs.path / "config.toml").read_text()
    assert {one.name for one in ours.path.iterdir()} == {one.name for one in theirs.path.iterdir()}
    assert ours.checkpoints().best().document["best"] == theirs.checkpoints().best().document["best"]
    assert (ours.description.status, read_heartbeat(ours.path).status) == ("finished", "finished")
    assert {run.path for run in list_runs()} == {ours.path, theirs.path}
    main(["evaluate", str(ours.path), "--episodes", "5", "--json"])
    assert json.loads(capsys.readouterr().out)["episodes"] == 5
    main(["monitor", str(ours.path), "--once", "--json"])
    assert json.loads(capsys.readouterr().out)["steps"] == 1280


def test_what_was_interrupted_goes_on_by_the_command_bit_for_bit(tmp_path):
    def stop(agent):
        if agent.steps == 5 * BATCH:
            raise KeyboardInterrupt

    whole = agent().learn(1280, run_dir=tmp_path / "whole", checkpoint_every=256)
    with pytest.raises(KeyboardInterrupt):
        agent().learn(1280, stop, run_dir=tmp_path / "stopped", checkpoint_every=256)
    run = open_run(tmp_path / "stopped")
    assert (run.description.status, list(run.checkpoints().steps())) == ("stopped", [256, 512])
    main(["resume", str(run.path), "--quiet"])
    assert_same(open_run(run.path), open_run(tmp_path / "whole"))
    assert whole.steps == 1280
    again = agent()
    with pytest.raises(KeyboardInterrupt):
        again.learn(1280, stop, run_dir=tmp_path / "third", checkpoint_every=256)
    PPO.load(tmp_path / "third", best=False).learn(run_dir=tmp_path / "third")
    assert_same(open_run(tmp_path / "third"), open_run(tmp_path / "whole"))
    assert steps_of(open_run(tmp_path / "third")) == list(range(BATCH, 1281, BATCH))


def test_the_agent_that_was_trained_there_goes_on_with_its_run(tmp_path):
    where, trained = tmp_path / "run", agent()
    trained.learn(640, [Evaluate(256), StopOnReward(1e6)], run_dir=where)
    trained.learn(256, run_dir=where)
    run = open_run(where)
    assert steps_of(run) == list(range(BATCH, 897, BATCH))
    plan = run.description.plan
    assert (plan.total_steps, plan.checkpoint_every, plan.evaluate_every, plan.target_return) == (896, 64, 256, None)
    assert "total_steps = 896" in (where / "config.toml").read_text()
    best = run.checkpoints().best().document["best"]["metric"]
    assert best == "eval/mean_reward"  # what was judged by evaluations is not thrown away
    main(["resume", str(where), "--total-steps", "1024", "--quiet"])
    assert max(steps_of(run)) == 1024


def test_another_agent_is_refused_and_told_what_to_do(tmp_path):
    where = tmp_path / "run"
    agent().learn(256, run_dir=where)
    before = (where / "run.json").read_text()
    with pytest.raises(RunExistsError, match=r"at step 256, and this agent is at step 0: go on with agent = PPO\.load"):
        agent().learn(256, run_dir=where)
    with pytest.raises(RunExistsError, match="is a run of ppo on CartPole-v1 with seed 3, and this agent is ppo on"):
        agent(seed=4).learn(256, run_dir=where)
    assert (where / "run.json").read_text() == before
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("")
    with pytest.raises(RunExistsError, match="is not an empty directory"):
        agent().learn(256, run_dir=tmp_path / "full")


def test_a_refusal_changes_nothing_of_the_agent(tmp_path):
    agent().learn(256, run_dir=tmp_path / "run")
    other = agent(seed=4)
    for options, message in (({"run_dir": tmp_path / "run"}, "give another"), ({"checkpoint_every": 0}, "at least 1")):
        with pytest.raises((RunExistsError, ValueError), match=message):
            other.learn(256, **{"run_dir": tmp_path / "new", **options})
        assert other.goal is None
    assert not (tmp_path / "new").exists()


def test_what_was_learnt_before_is_where_a_run_begins(tmp_path):
    trained = agent().learn(256)

    def die(agent):
        raise RuntimeError

    with pytest.raises(RuntimeError):
        trained.learn(512, die, run_dir=tmp_path / "run")
    run = open_run(tmp_path / "run")
    assert (run.description.status, list(run.checkpoints().steps())) == ("failed", [256])
    main(["resume", str(run.path), "--quiet"])
    assert max(steps_of(run)) == 768


def test_a_run_is_held_while_it_is_trained(tmp_path):
    refused = []

    def train_there(trained):
        with pytest.raises(RunBusyError, match="is running in another process"):
            agent().learn(256, run_dir=tmp_path / "run")
        refused.append(trained.steps)

    agent().learn(256, train_there, run_dir=tmp_path / "run")
    assert refused == [128, 256]


def test_what_cannot_be_prepared_leaves_a_run_that_failed(tmp_path, monkeypatch):
    broken = agent()
    monkeypatch.setattr(broken, "prepare", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        broken.learn(256, run_dir=tmp_path / "run")
    assert open_run(tmp_path / "run").description.status == "failed"


def test_a_memory_lies_with_its_run(tmp_path):
    settings = {"num_envs": 1, "learning_starts": 32, "buffer_size": 512, "threads": 1, "seed": 3, "hidden": (8,)}
    first = DQN("CartPole-v1", **settings, device="cpu")
    first.learn(256, run_dir=tmp_path / "run")
    again = DQN.load(tmp_path / "run", best=False)
    again.learn(128, run_dir=tmp_path / "run")
    assert first.learn(128).parameters.tobytes() == again.parameters.tobytes()


def test_an_environment_in_a_file_is_found_again_and_one_in_a_script_is_not(tmp_path, monkeypatch, capsys):
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    module = __import__("mine")
    try:
        file, digest = file_of(module.environment)
        assert (file, len(digest)) == (str(tmp_path / "mine.py"), 64)
        module.environment.step.__module__ = "__main__"
        assert file_of(module.environment) == (None, None)
        module.environment.step.__module__ = "mine"
        PPO(module.environment, **SMALL).learn(256, run_dir=tmp_path / "run")
    finally:
        del sys.modules["mine"]
    assert open_run(tmp_path / "run").description.plan.environment_file == file
    main(["resume", str(tmp_path / "run"), "--total-steps", "512", "--trust", "--quiet"])
    assert max(steps_of(open_run(tmp_path / "run"))) == 512
    assert file_of(velocirl.PPO("CartPole-v1").source.native) == file_of(None) == (None, None)


def test_a_command_says_how_to_go_on_in_an_environment_of_a_notebook(tmp_path, define, capsys):
    environment = define(max_steps=20)
    trained = PPO(environment, **{**SMALL, "device": "python"}).learn(256, run_dir=tmp_path / "run")
    registry._environments.pop(environment.id)
    for command in ("resume", "evaluate"):
        with pytest.raises(SystemExit):
            main([command, str(tmp_path / "run")])
        said = capsys.readouterr().err
        assert f"in the environment {environment.id} of a script or notebook: give the file that defines it" in said
        assert f"or load it there: agent = PPO.load('{tmp_path / 'run'}')" in said
    again = PPO.load(tmp_path / "run", environment, best=False)
    assert again.parameters.tobytes() == trained.parameters.tobytes()


def test_who_was_loaded_without_its_memory_does_not_go_on_with_a_run(tmp_path):
    agent = DQN("CartPole-v1", seed=1, learning_starts=100, hidden=(8,))
    agent.learn(600, run_dir=tmp_path / "run", progress=False)
    forgetful = DQN.load(tmp_path / "run", best=False, memory=False)
    with pytest.raises(RunExistsError, match=r"this agent is without its memory: go on with agent = DQN\.load"):
        forgetful.learn(600, run_dir=tmp_path / "run", progress=False)
    going_on = DQN.load(tmp_path / "run", best=False)
    assert going_on.learn(600, run_dir=tmp_path / "run", progress=False).steps > agent.steps


def test_numbers_that_a_callback_adds_are_kept_with_the_others(tmp_path):
    start = np.zeros(4, np.float32)

    def record(agent):
        agent.metrics["my/start_value"] = agent.value(start)
        agent.metrics["my/missing"] = None

    trained = agent().learn(1024, record, run_dir=tmp_path / "run")
    kept = velocirl.read_metrics(tmp_path / "run")
    assert kept["my/start_value"].shape == kept["time/total_timesteps"].shape == (8,)
    assert kept["my/start_value"][-1] == pytest.approx(trained.value(start), rel=1e-6)
    assert len(set(kept["my/start_value"].tolist())) == 8
    with pytest.raises(TypeError, match="the figure 'my/word' must be a number or None, got a str"):
        agent().learn(256, lambda one: one.metrics.update({"my/word": "high"}), run_dir=tmp_path / "other")
