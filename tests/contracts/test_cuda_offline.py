"""Learning from recorded data on a GPU against the same in plain Python and with torch on the CPU."""

import numpy as np
import pytest
from choosing import on_cuda
from recorded import file_of, made_up

from velocirl.algorithms import load_algorithms
from velocirl.training.agent import ALGORITHMS

pytest.importorskip("torch")
load_algorithms()

pytestmark = on_cuda()

UPDATES = 20
SMALL = {"hidden": (16, 16), "batch_size": 32, "seed": 5, "threads": 1, "precision": "float32"}
# Parameters move along the gradient: Adam would make a step of a rounding error where a gradient is nearly 0.
PLAIN = {"optimiser": "sgd", "max_grad_norm": 0.5, "learning_rate": 0.05, "learning_rate_schedule": "constant"}
LAYERS = {"network": "mlp(16, 16)"}  # which torch runs on the CPU, with the draws of a GPU
NUMBERS = {"bc": {}, "td3-bc": {}, "iql": {}, "cql": {"samples": 2}, "rebrac": {}}
CHOICES = {"discrete-bc": {}, "discrete-iql": {}, "discrete-cql": {}}
NAMES = [*NUMBERS, *CHOICES]


def build(name, device, **given):
    environment = environment_of(name)
    own = {**NUMBERS, **CHOICES}[name]
    return ALGORITHMS[name](environment, device=device, **{"data": file_of(environment), **SMALL, **own, **given})


def environment_of(name):
    return "Pendulum-v1" if name in NUMBERS else "CartPole-v1"


def assert_moved_alike(agents):
    """After twenty updates of each."""
    before = agents[0].parameters.copy()
    np.testing.assert_array_equal(agents[1].parameters, before)
    moved = [agent.learn(UPDATES).parameters - before for agent in agents]
    assert np.abs(moved[0]).max() > 1e-4
    assert np.abs(moved[1] - moved[0]).max() <= 1e-3 * np.abs(moved[0]).max()


@pytest.mark.parametrize("name", NAMES)
def test_updates_are_those_of_plain_python(name):
    """Of data that is one transition, so that all draw the same; noise is the same for each row."""
    alone = {**PLAIN, "data": made_up(environment_of(name), 1, 1), "normalise_observations": False}
    assert_moved_alike([build(name, device, **alone) for device in ("python", "cuda")])


@pytest.mark.parametrize("name", NAMES)
def test_updates_are_those_of_torch_on_the_cpu(name):
    """Which draws as a GPU does, from all of the data."""
    assert_moved_alike([build(name, device, **PLAIN, **LAYERS) for device in ("cpu", "cuda")])


@pytest.mark.parametrize("name", NAMES)
def test_graphs_do_what_single_calls_do(name, monkeypatch):
    """Forty updates, bit for bit."""
    graphs = build(name, "cuda").learn(2 * UPDATES)
    assert graphs.learner.device.captures
    monkeypatch.setenv("VELOCIRL_CUDA_GRAPHS", "0")
    single = build(name, "cuda").learn(2 * UPDATES)
    assert not single.learner.device.captures
    assert graphs.parameters.tobytes() == single.parameters.tobytes()


@pytest.mark.parametrize("name", ["td3-bc", "iql"])
def test_interrupted_and_resumed_is_the_same_as_uninterrupted(name, tmp_path):
    kind = ALGORITHMS[name]
    whole = build(name, "cuda").learn(UPDATES).learn(UPDATES)
    resumed = kind.load(build(name, "cuda").learn(UPDATES).save(tmp_path / "half"))
    assert resumed.config.device == "cuda"
    assert resumed.learn(UPDATES).parameters.tobytes() == whole.parameters.tobytes()
