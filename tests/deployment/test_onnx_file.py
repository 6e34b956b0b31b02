import shutil

import numpy as np
import onnxruntime
import pytest
import torch
from deployed import AGENTS, ROWS_OF, Compiled, Spaces, assert_same, masks_for, observations_for, said_by, shaken
from gymnasium.spaces import Dict, Discrete, MultiDiscrete
from parts import Parts

import velocirl
from velocirl.deployment.deciding import decide
from velocirl.deployment.quantising import quantised
from velocirl.deployment.reading import read_controller


def run(path, controller, raw, masks=None):
    """The actions of an exported model, as rows of their entries."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    space = controller.observation_space
    given = {"observation": raw.reshape(len(raw), *(space.shape or ())).astype(space.dtype)}
    if controller.masked:
        given["mask"] = np.ones((len(raw), controller.options), np.int8) if masks is None else masks
    found = session.run(None, given)
    for value, part in zip(session.get_outputs(), found, strict=True):
        assert part.shape[0] == len(raw), value.name
    *found, valid = found
    assert valid.all()
    return np.concatenate([np.asarray(part, np.float64).reshape(len(raw), -1) for part in found], axis=1), found


@pytest.mark.parametrize("kind", AGENTS)
def test_onnx_acts_as_the_model_does(kind, tmp_path):
    agent = shaken(AGENTS[kind]())
    controller = read_controller(agent)
    rows = ROWS_OF.get(kind, 500)
    raw, masks = observations_for(controller, rows), masks_for(controller, rows)
    found, parts = run(velocirl.export(agent, tmp_path / "controller.onnx"), controller, raw, masks)
    assert_same(controller, found, said_by(agent, raw, masks), raw)
    if not isinstance(agent.source.action_space, Dict):
        assert agent.source.action_space.contains(parts[0][0])  # of its own type, too


@pytest.mark.parametrize(
    ("algorithm", "given"),
    [
        (velocirl.PPO, {"network": "cnn(3, pool=true, norm=layer)"}),
        (velocirl.QRDQN, {"network": "cnn(3x3s2) mlp(8)", "quantiles": 5}),
    ],
)
def test_a_convolutional_network_in_onnx(algorithm, given, tmp_path):
    agent = shaken(algorithm("CatchPixels-v0", **given, seed=1))
    controller = read_controller(agent)
    raw = observations_for(controller, 200)
    found, _ = run(velocirl.export(agent, tmp_path / "controller.onnx"), controller, raw)
    assert_same(controller, found, said_by(agent, raw), raw, tolerance=1e-3)


@pytest.mark.parametrize("norm", ["layer", "batch"])
def test_norms_are_layers_in_every_format(norm, tmp_path):
    agent = shaken(velocirl.PPO("CartPole-v1", network=f"mlp(16, 8, norm={norm})", activation="relu", seed=1))
    if norm == "batch":
        for name, buffer in agent.policy._network.module.named_buffers():
            if name.endswith(("running_mean", "running_var")):
                buffer.uniform_(0.2, 2.0, generator=torch.Generator().manual_seed(1))
    controller = read_controller(agent)
    raw = observations_for(controller, 300)[30:]  # not those far out, of which a norm makes differences of rounding
    found, _ = run(velocirl.export(agent, tmp_path / "controller.onnx"), controller, raw)
    expected = said_by(agent, raw)
    assert_same(controller, found, expected, raw, tolerance=1e-3)
    if shutil.which("cc") is not None:
        compiled = Compiled(velocirl.export(agent, tmp_path / "controller.c"), tmp_path, controller)
        assert_same(controller, compiled.all(raw), expected, raw, tolerance=1e-3)


def test_parts_of_observations_are_inputs_of_their_own(tmp_path):
    agent = shaken(velocirl.PPO(Parts, hidden=(16,), device="python", seed=1))
    path = velocirl.export(agent, tmp_path / "controller.onnx")
    generator = np.random.default_rng(0)
    seen = {"noise": generator.uniform(-1, 1, (300, 2)).astype(np.float32), "symbol": generator.integers(0, 3, 300)}
    session = onnxruntime.InferenceSession(str(path))
    expected, _ = agent.predict(seen, deterministic=True)
    assert session.run(["action"], seen)[0].tolist() == expected.tolist()
    assert len(set(expected.tolist())) > 1


@pytest.mark.parametrize("storage", ["dense", "sparse"])
def test_a_table_in_onnx(storage, tmp_path):
    agent = velocirl.DoubleQLearning("TicTacToe-v1", storage=storage, num_envs=4, seed=1)
    generator, count = np.random.default_rng(2), 3**9 if storage == "dense" else 3000
    keys = {"state": generator.permutation(3**9)[:count]} if storage == "sparse" else {}
    agent.table.load_state({**keys, "values": generator.integers(0, 5, (count, 18)).astype(np.float32)})
    raw, masks = generator.integers(0, 3, (500, 9)), generator.integers(0, 2, (500, 9)).astype(np.int8)
    masks[:5] = 0
    found, _ = run(velocirl.export(agent, tmp_path / "table.onnx"), read_controller(agent), raw, masks)
    expected, _ = agent.predict(raw, deterministic=True, action_masks=masks)
    assert found[:, 0].tolist() == expected.tolist()


def test_whole_weights_in_onnx_are_those_that_were_rounded(tmp_path):
    agent = shaken(AGENTS["limits"]())
    controller = quantised(read_controller(agent))
    raw = observations_for(controller, 300)
    found, _ = run(velocirl.export(agent, tmp_path / "controller.onnx", weights="int8"), controller, raw)
    assert_same(controller, found, decide(controller, raw), raw)


def test_what_no_file_can_say_is_refused_by_name(tmp_path):
    recurrent = velocirl.PPO("CartPole-v1", network="mlp(4) gru(4)")
    for ending in ("onnx", "json", "c"):
        with pytest.raises(ValueError, match="RecurrentPolicy is recurrent, and what it remembers"):
            velocirl.export(recurrent, tmp_path / f"controller.{ending}")
    pictures = velocirl.PPO("CatchPixels-v0", network="cnn(2x3s2) mlp(4)")
    with pytest.raises(ValueError, match="JSON needs a network of dense layers alone, and this policy is a convolut"):
        velocirl.export(pictures, tmp_path / "controller.json")
    with pytest.raises(ValueError, match="weights=int8 needs a network of dense layers alone"):
        velocirl.export(pictures, tmp_path / "controller.onnx", weights="int8")
    huge = velocirl.QLearning(lambda: Spaces(MultiDiscrete([1000] * 3), Discrete(2)), storage="sparse", num_envs=1)
    huge.table.load_state({"state": np.arange(3), "values": np.ones((3, 2), np.float32)})
    with pytest.raises(ValueError, match="a row for each of 1,000,000,000 states, of which 3 were met"):
        velocirl.export(huge, tmp_path / "table.onnx")
    assert list(tmp_path.iterdir()) == []


class Counting(torch.nn.Module):
    """Reads how many rows there are when it is written, and keeps to it."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)

    def forward(self, observation):
        return self.layer(observation.reshape(len(observation), 2, 2).reshape(-1, 4))


def test_a_module_that_torch_writes_wrongly_is_refused(tmp_path):
    agent = velocirl.PPO("CartPole-v1", network=Counting())
    with pytest.raises(ValueError, match=r"the torch module Counting .* does not compute what it computes here"):
        velocirl.export(agent, tmp_path / "controller.onnx")
    assert list(tmp_path.iterdir()) == []
