"""DQN with torch networks: it learns, goes on from files, also those of the native learner, and refuses by name."""

import numpy as np
import pytest
import torch
from choosing import slow_but
from torch import nn

import velocirl
from velocirl import DQN

SMALL = {
    "num_envs": 4, "buffer_size": 400, "learning_starts": 40, "batch_size": 16, "train_every": 4, "gradient_steps": 1,
    "target_every": 5, "seed": 3, "threads": 1, "device": "cpu", "gamma": 0.9, "hidden": (16, 16), "n_step": 1,
}  # fmt: skip
LAYERS, NATIVE = {"network": "mlp(16, 16)"}, {"network": None}

pytestmark = pytest.mark.usefixtures("one_torch_thread")


class Own(nn.Module):
    """A user's module, with the statistics of a batch norm that stands still."""

    def __init__(self, inputs=1, outputs=3):
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.body, self.norm, self.out = nn.Linear(inputs, 8), nn.BatchNorm1d(8), nn.Linear(8, outputs)
        for one in self.parameters():
            one.data.uniform_(-0.5, 0.5, generator=generator)
        self.norm.running_mean.fill_(0.25)
        self.norm.running_var.fill_(4.0)
        self.norm.eval()

    def forward(self, observation):
        return self.out(torch.relu(self.norm(self.body(observation))))


AGENTS = {
    "mlp": ("Counter-v0", LAYERS),
    "priorities": ("Counter-v0", {**LAYERS, "priority": "proportional", "n_step": 3}),
    "masked": ("TicTacToe-v1", LAYERS),
    "cnn": ("CatchPixels-v0", {"network": "cnn(3) mlp(8)", "dueling": False}),
    "own": ("Counter-v0", {"network": Own}),
    "bf16": ("Counter-v0", {**LAYERS, "precision": "bf16"}),
}


def build(name, **changes):
    environment, config = AGENTS[name]
    config = {**SMALL, **config, **changes}
    return DQN(environment, **{**config, "network": Own() if config["network"] is Own else config["network"]})


def assert_same(found, expected, names):
    """Bit for bit, but for what lies between the fields of a record."""
    for name in names:
        assert (found[name].dtype, found[name].shape) == (expected[name].dtype, expected[name].shape), name
        for field in expected[name].dtype.names or (...,):
            assert found[name][field].tobytes() == expected[name][field].tobytes(), (name, field)


def assert_same_state(found, expected):
    assert found.arrays.keys() == expected.arrays.keys()
    assert_same(found.arrays, expected.arrays, expected.arrays)
    assert found.document == expected.document


@pytest.mark.parametrize("name", slow_but({"priorities", "own"}, AGENTS))
def test_interrupted_and_resumed_is_the_same_as_uninterrupted(name, tmp_path):
    own = {"network": Own()} if name == "own" else {}
    whole = build(name).learn(3000)
    half = build(name).learn(3000, lambda agent: agent.steps < 1500)
    assert 1500 <= half.steps < 3000
    resumed = DQN.load(half.save(tmp_path / "half"), **own)
    assert_same_state(resumed.state(), half.state())
    resumed.prepare()
    assert_same_state(resumed.state(), half.state())
    resumed.learn()
    assert_same_state(resumed.state(), whole.state())


@pytest.mark.parametrize("priority", ["none", pytest.param("proportional", marks=pytest.mark.slow)])
def test_a_torch_learner_goes_on_as_a_native_one(priority, tmp_path):
    """And back again: parameters, target network, optimiser, memory, copies of the environment and random streams."""
    torched = build("mlp", priority=priority).learn(2000, lambda agent: agent.steps < 1000)
    native = DQN.load(torched.save(tmp_path / "torch"), **NATIVE)
    native.prepare()
    assert_same(native.state().arrays, torched.state().arrays, native.state().arrays)
    native.learn()
    assert native.steps == 2000
    back = DQN.load(native.save(tmp_path / "native"), **LAYERS)
    back.prepare()
    assert_same(back.state().arrays, native.state().arrays, native.state().arrays)
    back.learn(500)
    assert back.metrics["train/n_updates"] > native.metrics["train/n_updates"]


def learnt(environment, steps, episodes=100, **config):
    agent = DQN(environment, **{**SMALL, **config}).learn(steps)
    return velocirl.evaluate(agent, episodes=episodes, seed=1).mean_return


OPTIONS = {
    "plain": {"double": False, "dueling": False},
    "all": {"priority": "proportional", "n_step": 3, "tau": 0.05, "target_every": 1},
    "bf16": {"precision": "bf16"},
}


@pytest.mark.parametrize("name", slow_but({"all"}, OPTIONS))
def test_identity(name):
    """Perfect 16, random 4: each observation says what to do."""
    config = {"learning_starts": 200, "learning_rate": 5e-3, "batch_size": 32, "buffer_size": 3000, **LAYERS}
    assert learnt("Identity-v0", 6000, **config, **OPTIONS[name]) >= 15.5


@pytest.mark.slow
def test_a_convolution_learns_to_catch():
    """Perfect 1, random about -0.6: the ball and the paddle are to be seen in an image."""
    config = {
        "network": "cnn(8) mlp(32)", "num_envs": 16, "buffer_size": 20_000, "batch_size": 64, "learning_starts": 1000,
        "learning_rate": 1e-3, "train_every": 8, "target_every": 50,
    }  # fmt: skip
    assert learnt("CatchPixels-v0", 20_000, **config) >= 0.9


def test_a_module_of_ones_own_learns_where_it_is(tmp_path):
    module = Own()
    before = {name: one.clone() for name, one in module.state_dict().items()}
    agent = DQN("Counter-v0", **{**SMALL, "network": module}).learn(400)
    changed = {name for name, one in module.state_dict().items() if not torch.equal(one, before[name])}
    assert agent.network is module
    assert changed == {f"{part}.{kind}" for part in ("body", "norm", "out") for kind in ("weight", "bias")}
    target = agent.learner.networks.networks["target_values"].module
    assert target is not module
    assert torch.equal(target.norm.running_var, module.norm.running_var)
    path = agent.save(tmp_path / "own")
    with pytest.raises(ValueError, match=r"a module of your own, Own, which no file holds: give network=Own\(\.\.\.\)"):
        DQN.load(path)
    other = Own()
    other.norm.running_mean.fill_(7.0)
    loaded = DQN.load(path, network=other)
    loaded.prepare()
    assert torch.equal(other.norm.running_mean, module.norm.running_mean)
    target = loaded.learner.networks.networks["target_values"].module
    assert torch.equal(target.norm.running_mean, module.norm.running_mean)
    seen = np.linspace(0, 10, 50, dtype=np.float32)[:, None]
    acts = (one.predict(seen, deterministic=True)[0] for one in (loaded, agent))
    np.testing.assert_array_equal(*acts)


class Remembers(Own):
    state_size = 4


@pytest.mark.parametrize(
    ("network", "message"),
    [
        ("mlp(8) lstm(8)", "the network has lstm, but DQN draws single steps from its memory"),
        (nn.Linear(1, 7), r"Linear must give a tensor \(3, 3\); got a tensor \(3, 7\)"),
        (Remembers(), "Remembers has a state_size, but DQN draws single steps from its memory.*use PPO"),
        (3, "network must be a description such as 'mlp.64, 64.' or a torch.nn.Module, not int"),
    ],
    ids=["recurrent", "outputs", "state", "number"],
)
def test_networks_that_cannot_learn_are_refused(network, message):
    with pytest.raises((ValueError, TypeError), match=message):
        DQN("Counter-v0", **{**SMALL, "network": network})


def test_without_dueling_a_module_gives_the_values_alone():
    with pytest.raises(ValueError, match=r"Linear must give a tensor \(3, 2\); got a tensor \(3, 3\)"):
        DQN("Counter-v0", **{**SMALL, "network": nn.Linear(1, 3), "dueling": False})
    agent = DQN("Counter-v0", **{**SMALL, "network": nn.Linear(1, 2), "dueling": False}).learn(200)
    assert agent.metrics["train/n_updates"] == 40
