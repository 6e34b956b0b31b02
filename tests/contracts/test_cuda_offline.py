"""What every learner from data keeps on a GPU, where an update is one graph: what plain Python does, exact resumes."""

import numpy as np
import pytest
from choosing import on_cuda
from constrained import for_algorithm
from recorded import file_of, made_up

from velocirl.algorithms import algorithm_modules, load_algorithms
from velocirl.training.agent import Agent
from velocirl.training.offline import OfflineAgent
from velocirl.training.persistence import ALGORITHMS

pytestmark = on_cuda()
load_algorithms()
OURS = {name: kind for name, kind in ALGORITHMS.items() if kind.__module__ in algorithm_modules().values()}
NAMES = sorted(name for name, kind in OURS.items() if issubclass(kind, OfflineAgent))
# Parameters move along the gradient: Adam would make a step of a rounding error where a gradient is nearly 0.
PLAIN = {"optimiser": "sgd", "max_grad_norm": 0.5, "learning_rate": 0.05, "learning_rate_schedule": "constant"}
LAYERS = {"network": "mlp(16, 16)"}  # which torch runs on the CPU, with the draws of a GPU
UPDATES = 20


def made(name, **changes):
    environment = environment_of(name)
    data = file_of(environment if isinstance(environment, str) else environment.id)
    settings = {"hidden": (16, 16), "batch_size": 32, "seed": 5, "device": "cuda", "precision": "float32"}
    return OURS[name](environment, **{"data": data, **settings, **changes})


def environment_of(name):
    return for_algorithm(OURS[name], "CartPole-v1" if name.startswith("discrete-") else "Pendulum-v1")


def alone(name):
    """Settings by which all learners do the same: one transition, so that whoever draws, draws it."""
    environment = environment_of(name)
    data = made_up(environment if isinstance(environment, str) else environment.id, episodes=1, length=1)
    return {**PLAIN, "data": data, "normalise_observations": False}


def assert_moved_alike(agents):
    """After some updates of each."""
    before = agents[0].parameters.copy()
    np.testing.assert_array_equal(agents[1].parameters, before)
    moved = [agent.learn(UPDATES).parameters - before for agent in agents]
    assert np.abs(moved[0]).max() > 1e-4
    assert np.abs(moved[1] - moved[0]).max() <= 1e-3 * np.abs(moved[0]).max()


@pytest.mark.parametrize("name", NAMES)
def test_updates_are_those_of_plain_python(name):
    assert_moved_alike([made(name, device=device, **alone(name)) for device in ("python", "cuda")])


@pytest.mark.parametrize("name", NAMES)
def test_updates_are_those_of_torch_on_the_cpu(name):
    """Which draws as a GPU does, from all of the data."""
    assert_moved_alike([made(name, device=device, **PLAIN, **LAYERS) for device in ("cpu", "cuda")])


@pytest.mark.parametrize("name", NAMES)
def test_graphs_do_what_single_calls_do(name, monkeypatch):
    """Bit for bit."""
    graphs = made(name).learn(2 * UPDATES)
    assert graphs.learner.device.captures
    monkeypatch.setenv("VELOCIRL_CUDA_GRAPHS", "0")
    single = made(name).learn(2 * UPDATES)
    assert not single.learner.device.captures
    assert graphs.parameters.tobytes() == single.parameters.tobytes()


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
