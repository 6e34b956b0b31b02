"""Whole updates of SAC and TD3 against torch: batches, both losses, Adam, temperature and target networks."""

import numpy as np
import pytest
import torch
from choosing import slow_but

from velocirl import SAC, TD3
from velocirl.engine import random

UPDATES = 6
SMALL = {
    "hidden": (16, 24), "batch_size": 30, "learning_rate": 3e-3, "learning_starts": 40, "num_envs": 1, "gamma": 0.9,
    "train_every": 1, "tau": 0.1, "seed": 4, "device": "cpu", "learning_rate_schedule": "constant", "noise": 0.1,
}  # fmt: skip


pytestmark = pytest.mark.usefixtures("one_torch_thread")


def forward(network, parameters, inputs):
    """The output of a native network, by torch."""
    layers, columns, values = iter(network.plan.layers), [], inputs
    for layer in layers:
        width, size = int(layer["inputs"]), int(layer["outputs"])
        weights = parameters[int(layer["weights"]) :][: width * size].reshape(width, size)
        values = (inputs if layer["first"] else values) @ weights + parameters[int(layer["biases"]) :][:size]
        if layer["hidden"]:
            values = torch.relu(values)
        else:
            columns.append(values)
    return torch.cat(columns, dim=1)


def double(array):
    return torch.tensor(np.array(array, np.float64))


class Oracle:
    """The same agent in torch, in double precision, which is told the batches and has a copy of the random streams."""

    def __init__(self, agent):
        self.agent, learner = agent, agent.learner
        parameters, numbers = learner.networks.parameters, learner.networks.numbers
        self.networks = agent.built["actor"], agent.built["critics"]
        self.actor = double(parameters["actor"]).requires_grad_()
        self.critic = double(parameters["critics"]).requires_grad_()
        self.target, self.target_actor = self.critic.detach().clone(), self.actor.detach().clone()
        begins = numbers["log_temperature"][0] if isinstance(agent, SAC) else 0.0
        self.log_temperature = double(begins).requires_grad_()
        self.rng = learner.updates.streams.copy()
        self.number = 0
        rate = agent.config.learning_rate
        self.optimisers = [
            torch.optim.Adam([one], rate, eps=1e-5) for one in (self.actor, self.critic, self.log_temperature)
        ]

    def normals(self, size):
        return double([[random.normal(row) for _ in range(size)] for row in self.rng])

    def sample(self, parameters, observations):
        """A squashed draw and its log-probability."""
        size = self.agent.head.action_size
        output = forward(self.networks[0], parameters, observations)
        noise, deviation = self.normals(size), output[:, size:].clamp(-20, 2).exp()
        before = output[:, :size] + deviation * noise
        density = torch.distributions.Normal(output[:, :size], deviation).log_prob(before)
        density = density - 2 * (np.log(2) - before - torch.nn.functional.softplus(-2 * before))
        return torch.tanh(before), density.sum(1)

    def values(self, parameters, observations, actions):
        return forward(self.networks[1], parameters, torch.cat([observations, actions], 1))

    def step(self, which, loss):
        self.optimisers[which].zero_grad()
        loss.backward()
        self.optimisers[which].step()

    def update(self, learner):
        """One update with the batch that the learner has just had."""
        config, is_sac = self.agent.config, isinstance(self.agent, SAC)
        batch, rows = learner.updates.batch, learner.ring.rows
        self.number += 1
        temperature = self.log_temperature.exp().detach()
        following, sample = double(rows["next_observation"][batch.lasts]), rows[batch.places]
        observations, actions = double(sample["observation"]), double(sample["action"])
        with torch.no_grad():
            if is_sac:
                ahead, log_probability = self.sample(self.actor, following)
            else:
                noise = (config.smoothing * self.normals(self.agent.head.action_size)).clamp(
                    -config.smoothing_limit, config.smoothing_limit
                )
                ahead = torch.tanh(forward(self.networks[0], self.target_actor, following))
                ahead, log_probability = (ahead + noise).clamp(-1, 1), 0
            worth = self.values(self.target, following, ahead).min(1).values
            goal = double(batch.rewards) + double(batch.discounts) * (worth - temperature * log_probability * is_sac)
        errors = self.values(self.critic, observations, actions) - goal[:, None]
        self.errors = errors.detach().abs().mean(1).numpy()
        self.step(1, (double(batch.weights)[:, None] * errors**2 / 2).sum(1).mean())
        if self.number % config.actor_every == 0:
            self.improve(observations, temperature, is_sac)
        if self.number % config.target_every == 0:
            for target, online in ((self.target, self.critic), (self.target_actor, self.actor)):
                target += config.tau * (online.detach() - target)

    def improve(self, observations, temperature, is_sac):
        if not is_sac:
            actions = torch.tanh(forward(self.networks[0], self.actor, observations))
            self.step(0, -self.values(self.critic.detach(), observations, actions)[:, 0].mean())
            return
        actions, log_probability = self.sample(self.actor, observations)
        worth = self.values(self.critic.detach(), observations, actions).min(1).values
        self.step(0, (temperature * log_probability - worth).mean())
        if self.agent.config.learns_temperature:
            slope = log_probability.detach() - self.agent.head.action_size
            self.step(2, -(self.log_temperature * slope).mean())


CASES = {
    "sac": (SAC, {}),
    "sac on two threads": (SAC, {"threads": 2, "shares": 2}),
    "sac with a fixed temperature": (SAC, {"temperature": 0.2}),
    "sac, rare moves, three steps": (SAC, {"actor_every": 3, "target_every": 2, "n_step": 3}),
    "sac with priorities": (SAC, {"priority": "proportional", "threads": 2, "shares": 2}),
    "td3": (TD3, {}),
    "td3 on two threads": (TD3, {"threads": 2, "shares": 2, "target_every": 2}),
}


@pytest.mark.parametrize("case", slow_but({"sac"}, CASES))
def test_updates_are_those_of_torch(case):
    kind, config = CASES[case]
    agent = kind("Pendulum-v1", **{**SMALL, "threads": 1, **config})
    agent.learn(SMALL["learning_starts"])
    learner, parameters = agent.learner, agent.learner.networks.parameters
    assert learner.state()["learner.updates"] == 0
    oracle = Oracle(agent)
    first = oracle.actor.detach().clone()
    for number in range(1, UPDATES + 1):
        agent.learn(1)
        oracle.update(learner)
        assert learner.state()["learner.updates"] == number
        assert np.allclose(learner.updates.batch.errors, oracle.errors, rtol=1e-3, atol=1e-4)
    assert np.allclose(parameters["critics"], oracle.critic.detach(), atol=3e-5)
    assert np.allclose(parameters["actor"], oracle.actor.detach(), atol=3e-5)
    assert np.allclose(parameters["target_critics"], oracle.target, atol=3e-5)
    if kind is SAC:
        assert np.allclose(learner.networks.numbers["log_temperature"], oracle.log_temperature.item(), atol=1e-5)
    else:
        assert np.allclose(parameters["target_actor"], oracle.target_actor, atol=3e-5)
    np.testing.assert_array_equal(learner.updates.streams, oracle.rng)  # the reference has drawn the same numbers
    assert np.abs(parameters["actor"] - first.numpy()).max() > 1e-3
    assert agent.parameters is parameters["actor"]


def test_the_number_of_threads_changes_no_more_than_the_order_of_sums():
    results = {}
    for threads in (1, 2):
        agent = SAC("Pendulum-v1", **{**SMALL, "threads": threads, "shares": threads})
        agent.learn(SMALL["learning_starts"] + 5)
        results[threads] = agent.parameters.copy()
    assert np.allclose(results[1], results[2], atol=1e-4)


def test_metrics_are_means_over_what_critics_and_actor_saw():
    agent = SAC("Pendulum-v1", **{**SMALL, "threads": 1, "actor_every": 2, "learning_rate": 1e-9})
    agent.learn(SMALL["learning_starts"])
    assert agent.metrics["train/critic_loss"] is None
    learner, program, seen = agent.learner, agent.learner.updates.program, []
    means_of = program.means_of

    def watch(totals, rows):
        seen.append(rows)
        return means_of(totals, rows)

    program.means_of = watch
    agent.learn(2)
    # With hardly a step taken, the means over two batches of the critics and one of the actor can be told apart.
    assert np.sum(seen, axis=0).tolist() == [2 * SMALL["batch_size"], SMALL["batch_size"]]
    oracle = Oracle(agent)
    batch, rows = learner.updates.batch, learner.ring.rows
    observations = double(rows["observation"][batch.places])
    drawn = [oracle.sample(oracle.actor, observations) for _ in range(40)]
    entropy = -np.mean([log_probability.detach().mean().item() for _, log_probability in drawn])
    worth = np.mean([oracle.values(oracle.critic, observations, a).min(1).values.mean().item() for a, _ in drawn])
    assert agent.metrics["train/entropy"] == pytest.approx(entropy, abs=0.25)
    assert agent.metrics["train/actor_loss"] == pytest.approx(-entropy - worth, abs=0.3)
    assert agent.metrics["train/ent_coef"] == pytest.approx(1, abs=1e-6)
    assert agent.metrics["train/n_updates"] == 2
