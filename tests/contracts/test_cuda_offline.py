"""What every learner from data keeps on a GPU, where an update is one graph: the same twice, exact resumes, guards."""

import numpy as np
import pytest
from choosing import on_cuda
from constrained import for_algorithm
from recorded import file_of

from velocirl.algorithms import algorithm_modules, load_algorithms
from velocirl.training.agent import ALGORITHMS, Agent
from velocirl.training.offline import OfflineAgent

pytestmark = on_cuda()
load_algorithms()
OURS = {name: kind for name, kind in ALGORITHMS.items() if kind.__module__ in algorithm_modules().values()}
NAMES = sorted(name for name, kind in OURS.items() if issubclass(kind, OfflineAgent))


def made(name, **changes):
    kind = OURS[name]
    environment = for_algorithm(kind, "CartPole-v1" if name.startswith("discrete-") else "Pendulum-v1")
    data = file_of(environment if isinstance(environment, str) else environment.id)
    settings = {"hidden": (16, 16), "batch_size": 32, "seed": 5, "device": "cuda", "precision": "float32"}
    return kind(environment, data=data, **{**settings, **changes})


@pytest.mark.parametrize("name", NAMES)
def test_the_seed_decides_all_and_going_on_from_a_file_is_going_on(name, tmp_path):
    whole = made(name).learn(8192)
    assert whole.metrics["train/n_updates"] == 8192
    np.testing.assert_array_equal(made(name).learn(8192).parameters, whole.parameters)
    half = made(name).learn(8192, lambda agent: agent.steps < 4096)
    again = Agent.load(half.save(tmp_path / "half"))
    np.testing.assert_array_equal(again.learn().parameters, whole.parameters)


@pytest.mark.parametrize("name", NAMES)
def test_it_goes_on_from_what_cpu_threads_have_learnt(name, tmp_path):
    file = made(name, device="cpu").learn(64).save(tmp_path / "agent")
    agent = Agent.load(file, device="cuda").learn(64)
    assert agent.metrics["train/n_updates"] == 128
    assert np.isfinite(agent.parameters).all()
