"""Training on a GPU against training on the CPU: the same learner, as graphs, in any precision, and its failures."""

from __future__ import annotations

import gc
import weakref
from math import inf, nan

import numpy as np
import pytest
from choosing import on_cuda
from fragile import fragile, spoil
from hybrid import aiming, forbidding

import velocirl
from velocirl import PPO, Box, Checkpoint, Discrete, Environment, Evaluate, NumericalError, int32, record
from velocirl.program.faults import DeviceMemoryError
from velocirl.runs.checkpoints import Checkpoints
from velocirl.training.persistence import Goal

torch = pytest.importorskip("torch")


pytestmark = on_cuda()

SMALL = {
    "num_envs": 32, "horizon": 16, "minibatch_size": 128, "epochs": 2, "seed": 5, "threads": 1, "activation": "tanh",
    "learning_rate": 3e-3, "gamma": 0.9,
}  # fmt: skip
BATCH = 512
WHOLE = {"minibatch_size": 10**9, "epochs": 1}  # one minibatch of everything, in which no order counts
PLAIN = {"optimiser": "sgd", "max_grad_norm": 0.0, **WHOLE}  # parameters move along the gradient
EXACT = {"precision": "float32"}


class Own(torch.nn.Module):
    """A user's module, with a layer that is frozen and a buffer."""

    def __init__(self, inputs=4, outputs=2):
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.frozen, self.body = torch.nn.Linear(inputs, 16), torch.nn.Linear(16, 16)
        self.out = torch.nn.Linear(16, outputs + 1)
        for one in self.parameters():
            one.data.uniform_(-0.5, 0.5, generator=generator)
        self.frozen.requires_grad_(False)
        self.register_buffer("scale", torch.tensor([0.5]))

    def forward(self, observation):
        return self.out(torch.tanh(self.body(torch.tanh(self.frozen(observation * self.scale)))))


@pytest.fixture
def define_counting():
    """An environment whose state counts steps, as the engine does, and reports them."""
    return Environment(
        "CUDACounting-v0", state=Counting, params=Lengths, observation=Box(0, 99, (1,)), action=Discrete(2),
        reset=begin, step=count_up, observe=show, report=("count",),
    )  # fmt: skip


@record
class Counting:
    count: int32


@record
class Lengths:
    length: int32 = 3


def begin(state, params, rng):
    state.count = 0


def count_up(state, params, action, rng):
    state.count += 1
    return 1.0, state.count >= params.length


def show(state, params, observation):
    observation[0] = state.count


AGENTS = {
    "mlp": ("CartPole-v1", {"network": "mlp(32, 32)"}),
    "native": ("CartPole-v1", {"hidden": (32, 32)}),
    "continuous": ("Pendulum-v1", {"network": "mlp(32)"}),
    "several parts": (aiming, {"network": "mlp(32)"}),
    "several parts, masked": (forbidding, {"hidden": (32, 32), "shared": True}),
    "masked": ("TicTacToe-v1", {"network": "mlp(32)"}),
    "cnn": ("CatchPixels-v0", {"network": "cnn(4, 8) mlp(16)"}),
    "lstm": ("CartPole-v1", {"network": "mlp(16) lstm(16)"}),
    "gru": ("Memory-v0", {"network": "gru(16)"}),
    "own": ("CartPole-v1", {"network": Own}),
}
FOUR = ["mlp", "cnn", "lstm", "own"]


def build(name, device="cuda", **changes):
    environment, config = AGENTS[name]
    config = {**SMALL, **EXACT, **config, **changes}
    if config.get("network") is Own:
        config["network"] = Own()
    agent = PPO(environment, device=device, **config)
    agent.goal = Goal(0, 10**6)
    return agent


def iterated(agent, iterations=1):
    agent.prepare()
    for _ in range(iterations):
        agent.iterate()
    agent.drain()
    return agent


def assert_near(found, expected, tolerance):
    assert np.abs(found - expected).max() <= tolerance * np.abs(expected).max()


def own_again(name):
    return {"network": Own()} if name == "own" else {}


@pytest.mark.parametrize("name", AGENTS)
def test_gradients_are_those_of_the_cpu(name):
    """From the same seed both collect the same rollout; one step along its gradient."""
    changes = {**PLAIN, "shared": True} if name == "native" else PLAIN
    agents = [build(name, device, **changes) for device in ("cpu", "cuda")]
    before = agents[0].parameters.copy()
    np.testing.assert_array_equal(agents[1].parameters, before)
    moved = [iterated(agent).parameters - before for agent in agents]
    assert np.abs(moved[0]).max() > 1e-5
    assert_near(moved[1], moved[0], 1e-3)


@pytest.mark.parametrize("name", FOUR)
def test_graphs_do_what_single_calls_do(name, monkeypatch):
    """Ten iterations, bit for bit."""
    graphs = build(name, normalise_observations=True, normalise_rewards=True)
    single = build(name, normalise_observations=True, normalise_rewards=True)
    graphs.prepare()
    monkeypatch.setenv("VELOCIRL_CUDA_GRAPHS", "0")
    single.prepare()
    assert graphs.learner.device.captures
    assert not single.learner.device.captures
    assert iterated(graphs, 10).parameters.tobytes() == iterated(single, 10).parameters.tobytes()


@pytest.mark.parametrize("changes", [
    {"gradient_accumulation": 3}, {"estimator": "vtrace"}, {"target_kl": 0.001}, {"precision": "fp16"},
    {"estimator": "vtrace", "overlap": True},
], ids=str)  # fmt: skip
def test_graphs_of_every_kind_of_update(changes, monkeypatch):
    graphs, single = build("mlp", **changes), build("mlp", **changes)
    graphs.prepare()
    monkeypatch.setenv("VELOCIRL_CUDA_GRAPHS", "0")
    assert iterated(graphs, 5).parameters.tobytes() == iterated(single, 5).parameters.tobytes()


def test_garbage_of_an_earlier_agent_spoils_no_graph(monkeypatch):
    """Freeing memory of a GPU while a graph is recorded would make that fail."""
    from velocirl.backends.torch.device import CUDADevice

    # Several, since numba keeps what is to be freed until there is enough of it.
    earlier = [PPO("CartPole-v1", **SMALL, hidden=(8,), device="cuda").learn(BATCH) for _ in range(6)]
    known, capture = [weakref.ref(one) for one in earlier], CUDADevice.capture
    for one in earlier:
        one.itself = one
    del one

    def littering(device, function, stream=None):
        def run():
            earlier.clear()  # they hold each other, and wait to be collected
            if gc.isenabled():  # then that may happen at any moment
                gc.collect()
            function()

        return capture(device, run, stream)

    monkeypatch.setattr(CUDADevice, "capture", littering)
    PPO("CartPole-v1", **SMALL, hidden=(8,), device="cuda").learn(BATCH)
    gc.collect()
    assert all(one() is None for one in known)  # they were garbage, and are gone now


@pytest.mark.parametrize("name", FOUR)
def test_interrupted_and_resumed_is_the_same_as_uninterrupted(name, tmp_path):
    whole = build(name).learn(6 * BATCH)
    half = build(name).learn(6 * BATCH, lambda agent: agent.steps < 3 * BATCH)
    assert (half.steps, half.finished) == (3 * BATCH, False)
    resumed = PPO.load(half.save(tmp_path / "half"), **own_again(name))
    assert resumed.config.device == "cuda"
    resumed.learn()
    assert_same_arrays(resumed, whole)
    half.learn()
    assert_same_arrays(half, whole)


def assert_same_arrays(found, expected):
    arrays, wanted = found.arrays(), expected.arrays()
    assert arrays.keys() == wanted.keys()
    for key, array in wanted.items():
        assert arrays[key].tobytes() == array.tobytes(), key


@pytest.mark.parametrize("changes", [{}, {"estimator": "vtrace", "overlap": True}], ids=["alone", "overlap"])
def test_physics_that_is_drawn_is_resumed_exactly(changes, tmp_path):
    changes = {"params": {"gravity": velocirl.uniform(5, 15)}, **changes}
    whole = build("mlp", **changes).learn(6 * BATCH)
    half = build("mlp", **changes).learn(6 * BATCH, lambda agent: agent.steps < 3 * BATCH)
    resumed = PPO.load(half.save(tmp_path / "half")).learn()
    assert_same_arrays(resumed, whole)
    drawn = whole.arrays()["fleet.params"]["gravity"]
    assert ((drawn >= 5) & (drawn <= 15)).all()
    assert len(np.unique(drawn)) > 1


def test_a_curriculum_loses_no_row(tmp_path):
    """Numbers are set in the fleet; where other parameters are drawn, another learner goes on."""
    rows = []

    def harder(agent):
        rows.append(agent.metrics["time/total_timesteps"])
        if len(rows) in (2, 3):
            agent.set_params(gravity=float(len(rows)))
            assert (agent.arrays()["fleet.params"]["gravity"] == len(rows)).all()
        if len(rows) == 5:
            agent.set_params(gravity=velocirl.uniform(20, 21))

    agent = build("mlp").learn(9 * BATCH, harder)
    assert rows == [BATCH * k for k in range(1, 10)]
    again = PPO.load(agent.save(tmp_path / "agent"))
    assert_same_arrays(again.learn(20 * BATCH), agent.learn(20 * BATCH))
    assert (agent.arrays()["fleet.params"]["gravity"] >= 20).all()


def test_one_number_for_each_copy_and_reports_are_those_of_the_cpu(define_counting):
    params = {"length": np.arange(1, 33)}
    agents = [
        PPO(define_counting, device=device, params=params, **{**SMALL, **WHOLE}, network="mlp(8)").learn(4 * BATCH)
        for device in ("cpu", "cuda")
    ]
    for agent in agents:
        np.testing.assert_array_equal(agent.arrays()["fleet.params"]["length"], params["length"])
        assert agent.metrics["episode/count"] == agent.metrics["rollout/ep_len_mean"]
    assert list(agents[0].recent.reported["count"]) == list(agents[1].recent.reported["count"])


def test_a_run_moves_from_one_device_to_the_other(tmp_path):
    """What the CPU's torch learner saved, the GPU goes on from; the same steps within rounding."""
    begun = build("mlp", "cpu", **WHOLE).learn(4 * BATCH, lambda agent: agent.steps < 2 * BATCH)
    path = begun.save(tmp_path / "begun")
    moved = PPO.load(path, device="cuda").learn()
    stayed = PPO.load(path).learn()
    assert_near(moved.parameters - begun.parameters, stayed.parameters - begun.parameters, 5e-2)


def test_normalisers_are_those_of_the_cpu():
    """Three iterations over everything at once; observations and rewards are normalised by what was seen before."""
    changes = {**PLAIN, "normalise_observations": True, "normalise_rewards": True, "learning_rate": 0.01}
    cpu, gpu = (iterated(build("mlp", device, **changes), 3) for device in ("cpu", "cuda"))
    for name in ("observation.moments", "reward.moments"):
        assert cpu.arrays()[name].all()
        np.testing.assert_allclose(gpu.arrays()[name], cpu.arrays()[name], rtol=1e-4)
    before = build("mlp", "cpu").parameters
    assert_near(gpu.parameters - before, cpu.parameters - before, 1e-3)


def test_environments_of_the_host_are_normalised_as_on_the_cpu():
    """The copies step in Python, the learner is on the GPU; what it makes of a rollout counts for the next one."""
    config = {**SMALL, **PLAIN, **EXACT, "num_envs": 8, "normalise_observations": True, "learning_rate": 0.01}
    agents = []
    for device in ("cpu", "cuda"):
        agent = PPO("gym:CartPole-v1", network="mlp(32)", device=device, **config)
        agent.goal = Goal(0, 10**6)
        agents.append(iterated(agent, 3))
    moments = [agent.arrays()["observation.moments"] for agent in agents]
    np.testing.assert_allclose(moments[1], moments[0], rtol=1e-4)
    assert_near(agents[1].parameters, agents[0].parameters, 1e-3)


def test_metrics_come_late_but_all_of_them():
    """The row of an iteration comes when the next one has begun, the last one at the end; none is lost or doubled."""
    rows: list[dict] = []
    ahead: list[int] = []

    def watch(agent):
        rows.append(dict(agent.metrics))
        ahead.append(agent.steps - agent.metrics["time/total_timesteps"])

    agent = build("mlp", **WHOLE).learn(10 * BATCH, watch)
    assert agent.steps == 10 * BATCH
    assert [row["time/total_timesteps"] for row in rows] == [BATCH * k for k in range(1, 11)]
    assert [row["time/iterations"] for row in rows] == list(range(1, 11))
    assert [row["train/n_updates"] for row in rows] == list(range(1, 11))
    assert ahead == [BATCH] * 9 + [0]
    expected: list[dict] = []
    cpu = build("mlp", "cpu", **WHOLE).learn(10 * BATCH, lambda agent: expected.append(dict(agent.metrics)))
    assert list(agent.recent.lengths) == list(cpu.recent.lengths)
    for row, other in zip(rows[:3], expected[:3], strict=True):
        for name in ("rollout/ep_rew_mean", "train/loss", "train/value_loss", "train/entropy_loss",
                     "train/learning_rate", "train/explained_variance", "train/gradient_norm"):  # fmt: skip
            assert row[name] == pytest.approx(other[name], rel=1e-2, abs=1e-3), name


@pytest.mark.parametrize("name", ["mlp", "lstm"])
def test_a_checkpoint_of_any_moment_leads_to_the_same_end(name, tmp_path):
    """Checkpoints and evaluations on the way read what is under way, and change nothing."""
    alone = build(name).learn(6 * BATCH)
    watched = build(name)
    callbacks = [Checkpoint(tmp_path, every=1, keep=10), Evaluate(every=2 * BATCH, episodes=4)]
    watched.learn(6 * BATCH, callbacks)
    assert watched.parameters.tobytes() == alone.parameters.tobytes()
    saved = Checkpoints(tmp_path, keep=10).steps()
    assert len(saved) >= 4
    for steps, path in saved.items():
        resumed = PPO.load(path)
        assert resumed.steps == steps
        if not resumed.finished:
            resumed.learn()
        assert resumed.parameters.tobytes() == alone.parameters.tobytes(), steps


@pytest.mark.parametrize(("numbers", "source"), [
    ({"reward": nan}, "a reward of the environment"), ({"reward": -inf}, "a reward of the environment"),
    ({"observation": nan}, "an observation of the environment"),
])  # fmt: skip
@pytest.mark.parametrize("network", ["mlp(16)", "mlp(8) gru(8)"])
def test_numbers_that_are_none_stop_the_run(numbers, source, network, tmp_path):
    """In the second rollout. No checkpoint holds anything that came after."""
    agent = PPO(fragile, network=network, device="cuda", normalise_observations=True, **SMALL)
    agent.prepare()
    at = 21 if "reward" in numbers else 20
    spoil(agent, 4, at=at, **numbers)
    message = rf"{source} is not finite: copy 4, step {BATCH + 4 * 32} of the run \(4 of this rollout\)"
    with pytest.raises(NumericalError, match=message):
        agent.learn(10 * BATCH, Checkpoint(tmp_path, every=1))
    saved = Checkpoints(tmp_path).steps()
    assert all(steps <= BATCH for steps in saved), saved
    for path in saved.values():
        arrays = PPO.load(path, env=fragile).arrays()
        assert all(np.isfinite(array).all() for array in arrays.values() if array.dtype.kind == "f")
    assert np.isfinite(agent.parameters).all()


def test_a_step_that_leaves_the_numbers_stops_the_run(tmp_path):
    agent = PPO(fragile, network="mlp(16)", device="cuda", **{**SMALL, "learning_rate": 3e38, "max_grad_norm": 0.0})
    with pytest.raises(NumericalError, match="is not finite"):
        agent.learn(10 * BATCH, Checkpoint(tmp_path, every=1))
    assert not Checkpoints(tmp_path).steps()


def test_too_little_memory(tmp_path):
    """The error says what to reduce; what was saved is whole, and a smaller agent trains at once."""
    build("mlp").learn(2 * BATCH, Checkpoint(tmp_path, every=1))
    latest = Checkpoints(tmp_path).latest()
    message = refused_for_memory()
    assert "num_envs=1,048,576" in message
    assert "horizon=8,192" in message
    assert "reduce num_envs or minibatch_size" in message
    gc.collect()
    resumed = PPO.load(latest.path)
    assert resumed.steps == latest.step == 2 * BATCH
    resumed.learn(BATCH)
    assert np.isfinite(resumed.parameters).all()


def refused_for_memory():
    with pytest.raises(DeviceMemoryError) as caught:
        build("mlp", num_envs=2**20, horizon=2**13).learn(1)
    return str(caught.value)


@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16", "fp16"])
@pytest.mark.parametrize("network", ["mlp(64)", "mlp(32) gru(32)"])
def test_every_precision_learns(precision, network, tmp_path):
    """Identity-v0: perfect 16, random 4; seed 0, 60000 steps."""
    config = {"num_envs": 64, "horizon": 16, "minibatch_size": 256, "learning_rate": 5e-3, "gamma": 0.0}
    agent = PPO("Identity-v0", network=network, precision=precision, device="cuda", seed=0, **config).learn(60_000)
    assert velocirl.evaluate(agent, episodes=100, seed=1).mean_return >= 15
    scaled = agent.arrays().get("learner.loss_scale")
    assert (scaled is not None) == (precision == "fp16")
    if scaled is not None:
        resumed = PPO.load(agent.save(tmp_path / "scaled"))
        resumed.prepare()
        assert resumed.arrays()["learner.loss_scale"] == scaled >= 1


def test_pictures_are_learnt():
    """CatchPixels-v0: perfect 1; seed 0, 200000 steps."""
    config = {"num_envs": 128, "horizon": 16, "minibatch_size": 512, "learning_rate": 3e-3}
    agent = PPO("CatchPixels-v0", network="cnn(8, stride=2) mlp(64)", device="cuda", seed=0, **config).learn(200_000)
    assert velocirl.evaluate(agent, episodes=200, seed=1).mean_return >= 0.9


@pytest.mark.parametrize("name", ["mlp", "native", "cnn", "lstm", "own", "continuous"])
def test_a_trained_model_acts_the_same_on_the_cpu(name, tmp_path):
    agent = build(name, learning_rate=0.01).learn(4 * BATCH)
    here = PPO.load(agent.save(tmp_path / "model"), device="cpu", **own_again(name))
    envs = velocirl.make_vec(agent.source.id, 200, seed=4)
    envs.reset()
    envs.run_randomly(5)
    seen = envs.copies.observation.copy()
    expected, state = agent.predict(seen, deterministic=True)
    actions, same = here.predict(seen, deterministic=True)
    np.testing.assert_allclose(actions, expected, atol=1e-6)
    if state is not None:
        np.testing.assert_allclose(same, state, atol=1e-6)
    learnt = agent.learner.networks.networks["policy"]
    np.testing.assert_array_equal(learnt.to_host(), here.parameters)
    inputs = torch.rand(64, here.encoding.inputs)
    memory = torch.rand(64, learnt.state_size) if learnt.state_size else None
    with torch.no_grad(), agent.learner.device.at_work():
        made, _ = learnt.forward(inputs.cuda(), None if memory is None else memory.cuda())
        made = made.cpu().clone()
    here.prepare()
    with torch.no_grad():
        wanted = here.learner.networks.networks["policy"].forward(inputs, memory)[0] if name != "native" else None
    if wanted is not None:
        np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize("name", FOUR)
def test_nothing_waits_within_an_iteration(name):
    """Torch raises where the host would wait for the GPU."""
    agent = build(name, normalise_observations=True, normalise_rewards=True, target_kl=0.01)
    iterated(agent, 3)
    learner, schedule = agent.learner, agent.schedule(agent.config.learning_rate)
    learner.iterate(schedule, 4 * BATCH)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for k in range(5, 8):
            learner.iterate(schedule, k * BATCH)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert learner.drain().steps == 7 * BATCH
