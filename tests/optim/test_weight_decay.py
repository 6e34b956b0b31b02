"""Weight decay is of weights: what no input reaches, a free deviation or a temperature, keeps what it learnt."""

from copy import deepcopy

import numpy as np
import pytest
import torch

from velocirl import PPO, SAC
from velocirl.networks.mlp import MLP, Chain, Segment
from velocirl.optim.optimisers import SGD, Adam, AdamW, RMSProp
from velocirl.training.persistence import Goal

RATE, DECAY, FREE = 0.01, 0.5, -0.5
LEARNERS = {
    "threads": {"device": "cpu", "threads": 2, "shares": 2},
    "python": {"device": "python"},
    "torch": {"network": "mlp(8)"},
}
learners = pytest.mark.parametrize("learner", LEARNERS)


class Own(torch.nn.Module):
    """A module of somebody's, whose deviation is a parameter of its own."""

    def __init__(self, inputs=1, numbers=1):
        super().__init__()
        torch.manual_seed(0)
        self.hidden = torch.nn.Linear(inputs, 8)
        self.mean, self.value = torch.nn.Linear(8, numbers), torch.nn.Linear(8, 1)
        self.log_deviation = torch.nn.Parameter(torch.full((numbers,), FREE))

    def forward(self, observation):
        features = torch.tanh(self.hidden(observation))
        free = self.log_deviation.expand(*features.shape[:-1], -1)
        return torch.cat([self.mean(features), free], -1), self.value(features)


def updated(optimiser, **config):
    """The parameters before and after the first step of an optimiser."""
    agent = PPO(
        "IdentityContinuous-v0", seed=3, num_envs=4, horizon=8, epochs=1, minibatch_size=10**6, optimiser=optimiser,
        log_deviation=FREE, learning_rate=RATE, learning_rate_schedule="constant", max_grad_norm=0.0,
        **{"hidden": (8,), **config},
    )  # fmt: skip
    agent.goal = Goal(0, 10**6)
    agent.prepare()
    before = agent.arrays()["network.parameters"]
    agent.iterate()
    return before, agent.arrays()["network.parameters"]


def check(**config):
    (before, decayed), (same, plain) = (
        updated(f"adamw(weight_decay={decay})", **deepcopy(config)) for decay in (DECAY, 0)
    )
    np.testing.assert_array_equal(before, same)
    free = before == np.float32(FREE)
    assert free.sum() == 1
    assert plain[free] != before[free]
    np.testing.assert_array_equal(decayed[free], plain[free])
    np.testing.assert_allclose((plain - decayed)[~free], RATE * DECAY * before[~free], atol=1e-7)
    assert np.abs(plain - decayed).max() > 1e-4


@learners
@pytest.mark.parametrize("shared", [True, False])
def test_a_free_deviation_does_not_decay(learner, shared):
    check(shared=shared, **LEARNERS[learner])


def test_a_free_deviation_of_ones_own_module_does_not_decay():
    check(network=Own())


@learners
def test_a_temperature_does_not_decay(learner):
    """Ten steps of 0.1 in one direction; a decay by half in each step would keep it above -0.2."""
    agent = SAC(
        "IdentityContinuous-v0", seed=3, num_envs=2, buffer_size=64, learning_starts=8, batch_size=8, train_every=2,
        gradient_steps=1, learning_rate=0.1, learning_rate_schedule="constant", optimiser="adamw(weight_decay=5.0)",
        hidden=(8,), **{name: value for name, value in LEARNERS[learner].items() if name not in ("threads", "shares")},
    )  # fmt: skip
    agent.learn(8 + 2 * 10, progress=False)
    (log_temperature,) = agent.arrays()["numbers.values"].view(np.float32)
    assert log_temperature < -0.6


@pytest.mark.parametrize("kind", [AdamW(weight_decay=0.3), SGD(momentum=0.5, weight_decay=0.3)])
def test_what_does_not_decay_goes_by_the_same_rule(kind):
    without = kind.without_decay
    assert without == type(kind)(**{**vars(kind), "weight_decay": 0.0})
    assert without.rule == kind.rule
    assert without.slots == kind.slots


@pytest.mark.parametrize("kind", [Adam(), RMSProp()])
def test_an_optimiser_without_decay_is_the_same_everywhere(kind):
    assert kind.without_decay is kind


def test_ranges_that_do_not_decay():
    policy = Chain((4,), (Segment(0, 2), Segment(2, 2, free=-1.0)))
    network = MLP(3, (policy, Chain((4,), (Segment(4, 1),))))
    parameters = network.initial_parameters(np.random.default_rng(0))
    [[first, stop]] = network.undecayed.tolist()
    assert parameters[first:stop].tolist() == [-1.0, -1.0]
    assert MLP.of([3, 4, 2]).undecayed.shape == (0, 2)
