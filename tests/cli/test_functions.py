"""`velocirl.train_seeds`, `plot` and `plot_table`: what the commands do, from Python."""

import json
import sys
import threading
from io import BytesIO
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import SyncVectorEnv

import velocirl
from velocirl.cli.main import main
from velocirl.cli.train import given
from velocirl.cli.train.seeds import resume_seeds
from velocirl.runs import recording
from velocirl.runs.directory import create_run
from velocirl.training.source import Source

STEP, RETURN = "time/total_timesteps", "rollout/ep_rew_mean"
SMALL = {"device": "python", "num_envs": 2, "horizon": 32, "minibatch_size": 64, "epochs": 1, "hidden": (4,)}


@pytest.fixture(autouse=True)
def own_place(tmp_path, monkeypatch, keep_runs_at):
    for name, value in keep_runs_at(tmp_path / "data").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(recording, "available", lambda: False)


def run_of(path, values):
    run = create_run(path, "CartPole-v1", "ppo", {}, 0)
    with run.metrics() as log:
        for step, value in enumerate(values, 1):
            log.append({STEP: 100 * step, RETURN: value, "my/figure": 2.0 * value, "time/time_elapsed": step})
    run.set_status("finished")
    return run


@velocirl.record
class Count:
    steps: velocirl.int32


def begin(state, _, rng):
    state.steps = 0


def count(state, _, action, rng):
    state.steps += 1
    return velocirl.float32(action), state.steps >= 5


def show(state, _, observation):
    observation[0] = state.steps


def tiny():
    return velocirl.Environment(
        "Tiny-v0", state=Count, observation=velocirl.Box(0, 5, (1,)), action=velocirl.Discrete(2),
        reset=begin, step=count, observe=show,
    )  # fmt: skip


@pytest.mark.slow
def test_seeds_are_trained_as_the_command_trains_them(tmp_path, capsys):
    group = velocirl.train_seeds("ppo", "CartPole-v1", 2, 128, run_dir=tmp_path / "group", seed=7, **SMALL)
    assert group.path == tmp_path / "group"
    assert group.description.seeds == [7, 8]
    assert [(one.seed, one.status, one.steps) for one in group.results()] == [
        (7, "finished", 128),
        (8, "finished", 128),
    ]
    assert (group.summary().averaged, group.summary().steps) == (2, 256)
    alone = velocirl.PPO("CartPole-v1", seed=8, threads=1, **SMALL).learn(128)
    trained = velocirl.load(group.path / "seed-8", best=False)
    np.testing.assert_array_equal(trained.parameters, alone.parameters)
    assert capsys.readouterr().out == ""  # nobody looks
    curve = velocirl.plot(group).lines[0].curve
    assert curve.seeds == 2


class Short(gymnasium.Env):
    """Environment of this module, which the processes of seeds cannot import."""

    observation_space, action_space = Box(-1, 1, (2,), np.float32), Discrete(2)

    def __init__(self, steps=5, held=None):
        self.steps, self.held = steps, held

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.taken = 0
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action):
        self.taken += 1
        return np.full(2, self.taken / 10, np.float32), float(action), self.taken >= self.steps, False, {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "name"),
    [
        (lambda: Short(3), "given:<lambda>"),
        (Short(7), "given:Short"),
        (tiny(), "Tiny-v0"),
        (velocirl.make("CartPole-v1", half_length=0.3), "CartPole-v1"),
    ],
    ids=["function", "Gymnasium", "Environment", "compiled"],
)
def test_seeds_learn_an_environment_that_is_an_object(environment, name, tmp_path):
    asked = {"run_dir": tmp_path / "group", "seed": 7, **SMALL}
    group = velocirl.train_seeds("ppo", environment, 2, 64, **asked)
    assert group.description.environment == name
    assert [(one.status, one.steps) for one in group.results()] == [("finished", 64)] * 2
    trained = velocirl.load(group.path / "seed-8", best=False, env=environment)
    alone = velocirl.PPO(environment, seed=8, threads=1, **SMALL).learn(64)
    np.testing.assert_array_equal(trained.parameters, alone.parameters)
    group = velocirl.train_seeds("ppo", environment, 2, 128, exist="resume", **asked)
    assert [(one.status, one.steps) for one in group.results()] == [("finished", 128)] * 2
    if name.startswith("given:"):
        with pytest.raises(
            ValueError, match=r"given as an object, .*: go on with velocirl\.train_seeds\(\.\.\., run_dir="
        ):
            resume_seeds(group, total_steps=256, env=None, trust=False, as_json=False, quiet=True)


@pytest.mark.parametrize("environment", [Short(4), lambda: Short(4), [Short, lambda: Short(4)]])
def test_a_process_is_sent_its_environment(environment, monkeypatch):
    """From standard input, before it runs the command of its seed."""
    source = Source(environment)
    seen = []
    monkeypatch.setattr(given, "HANDED", handed := {})
    monkeypatch.setattr("velocirl.cli.main.main", lambda: seen.append(dict(handed)))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=BytesIO(given.sent(source))))
    given.main()
    ((name, makers),) = seen[0].items()
    assert name == source.id
    last = makers[-1] if isinstance(makers, list) else makers
    assert last().steps == 4


def test_what_processes_cannot_be_sent_is_refused():
    def locked():
        return Short(held=held)

    held = threading.Lock()
    with pytest.raises(
        ValueError, match=r"to which .*locked cannot be sent \(cannot pickle .*lock.*\): give train_seeds"
    ):
        velocirl.train_seeds("ppo", locked, **SMALL)
    with pytest.raises(
        ValueError, match="SyncVectorEnv is a vector environment that is made already, and each seed needs"
    ):
        velocirl.train_seeds("ppo", SyncVectorEnv([Short, Short]), **SMALL)
    with pytest.raises(TypeError, match="a int is no environment"):
        velocirl.train_seeds("ppo", 5, **SMALL)
    with pytest.raises(ValueError, match="seeds must be at least 1"):
        velocirl.train_seeds("ppo", "CartPole-v1", 0)


def test_a_plot_is_that_of_the_command(tmp_path, capsys):
    one, other = (run_of(tmp_path / name, values) for name, values in (("one", [1.0, 2.0, 4.0]), ("other", [3.0, 3.0])))
    paths = [tmp_path / "curves.csv", tmp_path / "curves.html", tmp_path / "curves.png"]
    plotted = velocirl.plot(one, str(other.path), metric="figure", smooth=2, out=paths)
    assert [line.curve.y.tolist() for line in plotted.lines] == [[2.0, 3.0, 6.0], [6.0, 6.0]]
    assert capsys.readouterr().out == ""
    command = ["plot", str(one.path), str(other.path), "--metric", "figure", "--smooth", "2"]
    main([*command, "--out", str(tmp_path / "theirs.csv"), "--json"])
    assert [line["y"] for line in json.loads(capsys.readouterr().out)["lines"]] == [[2.0, 3.0, 6.0], [6.0, 6.0]]
    assert (tmp_path / "theirs.csv").read_bytes() == paths[0].read_bytes()
    assert paths[2].read_bytes() == plotted._repr_png_()
    assert plotted._repr_png_().startswith(b"\x89PNG")
    velocirl.plot(one)
    ours = capsys.readouterr().out
    main(["plot", str(one.path)])
    assert capsys.readouterr().out == ours != ""
    with pytest.raises(ValueError, match=r"curves.gif must end in \.png"):
        velocirl.plot(one, out="curves.gif")


def test_the_map_of_a_table_is_that_of_the_command(tmp_path, capsys):
    agent = velocirl.QLearning("CliffWalking-v1", seed=0, num_envs=4)
    agent.table.arrays.rows["values"][:] = np.random.default_rng(0).normal(size=(48, 4))
    path = agent.save(tmp_path / "agent")
    shown = velocirl.plot_table(agent, tmp_path / "map.png")
    assert (shown.picture.values == agent.value(np.arange(48)).reshape(4, 12)).all()
    assert repr(shown) == "<map of CliffWalking-v1, q-learning, 0 steps, 4 x 12>"
    main(["table", str(path), "--png", str(tmp_path / "theirs.png")])
    told = capsys.readouterr().out
    assert (tmp_path / "theirs.png").read_bytes() == (tmp_path / "map.png").read_bytes() == shown._repr_png_()
    velocirl.plot_table(path)
    assert capsys.readouterr().out == told.partition("\n")[2] != ""
    with pytest.raises(ValueError, match="PPO has no table: plot_table is for QLearning"):
        velocirl.plot_table(velocirl.PPO("CartPole-v1", device="python"))
