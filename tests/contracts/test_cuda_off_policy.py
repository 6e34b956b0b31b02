"""Learning from a memory on a GPU against the same on the CPU: gradients, graphs, resumed runs, failures, learning."""

from __future__ import annotations

from math import nan

import numpy as np
import pytest
from choosing import on_cuda
from constrained import OFTEN
from fragile import fragile, spoil

import velocirl
from velocirl import DQN, Checkpoint, NumericalError
from velocirl.algorithms import load_algorithms
from velocirl.program.faults import DeviceMemoryError
from velocirl.runs.checkpoints import Checkpoints
from velocirl.training.persistence import ALGORITHMS, Goal

torch = pytest.importorskip("torch")
load_algorithms()
SAC, TD3 = ALGORITHMS["sac"], ALGORITHMS["td3"]

pytestmark = on_cuda()

COPIES, WARM = 32, 512
SMALL = {
    "num_envs": COPIES, "buffer_size": 2048, "learning_starts": WARM, "batch_size": 128, "train_every": COPIES,
    "gradient_steps": 1, "seed": 5, "threads": 1, "gamma": 0.9, "learning_rate": 3e-3,
    "learning_rate_schedule": "constant", "n_step": 1, "precision": "float32", "target_every": 4, "tau": 0.5,
}  # fmt: skip
PLAIN = {"optimiser": "sgd", "max_grad_norm": 0.0, "learning_rate": 0.1}  # parameters move along the gradient
LAYERS = {"network": "mlp(32, 32)"}
AGENTS = {
    "dqn": (DQN, "CartPole-v1", LAYERS),
    "native": (DQN, "CartPole-v1", {"hidden": (32, 32)}),
    "priorities": (DQN, "CartPole-v1", {**LAYERS, "priority": "proportional", "n_step": 3}),
    "masked": (DQN, "TicTacToe-v1", LAYERS),
    "cnn": (DQN, "CatchPixels-v0", {"network": "cnn(4, 8) mlp(16)", "dueling": False}),
    "sac": (SAC, "Pendulum-v1", LAYERS),
    "td3": (TD3, "Pendulum-v1", {**LAYERS, "actor_every": 2}),
    "layer norms": (SAC, "Pendulum-v1", {**LAYERS, "layer_norm": True}),
    "sac-lagrangian": (ALGORITHMS["sac-lagrangian"], OFTEN["Pendulum-v1"], {**LAYERS, "cost_limit": 1.0}),
    "discrete-sac": (ALGORITHMS["discrete-sac"], "CartPole-v1", LAYERS),
    "qr-dqn": (ALGORITHMS["qr-dqn"], "CartPole-v1", {**LAYERS, "quantiles": 5}),
    "overlap": (DQN, "CartPole-v1", {**LAYERS, "overlap": True, "train_every": 2 * COPIES, "gradient_steps": 2}),
    "overlap, priorities": (DQN, "CartPole-v1", {**LAYERS, "overlap": True, "priority": "proportional", "n_step": 3}),
    "overlap, cnn": (DQN, "CatchPixels-v0", {"network": "cnn(4, 8) mlp(16)", "dueling": False, "overlap": True}),
}
SEVEN = ["priorities", "cnn", "sac", "td3", "overlap", "overlap, priorities", "overlap, cnn"]


def build(name, device="cuda", **changes):
    kind, environment, config = AGENTS[name]
    agent = kind(environment, device=device, **{**SMALL, **config, **changes})
    agent.goal = Goal(0, 10**6)
    return agent


def stepped(agent, steps):
    """So many steps of each copy."""
    agent.prepare()
    agent.goal = Goal(agent.steps, 10**6)
    agent.learner.iterate(agent.pace(steps), agent.steps + steps * COPIES)
    agent.steps += steps * COPIES
    return agent


def settled(agent):
    agent.drain()
    return agent.parameters


@pytest.mark.parametrize("name", AGENTS)
def test_gradients_are_those_of_the_cpu(name):
    """From the same seed both remember and draw the same; two updates, of which the second moves every network."""
    agents = [
        build(name, device, **{**PLAIN, "network": "mlp(32, 32)", **AGENTS[name][2]}) for device in ("cpu", "cuda")
    ]
    before = agents[0].parameters.copy()
    np.testing.assert_array_equal(agents[1].parameters, before)
    for agent in agents:
        stepped(agent, WARM // COPIES + 2)
    moved = [settled(agent) - before for agent in agents]
    assert np.abs(moved[0]).max() > 1e-5
    assert np.abs(moved[1] - moved[0]).max() <= 1e-3 * np.abs(moved[0]).max()
    states = [agent.learner.state() for agent in agents]
    counted = [key for key in states[0] if key.endswith(".steps")]
    assert counted
    for key in ("memory.counts", "learner.updates", *counted):
        np.testing.assert_array_equal(states[1][key], states[0][key])
    rows = [state["memory.rows"][:] for state in states]
    for field in rows[0].dtype.names:
        np.testing.assert_allclose(rows[1][field], rows[0][field], rtol=1e-3, atol=1e-3, err_msg=field)


@pytest.mark.parametrize("name", SEVEN)
def test_graphs_do_what_single_calls_do(name, monkeypatch):
    """Sixty steps and forty-four updates, bit for bit."""
    graphs, single = build(name), build(name)
    graphs.prepare()
    monkeypatch.setenv("VELOCIRL_CUDA_GRAPHS", "0")
    single.prepare()
    assert graphs.learner.device.captures
    assert not single.learner.device.captures
    for agent in (graphs, single):
        for _ in range(3):
            stepped(agent, 20)
    assert settled(graphs).tobytes() == settled(single).tobytes()
    assert_same(graphs.state().arrays, single.state().arrays)


def assert_same(found, expected):
    """Bit for bit, but for what lies between the fields of a record."""
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        for field in array.dtype.names or (...,):
            assert found[name][field].tobytes() == array[field].tobytes(), (name, field)


@pytest.mark.parametrize("name", SEVEN)
def test_interrupted_and_resumed_is_the_same_as_uninterrupted(name, tmp_path):
    kind = AGENTS[name][0]
    steps = 3 * build(name).steps_of_iteration * COPIES
    whole = build(name).learn(steps)
    half = build(name).learn(steps, lambda agent: agent.steps < steps // 2)
    assert not half.finished
    resumed = kind.load(half.save(tmp_path / "half"))
    assert resumed.config.device == "cuda"
    resumed.learn()
    assert_same(resumed.state().arrays, whole.state().arrays)


@pytest.mark.parametrize("name", ["dqn", "priorities", "sac", "td3"])
def test_a_run_moves_from_one_device_to_the_other(name, tmp_path):
    """What the CPU's torch learner saved, the GPU goes on from; the same steps within rounding."""
    kind, begun = AGENTS[name][0], stepped(build(name, "cpu"), 20)
    path, before = begun.save(tmp_path / "begun"), begun.parameters.copy()
    moved, stayed = (stepped(kind.load(path, device=device), 4) for device in ("cuda", "cpu"))
    difference = settled(stayed) - before
    assert np.abs(settled(moved) - before - difference).max() <= 5e-2 * np.abs(difference).max()


@pytest.mark.parametrize("name", ["dqn", "sac"])
def test_physics_that_is_drawn_and_set_on_the_way_is_resumed_exactly(name, tmp_path):
    agent = build(name, params={"gravity": velocirl.uniform(5, 15)}).learn(2048)
    drawn = agent.arrays()["fleet.params"]["gravity"]
    assert ((drawn >= 5) & (drawn <= 15)).all()
    for gravity in (4.0, velocirl.uniform(1, 2)):
        agent.set_params(gravity=gravity)
        again = type(agent).load(agent.save(tmp_path / "agent"))
        assert agent.learn(2048).parameters.tobytes() == again.learn(2048).parameters.tobytes()
        assert agent.arrays()["fleet.params"].tobytes() == again.arrays()["fleet.params"].tobytes()


def test_metrics_come_late_but_all_of_them():
    rows: list[dict] = []
    agent = build("dqn")
    length = agent.steps_of_iteration * COPIES
    agent.learn(4 * length, lambda agent: rows.append(dict(agent.metrics)))
    assert [row["time/total_timesteps"] for row in rows] == [length * k for k in range(1, 5)]
    assert [row["train/n_updates"] for row in rows] == [k * length // COPIES - WARM // COPIES for k in range(1, 5)]


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize("name", SEVEN)
def test_nothing_waits_within_an_iteration(name):
    """Torch raises where the host would wait for the GPU."""
    agent = build(name)
    for _ in range(3):
        stepped(agent, 20)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(3):
            stepped(agent, 20)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert agent.learner.drain().steps == 120 * COPIES


@pytest.mark.parametrize("name", SEVEN)
def test_memory_stays_as_it_is(name):
    agent = build(name)
    for _ in range(3):
        stepped(agent, 20)
    agent.drain()
    before = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    for _ in range(20):
        stepped(agent, 20)
    agent.drain()
    assert (torch.cuda.memory_allocated(), torch.cuda.memory_reserved()) == before


def test_a_reward_that_is_no_number_stops_the_run(tmp_path):
    agent = DQN(fragile, **LAYERS, device="cuda", **SMALL)
    agent.prepare()
    spoil(agent, 4, at=21, reward=nan)
    with pytest.raises(
        NumericalError, match=rf"a reward of the environment is not finite: copy 4, step {20 * COPIES} of"
    ):
        agent.learn(10**6, Checkpoint(tmp_path, every=1))
    assert not Checkpoints(tmp_path).steps()
    assert np.isfinite(agent.parameters).all()


def test_a_memory_that_does_not_fit_names_its_size():
    with pytest.raises(
        DeviceMemoryError, match=r"too little memory for 2,147,483,6.* transitions of .*reduce buffer_size"
    ):
        build("cnn", buffer_size=2**31 - 32).prepare()
    assert np.isfinite(settled(stepped(build("cnn"), 20))).all()


def test_updates_that_do_not_fit_are_told_with_what_to_change():
    said = (
        r"too little memory for updates of batch_size=1,048,576 .* give batch_size=524288 with gradient_accumulation=2"
    )
    with pytest.raises(DeviceMemoryError, match=said):
        build("cnn", batch_size=2**20, network="cnn(512) mlp(16)").prepare()
    assert np.isfinite(settled(stepped(build("cnn"), 20))).all()


def test_environments_of_the_host_learn_there_too():
    config = {**SMALL, "num_envs": 8, "train_every": 8, "learning_starts": 64}
    agent = DQN("gym:CartPole-v1", **LAYERS, device="cuda", **config).learn(2000)
    rows = agent.learner.state()["memory.rows"][:].reshape(-1, 8)
    goes_on = rows["ended"][:-1] == 0
    np.testing.assert_array_equal(rows["next_observation"][:-1][goes_on], rows["observation"][1:][goes_on])
    assert agent.metrics["train/n_updates"] == (2000 - 64) // 8


def test_what_the_host_sends_is_what_it_was_when_it_was_sent():
    """Sixteen arrays, each changed at once, behind work that takes the device a while."""
    from velocirl.backends.torch.device import CUDADevice

    source = np.zeros((64, 1024), np.float32)
    targets = [torch.zeros(64, 1024, device="cuda") for _ in range(16)]
    slow = torch.randn(4096, 4096, device="cuda")
    device = CUDADevice("float32")
    for k, target in enumerate(targets):
        for _ in range(8):
            slow = (slow @ slow).clamp(-1, 1)
        source[...] = k
        device.copy(target, source)
    source[...] = -1
    torch.cuda.synchronize()
    assert [(float(one.min()), float(one.max())) for one in targets] == [(k, k) for k in range(16)]


def test_the_peak_of_the_memory_is_told():
    agent = stepped(build("overlap"), 20)
    agent.drain()
    gauges = agent.learner.gauges()
    assert gauges["device/peak_bytes"] >= torch.cuda.memory_allocated() > 0
    assert gauges["collector/age_of_weights"] > 0
    assert gauges["learner/waiting_seconds"] + gauges["collector/waiting_seconds"] > 0


@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
def test_every_precision_learns(precision):
    """Identity-v0: perfect 16, random 4; seed 0, 60000 steps."""
    config = {"num_envs": 64, "batch_size": 256, "learning_rate": 5e-3, "gamma": 0.5, "train_every": 64, "seed": 0}
    agent = DQN("Identity-v0", **LAYERS, precision=precision, device="cuda", **config).learn(60_000)
    assert velocirl.evaluate(agent, episodes=100, seed=1).mean_return >= 15


def test_cartpole():
    """Of 500; seed 0, 400000 steps by 64 copies, eight updates of 256 transitions for each step of them."""
    config = {
        "num_envs": 64, "batch_size": 256, "learning_rate": 1e-3, "train_every": 64, "gradient_steps": 8,
        "learning_starts": 5000, "target_every": 100, "tau": 1.0, "gamma": 0.98, "n_step": 3, "seed": 0,
        "buffer_size": 100_000,
    }  # fmt: skip
    agent = DQN("CartPole-v1", network="mlp(64, 64)", device="cuda", **config).learn(400_000)
    assert velocirl.evaluate(agent, episodes=100, seed=1).mean_return >= 400


@pytest.mark.parametrize("kind", [SAC, TD3])
def test_pendulum(kind):
    """Random about -1200, good -150; seed 0, 100000 steps by 32 copies."""
    config = {
        "num_envs": 32, "batch_size": 256, "learning_rate": 1e-3, "train_every": 32, "gradient_steps": 8,
        "learning_starts": 2000, "gamma": 0.98, "seed": 0, "buffer_size": 100_000,
    }  # fmt: skip
    agent = kind("Pendulum-v1", network="mlp(128, 128)", device="cuda", **config).learn(100_000)
    assert velocirl.evaluate(agent, episodes=50, seed=1).mean_return >= -250
