"""Observations that are not finite: no action of the agent, of C, of ONNX, or by the JSON document."""

import json
import math

import numpy as np
import onnxruntime
import pytest
from deployed import AGENTS, Compiled, Spaces, needs_cc, observations_for, said_by, shaken
from gymnasium.spaces import Box, Discrete
from json_controller import act

import velocirl
from velocirl.deployment.reading import read_controller

# Without a normalizer; with one, which holds what is far out; scaled by bounds; choices.
KINDS = ["gaussian", "limits", "scaled", "categorical", "values", "half-bounded"]
WRONG = [math.nan, math.inf, -math.inf]


@needs_cc
@pytest.mark.parametrize("kind", KINDS)
def test_all_four_refuse_the_same_observations(kind, tmp_path):
    agent = shaken(AGENTS[kind]())
    controller = read_controller(agent)
    compiled = Compiled(velocirl.export(agent, tmp_path / "controller.c"), tmp_path, controller)
    session = onnxruntime.InferenceSession(velocirl.export(agent, tmp_path / "controller.onnx").read_bytes())
    document = json.loads(velocirl.export(agent, tmp_path / "controller.json").read_text())
    raw = observations_for(controller, 40)[4:].astype(np.float32)
    raw = raw[np.abs(raw).max(axis=1) < 1e4] if kind == "half-bounded" else raw
    expected = said_by(agent, raw)
    whole = len(raw)
    wrong = np.repeat(raw[:1], 3 * len(controller.signals), axis=0)
    for row in range(len(wrong)):
        wrong[row, row // 3] = WRONG[row % 3]
    actions, valid = session.run(["action", "valid"], {"observation": np.concatenate([raw, wrong])})
    assert valid.tolist() == [True] * whole + [False] * len(wrong)
    actions = actions.reshape(len(valid), -1)
    np.testing.assert_allclose(actions[:whole], expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
    none = -1 if kind in ("categorical", "values") else np.nan
    np.testing.assert_array_equal(actions[whole:], np.full_like(actions[whole:], none))
    for row, observation in enumerate(wrong):
        status, action = compiled.one(observation, before=0.25)
        assert (status, action.tolist()) == (1, [0.25] * len(controller.actions))
        assert act(document, observation.tolist()) is None
        with pytest.raises(ValueError, match=rf"not finite: number {row // 3} of row 0 is -?(nan|inf); choose what to"):
            agent.predict(observation)
    assert {compiled.one(observation)[0] for observation in raw} == {0}
    assert None not in [act(document, observation.tolist()) for observation in raw]
    batch = np.concatenate([raw[:2], wrong[1:2]])
    with pytest.raises(ValueError, match="number 0 of row 2 is inf"):
        agent.predict(batch)


def test_onnx_refuses_what_is_no_code_and_no_state_of_a_table(tmp_path):
    agent = shaken(AGENTS["code"]())  # whole numbers from -3 to 3, choices from 2 to 4
    session = onnxruntime.InferenceSession(velocirl.export(agent, tmp_path / "code.onnx").read_bytes())
    actions, valid = session.run(["action", "valid"], {"observation": np.array([-4, -3, 3, 4])})
    assert valid.tolist() == [False, True, True, False]
    assert actions[[0, 3]].tolist() == [1, 1]
    assert set(actions[1:3].tolist()) <= {2, 3, 4}
    table = velocirl.QLearning(lambda: Spaces(Discrete(4), Discrete(2)), storage="dense", num_envs=1)
    table.table.load_state({"values": np.array([[0, 1], [1, 0], [0, 1], [1, 0]], np.float32)})
    session = onnxruntime.InferenceSession(velocirl.export(table, tmp_path / "table.onnx").read_bytes())
    actions, valid = session.run(["action", "valid"], {"observation": np.array([-1, 0, 1, 2, 3, 4])})
    assert (valid.tolist(), actions.tolist()) == ([False, True, True, True, True, False], [-1, 1, 0, 1, 0, -1])


def test_onnx_refuses_what_makes_the_network_overflow(tmp_path):
    agent = shaken(velocirl.PPO("Pendulum-v1", hidden=(4,), activation="relu", device="python"))
    agent.policy.parameters[:] = 100.0
    session = onnxruntime.InferenceSession(velocirl.export(agent, tmp_path / "x.onnx").read_bytes())
    actions, valid = session.run(["action", "valid"], {"observation": np.float32([[3e38] * 3, [1.0] * 3])})
    assert valid.tolist() == [False, True]
    np.testing.assert_array_equal(actions, [[np.nan], [2.0]])


def test_what_is_too_large_for_single_precision_is_not_finite():
    box = Box(-np.inf, np.inf, (2,))
    agent = velocirl.PPO(lambda: Spaces(box, Discrete(2)), hidden=(4,), device="python")
    with pytest.raises(ValueError, match="number 1 of row 0 is inf"):
        agent.predict(np.array([0.0, 1e300]))
