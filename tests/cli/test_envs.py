"""`velocirl envs`: which environments there are, and which algorithms are known to learn them."""

import json

from hybrid import aiming, noting

import velocirl
from velocirl.cli.envs import _say_preset, describe_space
from velocirl.cli.main import main
from velocirl.cli.named.environment_files import choose
from velocirl.engine import registry
from velocirl.monitor import console


def test_envs_lists_every_environment(capsys, monkeypatch):
    monkeypatch.setattr(console, "PIPE_WIDTH", 1000)  # environments of other tests may have long descriptions
    main(["envs"])
    lines = capsys.readouterr().out.splitlines()
    listed = {line.split()[0] for line in lines}
    assert listed >= set(velocirl.list_envs())
    (cartpole,) = [line for line in lines if line.startswith("CartPole-v1 ")]
    assert cartpole.split()[:8] == ["CartPole-v1", "Box(4)", "Discrete(2)", "500", "0.02", "s", "built", "in"]
    presets = registry.find("CartPole-v1").presets
    assert cartpole.split()[8:] == ", ".join(_say_preset(name, preset) for name, preset in presets.items()).split()


def test_envs_as_json(capsys):
    main(["envs", "--json"])
    described = {one["id"]: one for one in json.loads(capsys.readouterr().out)}
    assert sorted(described) == velocirl.list_envs()
    assert described["Pendulum-v1"] == {
        "id": "Pendulum-v1",
        "observation": "Box(3)",
        "action": "Box(1) -2..2",
        "max_steps": 200,
        "time_step": 0.05,
        "source": "velocirl.environments.pendulum",
        "presets": json.loads(
            json.dumps({name: dict(preset) for name, preset in registry.find("Pendulum-v1").presets.items()})
        ),
    }
    assert described["TicTacToe-v1"]["observation"] == "MultiDiscrete(9 of 3)"


def test_presets_are_shown_with_their_steps(my_pole, capsys):
    choose(str(my_pole))
    main(["envs"])
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("MyPole-v0 ")]
    assert line.split()[-2:] == ["ppo", "640"]
    main(["envs", "--json"])
    (described,) = [one for one in json.loads(capsys.readouterr().out) if one["id"] == "MyPole-v0"]
    assert described["presets"] == {
        "ppo": {"total_steps": 640, "gamma": 0.9, "gae_lambda": 0.8, "horizon": 4, "num_envs": 2}
    }
    assert _say_preset("ppo", {"total_steps": 200_000}) == "ppo 200k"
    assert _say_preset("sac", {"gamma": 0.9}) == "sac"


def test_actions_of_several_parts_are_described_part_by_part():
    assert describe_space(aiming.action) == "Tuple(Discrete(3), Box(1) -1..1)"
    parts = "flags: MultiBinary(2), gain: Box() 0..0.1 float64, kind: Discrete(3), pair: MultiDiscrete(2, 4)"
    assert describe_space(noting.action) == f"Dict({parts}, push: Box(2x2) -2..2)"
