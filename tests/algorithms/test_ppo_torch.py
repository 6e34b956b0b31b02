"""PPO with torch networks: it learns, it goes on from files, also those of the native learner, and refuses by name."""

import dataclasses

import gymnasium
import numpy as np
import pytest
import torch
from choosing import slow_but
from parts import Parts
from torch import nn

import velocirl
from velocirl import A2C, PPO
from velocirl.runs.state_file import read_state, write_state

SMALL = {"num_envs": 6, "horizon": 16, "minibatch_size": 32, "epochs": 2, "threads": 1, "seed": 1, "device": "cpu",
         "activation": "tanh"}  # fmt: skip
BATCH = 96
LAYERS = {"network": "mlp(16, 16)"}
NATIVE = {"network": None, "hidden": (16, 16), "shared": True}


pytestmark = pytest.mark.usefixtures("one_torch_thread")


class Own(nn.Module):
    """A user's module, with a buffer that is kept and a layer that is frozen."""

    def __init__(self, inputs=1, outputs=2):
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.frozen, self.body, self.out = nn.Linear(inputs, 8), nn.Linear(8, 8), nn.Linear(8, outputs + 1)
        for one in self.parameters():
            one.data.uniform_(-0.5, 0.5, generator=generator)
        self.frozen.requires_grad_(False)
        self.register_buffer("scale", torch.tensor([0.1]))

    def forward(self, observation):
        return self.out(torch.tanh(self.body(torch.tanh(self.frozen(observation * self.scale)))))


@pytest.fixture(scope="module", autouse=True)
def _register():
    gymnasium.register("LearnParts-v7", Parts)
    yield
    gymnasium.registry.pop("LearnParts-v7")


NORMALISED = {"normalise_observations": True, "normalise_rewards": True}
AGENTS = {
    "mlp": ("Counter-v0", {**LAYERS}),
    "normalised": ("IdentityContinuous-v0", {**LAYERS, **NORMALISED}),
    "masked": ("TicTacToe-v1", {**LAYERS, "target_kl": 0.02, "gradient_accumulation": 2}),
    "cnn": ("CatchPixels-v0", {"network": "cnn(3) mlp(8)"}),
    "lstm": ("Counter-v0", {"network": "mlp(8) lstm(8)"}),
    "own": ("Counter-v0", {"network": Own}),
    "vtrace": ("Counter-v0", {**LAYERS, "estimator": "vtrace"}),
    "bf16": ("Counter-v0", {**LAYERS, "precision": "bf16"}),
}


def build(name, **changes):
    environment, config = AGENTS[name]
    config = {**SMALL, **config, **changes}
    return PPO(environment, **{**config, "network": Own() if config["network"] is Own else config["network"]})


def assert_same_state(found, expected):
    assert found.arrays.keys() == expected.arrays.keys()
    for name, array in expected.arrays.items():
        assert found.arrays[name].dtype == array.dtype
        assert found.arrays[name].tobytes() == array.tobytes(), name
    assert found.document == expected.document


@pytest.mark.parametrize("name", slow_but({"own"}, AGENTS))
def test_interrupted_and_resumed_is_the_same_as_uninterrupted(name, tmp_path):
    own = {"network": Own()} if name == "own" else {}
    whole = build(name).learn(5 * BATCH)
    half = build(name).learn(5 * BATCH, lambda agent: agent.steps < 2 * BATCH)
    assert (half.steps, half.finished) == (2 * BATCH, False)
    resumed = PPO.load(half.save(tmp_path / "half"), **own)
    assert_same_state(resumed.state(), half.state())  # before it trains, and so it can be saved again
    resumed.prepare()
    assert_same_state(resumed.state(), half.state())  # what preparing ran is undone
    resumed.learn()
    assert resumed.finished
    assert_same_state(resumed.state(), whole.state())
    half.learn()
    assert_same_state(half.state(), whole.state())


@pytest.mark.slow
def test_another_seed_is_another_run():
    first, same, other = (build("cnn", seed=seed).learn(2 * BATCH) for seed in (1, 1, 2))
    assert first.parameters.tobytes() == same.parameters.tobytes()
    assert first.parameters.tobytes() != other.parameters.tobytes()


def seen_by(agent, count=200):
    envs = velocirl.make_vec(agent.source.id, count, seed=4)
    envs.reset()
    envs.run_randomly(3)
    return envs.copies.observation.copy()


def outputs(agent, seen):
    """The deterministic actions, and of a Gaussian its means."""
    return agent.predict(seen, deterministic=True)[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp", "normalised", "masked"])
def test_a_torch_learner_goes_on_as_a_native_one(name, tmp_path):
    """And back again: parameters, optimiser, normalisers, the copies of the environment and their random streams."""
    torched = build(name).learn(4 * BATCH, lambda agent: agent.steps < 2 * BATCH)
    native = PPO.load(torched.save(tmp_path / "torch"), **NATIVE)
    assert native.config.network is None
    assert native.parameters.tobytes() == torched.parameters.tobytes()
    seen = seen_by(torched)
    np.testing.assert_allclose(outputs(native, seen), outputs(torched, seen), atol=1e-6)
    native.prepare()
    before = torched.arrays()
    for key, array in native.arrays().items():
        assert array.tobytes() == before[key].tobytes(), key
    native.learn()
    assert native.steps == 4 * BATCH
    back = PPO.load(native.save(tmp_path / "native"), **LAYERS)
    np.testing.assert_allclose(outputs(back, seen), outputs(native, seen), atol=1e-6)
    back.prepare()
    for key, array in native.arrays().items():
        counted = slice(-1, None) if key == "learner.minibatches" else ...  # those of the run
        assert back.arrays()[key][counted].tobytes() == array[counted].tobytes(), key
    back.learn(BATCH)
    assert back.metrics["train/n_updates"] > native.metrics["train/n_updates"]


@pytest.mark.parametrize(
    "threads",
    [1, 2],
)
def test_the_number_of_threads_may_change_on_the_way(threads, tmp_path):
    torched = build("mlp").learn(BATCH)
    native = PPO.load(torched.save(tmp_path / "torch"), **NATIVE, threads=threads).learn(BATCH)
    back = PPO.load(native.save(tmp_path / "native"), **LAYERS).learn(BATCH)
    assert back.steps == 3 * BATCH
    assert np.isfinite(back.parameters).all()
    assert back.parameters.tobytes() != native.parameters.tobytes()


def test_a_module_of_ones_own_is_not_in_the_file(tmp_path):
    agent = build("own").learn(2 * BATCH)
    path = agent.save(tmp_path / "own")
    assert read_state(path).document["config"]["network"] == "module Own"
    with pytest.raises(ValueError, match=r"a module of your own, Own, which no file holds: give network=Own\(\.\.\.\)"):
        PPO.load(path)
    other = Own()
    other.scale.fill_(7.0)
    other.frozen.weight.data.fill_(7.0)
    loaded = PPO.load(path, network=other)
    assert loaded.parameters.tobytes() == agent.parameters.tobytes()
    for key, array in agent.network.state_dict().items():
        assert torch.equal(other.state_dict()[key], array), key  # buffers and what is frozen are in the file too
    seen = np.linspace(0, 10, 100, dtype=np.float32)[:, None]
    np.testing.assert_array_equal(outputs(loaded, seen), outputs(agent, seen))
    with pytest.raises(ValueError, match=r"has an array .network\.buffer\S+, which does not belong to it"):
        PPO.load(path, network=nn.Linear(1, 3))


def test_a_module_is_trained_where_it_is():
    module = Own()
    before = {name: one.clone() for name, one in module.state_dict().items()}
    agent = PPO("Counter-v0", network=module, **SMALL).learn(2 * BATCH)
    changed = {name for name, one in module.state_dict().items() if not torch.equal(one, before[name])}
    assert changed == {"body.weight", "body.bias", "out.weight", "out.bias"}
    assert agent.network is module
    trained = [one.detach().numpy().reshape(-1) for one in module.parameters() if one.requires_grad]
    np.testing.assert_array_equal(agent.parameters, np.concatenate(trained))


@pytest.mark.parametrize("name", slow_but({"mlp", "lstm"}, ["mlp", "lstm", "cnn"]))
def test_a_model_of_a_gpu_acts_without_one(name, tmp_path):
    agent = build(name).learn(BATCH)
    state = agent.state()
    config = {**state.document["config"], "device": "cuda", "precision": "tf32"}
    path = tmp_path / "gpu.safetensors"
    write_state(path, state.arrays, {**state.document, "config": config})
    loaded = PPO.load(path)
    assert loaded.config.device == "cuda"
    seen = seen_by(agent)
    np.testing.assert_array_equal(outputs(loaded, seen), outputs(agent, seen))
    here = PPO.load(path, device="cpu", precision="float32")
    again = PPO.load(agent.save(tmp_path / "cpu"))
    for one in (here, again):
        one.learn(BATCH)
    assert here.parameters.tobytes() == again.parameters.tobytes()
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match=r'device="cuda" cannot be used: .*; give device="cpu"'):
            loaded.learn(BATCH)


class Drops(Own):
    def forward(self, observation):
        return self.dropout(super().forward(observation))

    def __init__(self):
        super().__init__()
        self.dropout = nn.Dropout(0.5)


class Batches(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.out = nn.BatchNorm1d(1, track_running_stats=False), nn.Linear(1, 3)

    def forward(self, observation):
        return self.out(self.norm(observation))


class Counts(Own):
    """Keeps a state of its own from call to call."""

    calls = 0

    def forward(self, observation):
        self.calls += 1
        return super().forward(observation) * (1 + 0.1 * self.calls)


class Overwrites(Own):
    def forward(self, observation):
        observation /= 255
        return super().forward(observation)


class Keeps(Own):
    """Updates a state of its own in place, where it should be an argument."""

    def __init__(self):
        super().__init__()
        self.register_buffer("state", torch.zeros(8))

    def forward(self, observation):
        self.state += 1
        return super().forward(observation)


def not_finite():
    module = Own()
    module.out.bias.data[1] = torch.nan
    return module


@pytest.mark.parametrize(
    ("network", "error", "message"),
    [
        (lambda: nn.Linear(1, 4), ValueError, r"a tensor \(3, 3\), or a tuple of tensors \(3, 2\), \(3, 1\); got a"),
        (not_finite, ValueError, r"Own: parameter out\.bias has values that are not finite"),
        (Batches, ValueError, r"the output of a row depends on the rows beside it, which are other episodes"),
        (Drops, ValueError, r"Drops gives different outputs for the same observation: dropout is a dropout"),
        (Counts, ValueError, r"Counts gives different outputs.*give the module a state_size"),
        (Keeps, ValueError, r"a forward pass changes the buffer state"),
        (Overwrites, ValueError, r"Overwrites changes its observation in place"),
        (lambda: 3, TypeError, r"must be a description such as 'mlp\(64, 64\)' or a torch\.nn\.Module, not int"),
        (lambda: Own, TypeError, r"a torch\.nn\.Module, not type"),
        (lambda: nn.Linear(2, 3), RuntimeError, r"shapes cannot be multiplied"),
        (lambda: "mpl(64)", ValueError, r"there is no stage 'mpl' of a network: did you mean 'mlp'"),
        (lambda: "cnn(8)", ValueError, r"a cnn reads images of two or three dimensions"),
    ],
)  # fmt: skip
def test_networks_that_cannot_be_trained_are_refused(network, error, message):
    with pytest.raises(error, match=message):
        PPO("Counter-v0", **SMALL, network=network())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"precision": "bf16"}, r"precision='bf16' needs a torch network, such as network=\"mlp\(64, 64\)\""),
        ({"precision": "fp16"}, r"precision='fp16' needs a torch network"),
        ({"precision": "tf32", **LAYERS}, "precision='tf32' needs device=\"cuda\""),
        ({"precision": "half"}, "precision"),
        ({"device": "tpu"}, "device"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        PPO("Counter-v0", **{**SMALL, **changes})


def test_what_is_to_be_compiled_is_a_module_of_torch():
    agent = PPO("Counter-v0", **SMALL, compile=True, hidden=(16, 16))
    assert isinstance(agent.network, nn.Module)
    assert not agent.is_native


def learnt(environment, steps, episodes=100, kind=PPO, **config):
    agent = kind(environment, **{"seed": 0, "threads": 1, "device": "cpu", "activation": "tanh", **config}).learn(steps)
    return velocirl.evaluate(agent, episodes=episodes, seed=1).mean_return


IDENTITY = {"num_envs": 32, "horizon": 16, "minibatch_size": 128, "learning_rate": 3e-3, "gamma": 0.0}


@pytest.mark.parametrize("precision", slow_but(set(), ["float32", "bf16"]))
def test_identity(precision):
    """Perfect 16, random 4; seed 0, 30000 steps. In bf16 products have 8 bits, and what is learnt is kept in 24."""
    assert learnt("Identity-v0", 30_000, network="mlp(64)", precision=precision, **IDENTITY) >= 15.5


@pytest.mark.parametrize("network", [pytest.param("mlp(32) gru(32)", marks=pytest.mark.slow), Own])
def test_identity_with_modules(network):
    """Perfect 16, random 4; seed 0, 40000 steps."""
    network = Own(4, 4) if network is Own else network
    if isinstance(network, Own):
        network.scale.fill_(1.0)
    assert learnt("Identity-v0", 40_000, network=network, **{**IDENTITY, "learning_rate": 1e-2}) >= 14


@pytest.mark.slow
def test_a2c():
    """Perfect 16, random 4; seed 0, 60000 steps."""
    config = {"num_envs": 32, "gamma": 0.0, "optimiser": "adam", "learning_rate": 3e-3, "entropy_coefficient": 0.01}
    assert learnt("Identity-v0", 60_000, kind=A2C, network="mlp(64)", **config) >= 15


@pytest.mark.slow
def test_pictures_are_learnt():
    """A perfect policy earns 1; seed 0, 100000 steps."""
    config = {"num_envs": 32, "horizon": 32, "minibatch_size": 256, "learning_rate": 3e-3}
    assert learnt("CatchPixels-v0", 100_000, network="cnn(8, stride=2) mlp(32)", **config) >= 0.9


@pytest.mark.parametrize("workers", slow_but({2}, [None, 2]))
def test_environments_of_gymnasium(workers):
    """It begins to balance: random is about 22, seed 0, 8192 steps."""
    agent = PPO(
        "gym:CartPole-v1", network="mlp(32, 32)", workers=workers, num_envs=8, horizon=64, minibatch_size=128, epochs=8,
        learning_rate=3e-3, gamma=0.98, seed=0, threads=1, device="cpu", activation="tanh",
    )  # fmt: skip
    try:
        agent.learn(8192)
        assert agent.metrics["rollout/ep_rew_mean"] > 45
        assert agent.metrics["train/n_updates"] == 16 * 8 * 4
    finally:
        agent.learner.collector.envs.close()


@pytest.mark.parametrize(
    "network",
    [
        pytest.param(None, marks=pytest.mark.slow),
        pytest.param("mlp(32)", marks=pytest.mark.slow),
        {"symbol": "mlp(16)", "then": "mlp(16)"},
        pytest.param({"then": "mlp(16) gru(16)"}, marks=pytest.mark.slow),
    ],
    ids=["native", "layers", "encoders", "recurrent"],
)
def test_observations_of_parts_are_learnt(network):
    """Perfect 8, random 8/3; seed 0, 12000 steps."""
    config = {"num_envs": 16, "horizon": 16, "minibatch_size": 64, "learning_rate": 1e-2, "gamma": 0.0}
    hidden = {"hidden": (32,), "shared": True} if network is None else {"network": network}
    assert learnt("gym:LearnParts-v7", 12_000, episodes=50, **config, **hidden) >= 7


def test_the_configuration_says_what_was_trained():
    agent = build("lstm")
    assert agent.config.network == "mlp(8) lstm(8)"
    assert agent.network.state_size == 16
    assert dataclasses.asdict(agent.config)["device"] == "cpu"
    assert build("own").config.network == "module Own"
    assert build("mlp").parameters.size == PPO("Counter-v0", **SMALL, hidden=(16, 16), shared=True).parameters.size


@pytest.mark.slow
def test_no_network_is_the_native_one_whatever_a_preset_says(tmp_path):
    assert PPO("Memory-v0", seed=0).config.network == "lstm(32)"
    agent = PPO("Memory-v0", network=None, seed=0, hidden=(8,), num_envs=4, minibatch_size=32).learn(64)
    assert agent.config.network is None
    assert PPO.load(agent.save(tmp_path / "native")).config.network is None
