"""SAC with torch networks: it learns, goes on from files, also those of the native learner, and refuses by name."""

import copy

import numpy as np
import pytest
import torch
from choosing import slow_but
from constrained import for_algorithm
from torch import nn

import velocirl
from velocirl.algorithms.online.sac import SAC

SMALL = {
    "num_envs": 4, "buffer_size": 400, "learning_starts": 40, "batch_size": 16, "train_every": 4, "gradient_steps": 1,
    "seed": 3, "threads": 1, "device": "cpu", "gamma": 0.9, "hidden": (16, 16), "n_step": 1,
}  # fmt: skip
LAYERS, NATIVE = {"network": "mlp(16, 16)"}, {"network": None}

pytestmark = pytest.mark.usefixtures("one_torch_thread")


class Actor(nn.Module):
    """A user's actor: means and logarithms of deviations."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.body, self.out = nn.Linear(1, 8), nn.Linear(8, 2)
        for one in self.parameters():
            one.data.uniform_(-0.5, 0.5, generator=generator)

    def forward(self, observation):
        return self.out(torch.tanh(self.body(observation)))


class Critic(nn.Module):
    """A user's two critics, with a buffer that is kept."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(4)
        self.first, self.second = (nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)) for _ in range(2))
        for one in self.parameters():
            one.data.uniform_(-0.5, 0.5, generator=generator)
        self.register_buffer("scale", torch.tensor([0.5]))

    def forward(self, observation, action):
        both = torch.cat([observation * self.scale, action], dim=-1)
        return torch.cat([self.first(both), self.second(both)], dim=-1)


MADE = {
    "layers": lambda: LAYERS,
    "priorities": lambda: {**LAYERS, "priority": "proportional", "n_step": 3},
    "own": lambda: {"network": Actor(), "critic": Critic()},
    "own critic": lambda: {"critic": Critic()},
}


def assert_same(found, expected, names):
    """Bit for bit, but for what lies between the fields of a record."""
    for name in names:
        assert (found[name].dtype, found[name].shape) == (expected[name].dtype, expected[name].shape), name
        for field in expected[name].dtype.names or (...,):
            assert found[name][field].tobytes() == expected[name][field].tobytes(), (name, field)


@pytest.mark.parametrize("name", slow_but({"own"}, MADE))
def test_interrupted_and_resumed_is_the_same_as_uninterrupted(name, tmp_path):
    def build():
        return SAC("IdentityContinuous-v0", **{**SMALL, **MADE[name]()})

    whole = build().learn(2000)
    half = build().learn(2000, lambda agent: agent.steps < 1000)
    modules = {key: one for key, one in MADE[name]().items() if isinstance(one, nn.Module)}
    resumed = SAC.load(half.save(tmp_path / "half"), **modules)
    resumed.prepare()
    assert_same(resumed.state().arrays, half.state().arrays, half.state().arrays)
    resumed.learn()
    assert_same(resumed.state().arrays, whole.state().arrays, whole.state().arrays)


@pytest.mark.slow
def test_a_torch_learner_goes_on_as_a_native_one(tmp_path):
    torched = SAC("IdentityContinuous-v0", **{**SMALL, **LAYERS}).learn(2000, lambda agent: agent.steps < 1000)
    native = SAC.load(torched.save(tmp_path / "torch"), **NATIVE)
    native.prepare()
    assert_same(native.state().arrays, torched.state().arrays, native.state().arrays)
    native.learn()
    back = SAC.load(native.save(tmp_path / "native"), **LAYERS)
    back.prepare()
    assert_same(back.state().arrays, native.state().arrays, native.state().arrays)
    back.learn(500)
    assert back.metrics["train/n_updates"] > native.metrics["train/n_updates"]


def returns_of(agent):
    return velocirl.evaluate(agent, episodes=100, seed=1).mean_return


LEARNING = {**SMALL, "buffer_size": 5000, "batch_size": 64, "learning_rate": 3e-3, "train_every": 4,
            "learning_starts": 200, "gamma": 0.5}  # fmt: skip


@pytest.mark.parametrize("name", slow_but({"layers"}, MADE))
def test_identity(name):
    """Perfect 0, random about -10: an observation is the action to take, and the reward the negative error."""
    agent = SAC("IdentityContinuous-v0", **{**LEARNING, **MADE[name]()})
    before = returns_of(agent)
    agent.learn(10_000 if name == "own critic" else 6000)  # whose actor begins halfway there
    assert returns_of(agent) > 0.2 * before
    assert agent.metrics["train/ent_coef"] < 0.9


class Blind(Critic):
    def forward(self, observation, action):
        return super().forward(observation, torch.zeros_like(action))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"network": "mlp(8) gru(8)"}, "SAC draws single steps from its memory, so that a network cannot remember"),
        ({"network": Actor()}, "a network of your own needs critics too: give critic"),
        ({"network": nn.Linear(1, 3), "critic": Critic()}, r"Linear must give a tensor \(3, 2\); got"),
        ({"network": Actor(), "critic": Blind()}, "Blind does not depend on the action"),
    ],
    ids=["recurrent", "critics", "outputs", "blind"],
)
def test_networks_that_cannot_learn_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        SAC("IdentityContinuous-v0", **{**SMALL, **changes}).prepare()


class Encoded(nn.Module):
    """An actor, or with an action critics, on an encoder that is given."""

    def __init__(self, encoder):
        super().__init__()
        self.encoder, self.actor, self.critics = encoder, nn.Linear(4, 2), nn.Linear(5, 2)

    def forward(self, observation, *action):
        read = self.encoder(observation)
        return self.critics(torch.cat([read, *action], dim=-1)) if action else self.actor(read)


@pytest.mark.parametrize("way", ["module", "encoder", "weight"])
def test_networks_that_share_what_they_learn_are_refused(way):
    """Each would take it away from the other without a word."""
    actor = Encoded(nn.Linear(1, 4))
    critic = actor if way == "module" else Encoded(actor.encoder if way == "encoder" else nn.Linear(1, 4))
    if way == "weight":
        critic.encoder.weight = actor.encoder.weight
    message = "'encoder.weight' of critic is 'encoder.weight' of network, and each network.*give critic a copy"
    with pytest.raises(ValueError, match=message):
        SAC("IdentityContinuous-v0", **SMALL, network=actor, critic=critic)


def test_networks_may_share_what_is_frozen_and_copies_learn_apart():
    encoder = nn.Linear(1, 4)
    frozen = copy.deepcopy(encoder).requires_grad_(False)
    before = frozen.weight.clone()
    for encoders in ((encoder, copy.deepcopy(encoder)), (frozen, frozen)):
        given = dict(zip(("network", "critic"), map(Encoded, encoders), strict=True))
        agent = SAC("IdentityContinuous-v0", **SMALL, **given).learn(80)
        assert np.isfinite(agent.parameters).all()
    torch.testing.assert_close(frozen.weight, before, rtol=0, atol=0)


def test_a_module_for_several_networks_begins_each_of_them_and_is_part_of_one():
    """Cost critics are made as the critics are: with batch norms that take statistics of their own."""

    class Normed(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.out = nn.BatchNorm1d(4), nn.Linear(4, 2)

        def forward(self, observation, action):
            return self.out(self.norm(torch.cat([observation, action], dim=-1)))

    env = for_algorithm(velocirl.SACLagrangian, "Pendulum-v1")
    module = Normed()
    agent = velocirl.SACLagrangian(env, **SMALL, network="mlp(8)", critic=module)
    critics, costs = (agent.built[name].held for name in ("critics", "cost_critics"))
    assert critics.module is module
    assert (critics.takes_statistics, costs.takes_statistics) == (True, True)
    np.testing.assert_array_equal(critics.to_host(), costs.to_host())
    costs.parameters.zero_()
    assert torch.count_nonzero(module.out.weight) == 8


def test_a_critic_of_ones_own_learns_and_keeps_its_buffers(tmp_path):
    critic = Critic()
    agent = SAC("IdentityContinuous-v0", **{**SMALL, "network": Actor(), "critic": critic}).learn(400)
    state = agent.state()
    np.testing.assert_array_equal(state.arrays["critics.buffer.scale"], [0.5])
    assert state.document["config"]["critic"] == "module Critic"
    other = Critic()
    other.scale.fill_(9.0)
    loaded = SAC.load(agent.save(tmp_path / "own"), network=Actor(), critic=other)
    loaded.prepare()
    np.testing.assert_array_equal(loaded.state().arrays["critics.parameters"], state.arrays["critics.parameters"])
    target = loaded.learner.networks.networks["target_critics"].module
    assert target.scale.item() == 0.5
    inputs = torch.linspace(-1, 1, 20).view(10, 2)
    critics = (one.learner.networks.networks["critics"] for one in (loaded, agent))
    np.testing.assert_array_equal(*(one.forward(inputs)[0] for one in critics))
