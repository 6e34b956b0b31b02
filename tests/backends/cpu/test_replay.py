"""Updates of DQN on CPU threads against torch: the same batches and losses, Adam, clipping and the target network."""

import numpy as np
import pytest
import torch

from velocirl import DQN, NumericalError
from velocirl.program.clock import FAULT
from velocirl.training.persistence import Goal

SETTINGS = {"num_envs": 4, "hidden": (24, 17), "seed": 3, "learning_starts": 200, "batch_size": 50, "train_every": 4,
            "target_every": 3, "buffer_size": 400, "gamma": 0.9, "learning_rate": 3e-3, "max_grad_norm": 0.7,
            "optimiser": "adam(epsilon=1e-4)"}  # fmt: skip


pytestmark = pytest.mark.usefixtures("one_torch_thread")


class Reference:
    """The network of an agent in torch, in double precision."""

    def __init__(self, agent):
        self.agent = agent
        self.online, self.frozen = (self._layers(agent.parameters) for _ in range(2))
        self.optimiser = torch.optim.Adam([one for pair in self.online for one in pair], lr=3e-3, eps=1e-4)

    def _layers(self, parameters):
        return [
            tuple(torch.tensor(one.astype(np.float64), requires_grad=True) for one in pair)
            for pair in self.agent.network.layers(parameters)
        ]

    def values(self, layers, observations):
        rows = torch.tensor(observations.astype(np.float64))
        for number, (weights, biases) in enumerate(layers):
            rows = rows @ weights + biases
            if number < len(layers) - 1:
                rows = torch.relu(rows)
        if not self.agent.config.dueling:
            return rows
        return rows[:, -1:] + rows[:, :-1] - rows[:, :-1].mean(1, keepdim=True)

    def update(self, rows, batch, number, tau):
        """One update from the batch that was drawn; gives the errors."""
        config, following = self.agent.config, rows["next_observation"][batch.lasts]
        with torch.no_grad():
            other = self.values(self.frozen, following)
            chooser = self.values(self.online, following) if config.double else other
            ahead = other.gather(1, chooser.argmax(1, keepdim=True))[:, 0]
            goal = torch.tensor(batch.rewards) + torch.tensor(batch.discounts) * ahead
        actions = torch.tensor(rows["action"][batch.places].astype(np.int64))
        found = self.values(self.online, rows["observation"][batch.places]).gather(1, actions)[:, 0]
        losses = torch.nn.functional.huber_loss(found, goal, reduction="none", delta=config.huber)
        self.optimiser.zero_grad()
        (losses * torch.tensor(batch.weights)).mean().backward()
        torch.nn.utils.clip_grad_norm_([one for pair in self.online for one in pair], config.max_grad_norm)
        self.optimiser.step()
        if number % config.target_every == 0:
            with torch.no_grad():
                for online, frozen in zip(self.online, self.frozen, strict=True):
                    for one, slow in zip(online, frozen, strict=True):
                        slow.copy_(tau * one + (1 - tau) * slow)
        return (found - goal).detach().numpy()

    def flat(self, layers):
        return np.concatenate([one.detach().numpy().reshape(-1) for pair in layers for one in pair])


def trained(threads, **config):
    agent = DQN("CartPole-v1", **{**SETTINGS, "threads": threads, "shares": threads, "n_step": 2, **config})
    agent.goal = Goal(0, 10_000)
    agent.prepare()
    return agent


def target_of(agent):
    return agent.learner.state()["target_values.parameters"]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    "config",
    [
        pytest.param({"double": False, "dueling": False}, marks=pytest.mark.slow),
        {"double": True, "dueling": True, "priority": "proportional"},
    ],
)
def test_ten_updates_against_torch(threads, config):
    agent = trained(threads, tau=0.5, **config)
    reference, learner = Reference(agent), agent.learner
    assert learner.iterate(agent.pace(50), 200).minibatches == 0  # warm: nothing is learnt
    for number in range(1, 11):
        assert learner.iterate(agent.pace(1), 200 + 4 * number).optimiser_steps == number
        errors = reference.update(learner.ring.rows, learner.updates.batch, number, 0.5)
        np.testing.assert_allclose(learner.updates.batch.errors, errors, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(agent.parameters, reference.flat(reference.online), rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(target_of(agent), reference.flat(reference.frozen), rtol=1e-3, atol=1e-4)
    assert not np.array_equal(agent.parameters, target_of(agent))


def test_threads_change_nothing_but_the_rounding_and_repeat_themselves():
    def parameters(threads):
        return DQN("CartPole-v1", **{**SETTINGS, "threads": threads, "shares": threads}).learn(400).parameters.copy()

    one, two = parameters(1), parameters(2)
    np.testing.assert_allclose(one, two, rtol=1e-2, atol=1e-3)
    assert two.tobytes() == parameters(2).tobytes()


def test_a_fault_leaves_the_parameters_as_they_were():
    agent = trained(2, target_every=1)
    learner = agent.learner
    learner.iterate(agent.pace(50), 200)
    learner.iterate(agent.pace(1), 204)
    before, target = agent.parameters.copy(), target_of(agent)
    learner.ring.rows["reward"] = np.inf
    with pytest.raises(NumericalError, match="gradient is not finite"):
        learner.iterate(agent.pace(1), 208)
    assert learner.updates.program.outcome[FAULT] == 1
    np.testing.assert_array_equal(agent.parameters, before)
    np.testing.assert_array_equal(target_of(agent), target)
