"""Models of plants of one's own: commands ask for the file that defines the plant, and take it."""

import json
from dataclasses import replace

import numpy as np
import pytest

import velocirl
from velocirl.cli.main import main
from velocirl.cli.named.models import find_model
from velocirl.engine import registry

PLANT = """
from velocirl import Box, Environment, float32, record


@record
class State:
    level: float32


def reset(state, params, rng):
    state.level = 1.0


def step(state, params, action, rng):
    state.level = min(max(state.level + 0.1 * action[0], 0.0), 2.0)
    return 1.0, False


def observe(state, params, observation):
    observation[0] = state.level


plant = Environment(
    "OnesOwn-v0", state=State, observation=Box(0.0, 2.0, (1,)), action=Box(-1.0, 1.0, (1,)), reset=reset, step=step,
    observe=observe, time_step=60.0, max_steps=9,
)
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Save a trained model, and one of data without an environment; then the plant is not known any more."""
    room = tmp_path_factory.mktemp("own")
    (room / "ones_own.py").write_text(PLANT)
    scope: dict = {"__name__": "ones_own"}
    exec(PLANT, scope)
    small = {"hidden": (4,), "device": "python"}
    velocirl.PPO(scope["plant"], num_envs=2, **small).save(room / "ppo.safetensors")
    options = {"steps": 20, "device": "python", "references": {}}
    data = velocirl.record_dataset(lambda _: np.zeros(1), scope["plant"], **options)
    unnamed = velocirl.Dataset(replace(data.info, environment=None), data.columns)
    velocirl.BC(data=unnamed, **small).save(room / "bc.safetensors")
    registry._environments.pop("OnesOwn-v0")
    return room


COMMANDS = [
    ["evaluate"],
    ["evaluate", "--safety"],
    ["card", "--out", "card"],
    ["record", "--out", "x.csv"],
    ["dataset", "create", "--out", "x.vds"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_file_of_a_plant_is_asked_for(models, command, refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = 1 if command[0] != "dataset" else 2
    for model, reason in (
        ("ppo", "was trained in OnesOwn-v0, an environment of a file or script: name the file that defines it, --env"),
        ("bc", "learned from data, and has no environment to act in: name one, --env ENV or --env FILE.py"),
    ):
        said = refused(*command[:words], str(models / f"{model}.safetensors"), *command[words:])
        assert f"{model}.safetensors {reason}" in " ".join(said.split())


def test_a_plant_named_by_its_file_is_taken(models):
    for model in ("ppo", "bc"):
        named = {"model": str(models / f"{model}.safetensors"), "env": str(models / "ones_own.py")}
        _, chosen, source = find_model(named)
        assert (chosen.id, source) == ("OnesOwn-v0", named["model"])
        registry._environments.pop("OnesOwn-v0")


def test_a_model_of_data_is_exported_without_its_plant(models, tmp_path, capsys):
    main(["export", str(models / "bc.safetensors"), "--out", str(tmp_path / "x.json")])
    found = json.loads((tmp_path / "x.json").read_text())
    assert (found["environment"], found["algorithm"], len(found["actions"])) == ("data:recorded", "bc", 1)
    assert "bc.safetensors: data:recorded, bc" in " ".join(capsys.readouterr().out.split())
