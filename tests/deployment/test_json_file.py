"""The action from the document alone, in plain Python, as somebody else would compute it."""

import json
from math import prod

import numpy as np
import pytest
from deployed import AGENTS, masks_for, observations_for, said_by, shaken
from deployed import assert_same as assert_same_actions
from json_controller import act

import velocirl
from velocirl.deployment.reading import read_controller
from velocirl.engine.disk.files import parse_json


@pytest.mark.parametrize("kind", [kind for kind in AGENTS if kind != "bytes"])
def test_the_document_says_all_that_an_action_needs(kind, tmp_path):
    agent = shaken(AGENTS[kind]())
    controller = read_controller(agent)
    raw, masks = observations_for(controller, 60), masks_for(controller, 60)
    path = velocirl.export(agent, tmp_path / "controller.json")
    document = parse_json(path.read_bytes())
    found = [act(document, row.tolist(), None if masks is None else masks[i]) for i, row in enumerate(raw)]
    assert_same_actions(controller, np.array(found, np.float64), said_by(agent, raw, masks), raw)


@pytest.mark.parametrize("storage", ["dense", "sparse"])
def test_the_document_of_a_table(storage, tmp_path):
    agent = velocirl.QLearning("FrozenLake-v1", storage=storage, num_envs=4, seed=1)
    values = np.random.default_rng(2).normal(size=(16 if storage == "dense" else 9, 4)).astype(np.float32)
    keys = {} if storage == "dense" else {"state": np.arange(9)[::-1].copy()}
    agent.table.load_state({**keys, "values": values})
    document = json.loads(velocirl.export(agent, tmp_path / "table.json").read_text())
    expected, _ = agent.predict(np.arange(16), deterministic=True)
    assert [act(document, [state])[0] for state in range(16)] == expected.tolist()
    assert prod(document["table"]["sizes"]) == 16


def test_whole_weights_in_a_document(tmp_path):
    agent = shaken(AGENTS["squashed gaussian"]())
    document = json.loads(velocirl.export(agent, tmp_path / "controller.json", weights="int8").read_text())
    first = document["layers"][0]
    assert {type(weight) for row in first["weights"] for weight in row} == {int}
    assert max(abs(weight) for row in first["weights"] for weight in row) == 127
    raw = observations_for(read_controller(agent), 60)
    found = np.array([act(document, row.tolist()) for row in raw])
    assert np.abs(found - said_by(agent, raw)).mean() < 0.05  # of actions from -2 to 2


def test_the_document_names_signals_and_units(tmp_path):
    document = json.loads(velocirl.export(AGENTS["limits"](), tmp_path / "controller.json").read_text())
    assert document["format"] == "velocirl controller"
    assert document["environment"] == "ChemicalReactor-v0"
    assert document["observation"]["signals"][0] == {"name": "temperature", "unit": "K"}
    assert document["actions"][0]["unit"] == "m3/s"
