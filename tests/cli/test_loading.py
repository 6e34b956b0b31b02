"""Agents from what the commands leave behind: a run's directory or name, from Python."""

import numpy as np
import pytest

import velocirl
from velocirl.engine import registry
from velocirl.runs.directory import Plan, RunNotFoundError
from velocirl.runs.groups import create_group

OBSERVATION = np.zeros(4, np.float32)


@pytest.fixture
def forget():
    """Let an environment be unknown, as it is in a process in which nobody has defined it."""
    return lambda name: registry._environments.pop(name)


def test_a_run_is_loaded_by_its_directory_and_by_its_name(train):
    run = train(name="poles")
    newest = run.checkpoints().latest()
    for name in (run.path, str(run.path), "poles", "pol", run.path / "checkpoints"):
        for kind in (velocirl, velocirl.PPO):
            agent = kind.load(name, best=False)
            assert (type(agent), agent.steps) == (velocirl.PPO, newest.step)
            assert np.array_equal(agent.parameters, newest.state.arrays["network.parameters"])
    assert velocirl.load(run.path).predict(OBSERVATION)[0] in (0, 1)


def test_it_is_the_best_model_where_there_is_one(train):
    run = train("--evaluate-every", "256", steps=1280)
    best, newest = run.checkpoints().best(), run.checkpoints().latest()
    assert velocirl.load(run.path).steps == velocirl.load(run.path, best=True).steps == best.document["steps"]
    assert velocirl.load(run.path, best=False).steps == newest.step
    (run.path / "checkpoints" / "best.safetensors").unlink()
    assert velocirl.load(run.path).steps == newest.step
    with pytest.raises(FileNotFoundError, match="no best state was saved"):
        velocirl.load(run.path, best=True)


def test_of_a_table_it_is_the_newest(tmp_path):
    from velocirl.cli.main import main

    where = tmp_path / "table"
    main(["train", "CliffWalking-v1", "--algorithm", "q-learning", "--total-steps", "60k", "--quiet", "--seed", "0",
          "--run-dir", str(where)])  # fmt: skip
    agent = velocirl.load(where)
    assert isinstance(agent, velocirl.QLearning)
    assert agent.finished


def test_another_algorithm_says_which(train):
    run = train()
    with pytest.raises(ValueError, match=r"holds a ppo agent; load it with PPO\.load"):
        velocirl.SAC.load(run.path)


def test_what_is_not_there_says_what_was_looked_for(tmp_path):
    with pytest.raises(RunNotFoundError, match=r"there is no file nothing\.safetensors, and there is no run 'nothing'"):
        velocirl.load("nothing")
    with pytest.raises(FileNotFoundError, match=r"gone\.safetensors"):
        velocirl.PPO.load(tmp_path / "gone.safetensors")
    with pytest.raises(RunNotFoundError, match="is not a run"):
        velocirl.PPO.load(tmp_path)


def test_of_a_group_one_run_has_to_be_chosen(train, tmp_path):
    where = tmp_path / "group"
    create_group(where, "CartPole-v1", "ppo", (3, 4), {}, Plan(total_steps=256, checkpoint_every=128))
    for seed in ("3", "4"):
        train("--seed", seed, name=f"group/seed-{seed}", steps=256)
    with pytest.raises(RunNotFoundError, match="is a group of 2 runs: choose one, such as group/seed-3"):
        velocirl.load(where)
    assert velocirl.load(where / "seed-4").seed == 4


def test_an_environment_of_ones_own_has_to_be_known_or_given(train, my_pole, forget):
    run = train(environment=str(my_pole), steps=256)
    own = registry.find("MyPole-v0")
    assert velocirl.load(run.path).source.native is own
    forget("MyPole-v0")
    with pytest.raises(ValueError, match=rf"was trained in 'MyPole-v0', which .*: import {my_pole} first, or .* env="):
        velocirl.load(run.path)
    assert velocirl.load(run.path, env=own).source.native is own
    file = velocirl.load(run.path, env=own).save(run.path.parent / "own")
    with pytest.raises(ValueError, match=r"'MyPole-v0', which .*: import the file that defines it first, or .* env="):
        velocirl.PPO.load(file)


def test_in_a_new_process_every_algorithm_is_known(train, run_script, tmp_path):
    run = train(name="elsewhere")
    script = tmp_path / "load.py"
    script.write_text("import sys, velocirl\nprint(type(velocirl.load(sys.argv[1])).__name__)")
    assert run_script(script, run.path).strip() == "PPO"


def test_settings_are_changed_by_whatever_name(train):
    run = train()
    agent = velocirl.load(run.path, n_steps=4, learning_rate=1e-4, custom_objects=None)
    assert (agent.config.horizon, agent.config.learning_rate) == (4, 1e-4)
