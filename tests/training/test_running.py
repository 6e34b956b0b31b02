"""`learn(..., run_dir=...)`: the run that `velocirl train` makes, made from Python, and gone on with by either."""

import json
import sys

import numpy as np
import pytest
from same_runs import assert_same, timeless

import velocirl
from velocirl import DQN, PPO, Evaluate, QLearning, StopOnReward
from velocirl.cli.main import main
from velocirl.engine import registry
from velocirl.monitor.heartbeat_file import read_heartbeat
from velocirl.runs import memory_files, recording
from velocirl.runs.directory import RunBusyError, RunExistsError, list_runs, open_run
from velocirl.runs.metrics import STEP
from velocirl.runs.placement import clear_run
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


def test_a_second_run_takes_the_next_free_name_and_says_so(tmp_path, capsys):
    """And so does a third, of whatever agent; the earlier ones stay as they are."""
    where = tmp_path / "run"
    agent().learn(256, run_dir=where)
    before = (where / "run.json").read_text()
    (tmp_path / "run-3").mkdir()
    capsys.readouterr()
    second, third = agent(), QLearning("CliffWalking-v1", seed=1, num_envs=1)
    second.learn(256, run_dir=where)
    said = capsys.readouterr().err.splitlines()
    assert said == [
        f'{where} is a run already: this one is {where}-2 (exist="resume" continues run, exist="overwrite" replaces it)'
    ]
    third.learn(64, run_dir=where)
    assert (second.run_dir, third.run_dir) == (tmp_path / "run-2", tmp_path / "run-4")
    assert_same(open_run(second.run_dir), open_run(where))
    assert open_run(third.run_dir).description.algorithm == third.name
    assert (where / "run.json").read_text() == before
    second.learn(128, run_dir=where)  # which goes on with its own
    assert (second.run_dir, max(steps_of(open_run(second.run_dir)))) == (tmp_path / "run-2", 384)
    assert capsys.readouterr().err.count("\n") == 1


def test_a_run_may_be_overwritten_and_nothing_else(tmp_path):
    where = tmp_path / "run"
    agent(seed=4).learn(512, run_dir=where, checkpoint_every=128)
    (where / "thesis.tex").write_text("years of work")
    before = sorted(one.name for one in where.iterdir())
    with pytest.raises(RunExistsError, match=r"thesis\.tex was not written by velocirl, so .*run is not overwritten"):
        agent().learn(256, run_dir=where, exist="overwrite")
    assert sorted(one.name for one in where.iterdir()) == before
    (where / "thesis.tex").rename(tmp_path / "thesis.tex")
    whole = agent()
    whole.learn(256, run_dir=tmp_path / "whole")
    agent().learn(256, run_dir=where, exist="overwrite")
    assert_same(open_run(where), open_run(tmp_path / "whole"))
    assert sorted(open_run(where).checkpoints().steps()) == sorted(open_run(whole.run_dir).checkpoints().steps())


def test_everything_that_a_run_keeps_may_be_overwritten(tmp_path, monkeypatch):
    """A memory in segments, events, the curve, and what a kill left half-written."""
    where = tmp_path / "run"
    monkeypatch.undo()  # of pictures and events that are left out elsewhere
    monkeypatch.setenv("VELOCIRL_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(memory_files, "LARGE", 1)
    settings = {"num_envs": 1, "learning_starts": 32, "buffer_size": 512, "threads": 1, "seed": 3, "hidden": (8,)}
    DQN("CartPole-v1", **settings, device="cpu").learn(64, Evaluate(32, 1), run_dir=where, progress=False)
    (where / "checkpoints" / ".step_000000000096.safetensors.0123abcd.unfinished").touch()
    (where / "checkpoints" / "step_000000000008.safetensors.damaged").touch()
    found = {str(one.relative_to(where)) for one in where.rglob("*")}
    assert {"learning_curve.png", "events", "heartbeat.json", "checkpoints/best.safetensors"} <= found
    assert any(name.startswith("checkpoints/memory/") for name in found)
    clear_run(where)
    assert list(where.iterdir()) == []


def test_what_is_there_may_be_an_error(tmp_path):
    where = tmp_path / "run"
    trained = agent()
    trained.learn(256, run_dir=where, exist="error")
    with pytest.raises(RunExistsError, match="is a run already: go on with it by `velocirl resume"):
        trained.learn(256, run_dir=where, exist="error")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("")
    for exist in ("next", "overwrite", "resume", "error"):
        with pytest.raises(RunExistsError, match="is not an empty directory"):
            agent().learn(256, run_dir=tmp_path / "full", exist=exist)
    with pytest.raises(ValueError, match=r'exist="replace" is unknown; there are next, overwrite, resume, error'):
        agent().learn(256, run_dir=where, exist="replace")
    with pytest.raises(
        ValueError, match=r'exist="overwrite" says what to do where there is a run already: add run_dir'
    ):
        agent().learn(256, exist="overwrite")


def test_a_script_that_resumes_ends_where_it_would_have_ended(tmp_path, capsys):
    """However often it is killed: it begins, continues or does nothing. `velocirl train --exist resume` is the same."""

    def script(where, callback=(), **changes):
        return agent(**changes).learn(1280, callback, run_dir=where, checkpoint_every=256, exist="resume")

    def die(agent):
        if agent.iterations == 5:
            raise KeyboardInterrupt

    whole = agent().learn(1280, run_dir=tmp_path / "whole", checkpoint_every=256)
    for how in ("python", "command"):
        where = tmp_path / how
        with pytest.raises(KeyboardInterrupt):
            script(where, die)
        if how == "python":
            assert script(where).parameters.tobytes() == whole.parameters.tobytes()
        else:
            words = ["train", "CartPole-v1", *OPTIONS, "--total-steps", "1280", "--checkpoint-every", "256"]
            main([*words, "--run-dir", str(where), "--exist", "resume", "--quiet"])
        assert_same(open_run(where), open_run(tmp_path / "whole"))
        assert steps_of(open_run(where)) == list(range(BATCH, 1281, BATCH))
    before = (where / "run.json").read_text()
    capsys.readouterr()
    again = script(where)
    assert (again.steps, again.parameters.tobytes()) == (1280, whole.parameters.tobytes())
    assert "is finished, after 1,280 steps: a larger total_steps continues it" in capsys.readouterr().err
    assert (where / "run.json").read_text() == before
    assert agent().learn(1408, run_dir=where, exist="resume").steps == 1408  # counted from the beginning of the run


def test_only_the_same_training_is_resumed(tmp_path):
    where = tmp_path / "run"
    agent().learn(256, run_dir=where)
    before = (where / "run.json").read_text()
    with pytest.raises(RunExistsError, match=r"run was trained with gamma=0\.99, and this agent has gamma=0\.9: give"):
        agent(gamma=0.9).learn(512, run_dir=where, exist="resume")
    with pytest.raises(RunExistsError, match="is a run of ppo on CartPole-v1 with seed 3, and this agent is ppo on"):
        agent(seed=4).learn(512, run_dir=where, exist="resume")
    elsewhere = agent().learn(384)
    with pytest.raises(
        RunExistsError, match=r"at step 256, and this agent is at step 384: go on with agent = PPO\.load"
    ):
        elsewhere.learn(512, run_dir=where, exist="resume")
    assert (where / "run.json").read_text() == before
    drawn = {name: value for name, value in SMALL.items() if name != "seed"}
    again = PPO("CartPole-v1", **drawn).learn(512, run_dir=where, exist="resume")  # a seed that nobody gave
    assert (again.seed, again.steps) == (3, 512)


def test_a_run_that_ended_before_its_first_checkpoint_begins_again(tmp_path):
    where = tmp_path / "run"

    def die(agent):
        raise RuntimeError

    with pytest.raises(RuntimeError):
        agent().learn(512, die, run_dir=where)
    agent().learn(512, run_dir=where, exist="resume")
    agent().learn(512, run_dir=tmp_path / "whole")
    assert_same(open_run(where), open_run(tmp_path / "whole"))


def test_a_refusal_changes_nothing_of_the_agent(tmp_path):
    agent().learn(256, run_dir=tmp_path / "run")
    other = agent(seed=4)
    for options, message in (
        ({"run_dir": tmp_path / "run", "exist": "error"}, "is a run already"),
        ({"run_dir": tmp_path / "run", "exist": "resume"}, "give another"),
        ({"checkpoint_every": 0}, "at least 1"),
    ):
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


@pytest.mark.parametrize("exist", ["resume", "overwrite"])
def test_a_run_is_held_while_it_is_trained(tmp_path, exist):
    refused = []

    def train_there(trained):
        with pytest.raises(RunBusyError, match="is running in another process"):
            agent().learn(512, run_dir=tmp_path / "run", exist=exist)
        refused.append(agent().learn(128, run_dir=tmp_path / "run").run_dir.name)

    agent().learn(256, train_there, run_dir=tmp_path / "run")
    assert refused == ["run-2", "run-3"]


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
        forgetful.learn(1200, run_dir=tmp_path / "run", exist="resume", progress=False)
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
