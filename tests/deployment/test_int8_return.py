import numpy as np
import pytest
from deployed import FLOATS, Compiled, needs_cc

import velocirl
from velocirl.deployment.reading import read_controller


class InC:
    """A compiled controller, with an agent's `predict`."""

    def __init__(self, compiled):
        self.compiled = compiled

    def predict(self, observation, **_):
        seen = np.ascontiguousarray(observation, np.float32)
        actions = np.zeros((len(seen), len(self.compiled.controller.actions)), np.float32)
        for row, action in zip(seen, actions, strict=True):
            assert self.compiled.function(row.ctypes.data_as(FLOATS), action.ctypes.data_as(FLOATS)) == 0
        return actions, None


@needs_cc
@pytest.mark.slow
def test_whole_weights_cost_less_than_a_hundredth_of_the_return(tmp_path):
    """PPO, seed 0, 200,000 steps of ChemicalReactor: C with weights of 8 bits returns within 1% of it."""
    agent = velocirl.PPO("ChemicalReactor-v0", hidden=(64, 64), seed=0)
    agent.learn(200_000, progress=False)
    controller = read_controller(agent)
    expected = velocirl.evaluate(agent, episodes=30, seed=1).mean_return
    assert expected > 200
    for weights, tolerance in (("float32", 1e-3), ("int8", 1e-2)):
        path = velocirl.export(agent, tmp_path / f"{weights}.c", weights=weights)
        found = velocirl.evaluate(InC(Compiled(path, tmp_path, controller)), "ChemicalReactor-v0", episodes=30, seed=1)
        assert found.mean_return == pytest.approx(expected, rel=tolerance)
