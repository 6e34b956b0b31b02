"""The action from the document alone, in plain Python, as somebody else would compute it."""

import json
from math import erf, exp, expm1, prod, sqrt, tanh

import numpy as np
import pytest
from deployed import AGENTS, masks_for, observations_for, said_by, shaken
from deployed import assert_same as assert_same_actions

import velocirl
from velocirl.deployment.reading import read_controller
from velocirl.engine.disk.files import parse_json

ACTIVATIONS = {
    "relu": lambda x: max(x, 0.0),
    "leaky_relu": lambda x: x if x > 0 else 0.01 * x,
    "elu": lambda x: x if x > 0 else expm1(x),
    "gelu": lambda x: 0.5 * x * (1 + erf(x / sqrt(2))),
    "silu": lambda x: x / (1 + exp(-x)) if x > -700 else 0.0,
    "sigmoid": lambda x: 1 / (1 + exp(-x)) if x > -700 else 0.0,
    "tanh": tanh,
    "linear": lambda x: x,
}


def act(document, observation, mask=None):
    """The entries of the action that a document says."""
    outputs = look_up(document["table"], observation) if document["table"] else forward(document, observation)
    return [entry(one, outputs, mask) for one in document["actions"]]


def forward(document, observation):
    x = [value for one in document["inputs"] for value in inputs(one, observation)]
    for layer in document["layers"]:
        scales = layer["scales"] or [1.0] * len(layer["biases"])
        rows = zip(layer["weights"], layer["biases"], scales, strict=True)
        x = [scale * sum(w * v for w, v in zip(row, x, strict=True)) + bias for row, bias, scale in rows]
        x = x if layer["norm"] is None else normalised(x, **layer["norm"])
        x = [ACTIVATIONS[layer["activation"]](value) for value in x]
    return x


def normalised(x, scale, shift, epsilon):
    mean = sum(x) / len(x)
    deviation = sqrt(sum((value - mean) ** 2 for value in x) / len(x) + epsilon)
    return [(value - mean) / deviation * a + b for value, a, b in zip(x, scale, shift, strict=True)]


def inputs(one, observation):
    if one["kind"] == "code":
        return [float(observation[one["first"]] == one["start"] + k) for k in range(one["size"])]
    if one["kind"] == "numbers":
        return [value * one["factor"] for value in observation[one["first"] :][: one["size"]]]
    triples = zip(observation[one["first"] :], one["centre"], one["inverse_scale"], strict=False)
    return [min(max((value - centre) * inverse, -one["limit"]), one["limit"]) for value, centre, inverse in triples]


def look_up(table, observation):
    state = 0
    for value, size, start in zip(observation, table["sizes"], table["starts"], strict=True):
        state = state * size + value - start
    if table["states"] is None:
        return table["values"][state]
    return table["values"][table["states"].index(state)] if state in table["states"] else [0.0] * 100


def entry(one, outputs, mask):
    if one["kind"] == "choice":
        columns = range(one["column"], one["column"] + one["count"])
        legal = [c for c in columns if mask is None or mask[c]] or list(columns)
        return one["start"] + max(legal, key=lambda c: outputs[c]) - one["column"]
    value = tanh(outputs[one["column"]]) if one["squashed"] else outputs[one["column"]]
    value = value if one["low"] is None else max(value, one["low"])
    value = value if one["high"] is None else min(value, one["high"])
    return one["centre"] + one["reach"] * value


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
