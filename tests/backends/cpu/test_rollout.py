"""Updates against torch: the gradient of a minibatch, and ten whole updates by torch.optim.Adam."""

import dataclasses

import numpy as np
import pytest
import torch

from velocirl import A2C, PPO
from velocirl.engine import random
from velocirl.training.persistence import Goal

SETTINGS = {
    "num_envs": 6, "horizon": 16, "minibatch_size": 32, "epochs": 3, "seed": 5, "hidden": (16, 16), "threads": 2,
    "shares": 2,
    "learning_rate": 3e-3, "gamma": 0.9, "shared": True, "activation": "tanh",
}  # fmt: skip
WHOLE = {"minibatch_size": 10**9, "epochs": 1}  # one minibatch of everything
BATCH = 96


pytestmark = pytest.mark.usefixtures("one_torch_thread")


def prepared(environment="Counter-v0", kind=PPO, **config):
    agent = kind(environment, **{**SETTINGS, **config})
    agent.goal = Goal(0, 10**6)
    agent.prepare()
    return agent


def samples_of(agent):
    """The samples of each thread, one after another."""
    learner = agent.learner
    return [learner.recorded.records[first:stop, :-1].reshape(-1).copy() for first, stop in learner.epochs.shares]


def gradient_of(agent):
    """The gradient of the first step, from Adam's first moment."""
    assert agent.arrays()["policy.steps"] == 1
    return agent.arrays()["policy.moments"][0].astype(np.float64) / 0.1


def forward(network, parameters, inputs):
    values, columns = inputs, []
    for layer in network.plan.layers:
        width, size = int(layer["inputs"]), int(layer["outputs"])
        weights = parameters[int(layer["weights"]) :][: width * size].reshape(width, size)
        source = values if width else values[:, :0]
        result = source @ weights + parameters[int(layer["biases"]) :][:size]
        if layer["hidden"]:
            values = torch.tanh(result)
        else:
            columns.append(result)
    if len(columns) == 1:
        return columns[0]
    size = columns[1].shape[1]  # a Gaussian's means and the value, then its free deviations
    return torch.cat([columns[0][:, :size], columns[1], columns[0][:, size:]], dim=1)


def distribution(agent, output, samples):
    """Log-probability and entropy of each sample's action."""
    if agent.head.name == "gaussian":
        size = agent.head.action_size
        normal = torch.distributions.Normal(output[:, :size], torch.exp(output[:, size : 2 * size]))
        return normal.log_prob(torch.tensor(samples["action"].astype(np.float64))).sum(1), normal.entropy().sum(1)
    logits = output[:, : agent.head.outputs]
    if agent.head.masked:
        logits = logits.masked_fill(torch.tensor(samples["mask"] == 0), -1e30)
    choice = torch.distributions.Categorical(logits=logits)
    return choice.log_prob(torch.tensor(samples["action"][:, 0].astype(np.int64))), choice.entropy()


def loss_of(agent, parameters, samples):
    """The terms of PPO's loss over a minibatch: policy, value, entropy, and the whole."""
    config = agent.config
    of = {name: torch.tensor(samples[name].astype(np.float64)) for name in ("log_probability", "advantage", "target")}
    output = forward(agent.network, parameters, torch.tensor(samples["observation"].astype(np.float64)))
    log_probability, entropy = distribution(agent, output, samples)
    advantage = of["advantage"]
    if config.normalise_advantages and len(samples) > 1:
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    ratio = torch.exp(log_probability - of["log_probability"])
    kept = torch.clamp(ratio, 1 - config.clip, 1 + config.clip) if config.clip > 0 else ratio
    policy = -torch.minimum(ratio * advantage, kept * advantage).mean()
    value = ((output[:, agent.head.outputs] - of["target"]) ** 2).mean() / 2
    entropy = entropy.mean()
    return policy, value, entropy, policy + config.value_coefficient * value - config.entropy_coefficient * entropy


def torch_gradient(agent, parameters, samples):
    double = torch.tensor(parameters.astype(np.float64), requires_grad=True)
    loss_of(agent, double, samples)[-1].backward()
    return double.grad.numpy()


def assert_near(found, expected, tolerance):
    assert np.abs(found - expected).max() <= tolerance * np.abs(expected).max()


def minibatches(parts, streams, config):
    """The minibatches of one update, as the threads draw them: each shuffles its own samples, or copies."""
    unit = config.horizon if config.minibatches == "environments" else 1
    units = [np.arange(len(part) // unit) for part in parts]
    for _ in range(config.epochs):
        for order, stream in zip(units, streams, strict=True):
            for last in range(len(order) - 1, 0, -1):
                other = random.integer(stream, 0, last + 1)
                order[last], order[other] = order[other], order[last]
        for m in range(config.num_minibatches):
            drawn = []
            for part, order in zip(parts, units, strict=True):
                first, stop = (len(order) * k // config.num_minibatches for k in (m, m + 1))
                places = (order[first:stop, None] * unit + np.arange(unit)).reshape(-1)
                drawn.append(part[places])
            yield np.concatenate(drawn)


@pytest.mark.parametrize("environment", ["Counter-v0", "IdentityContinuous-v0", "TicTacToe-v1"])
@pytest.mark.parametrize("threads", [1, 2])
def test_gradient_of_a_minibatch(environment, threads):
    agent = prepared(environment, threads=threads, shares=threads, max_grad_norm=0.0, **WHOLE)
    before = agent.parameters.copy()
    metrics = agent.iterate()
    samples = np.concatenate(samples_of(agent))
    assert_near(gradient_of(agent), torch_gradient(agent, before, samples), 1e-4)
    policy, value, entropy, loss = (float(term) for term in loss_of(agent, torch.tensor(before.astype(float)), samples))
    assert metrics["train/policy_gradient_loss"] == pytest.approx(policy, abs=1e-5)
    assert metrics["train/value_loss"] == pytest.approx(value, rel=1e-4)
    assert metrics["train/entropy_loss"] == pytest.approx(-entropy, rel=1e-4)
    assert metrics["train/loss"] == pytest.approx(loss, rel=1e-4)
    expected = np.linalg.norm(torch_gradient(agent, before, samples))
    assert metrics["train/gradient_norm"] == pytest.approx(expected, rel=1e-3)
    unexplained = np.var(samples["target"].astype(float) - samples["value"]) / np.var(samples["target"].astype(float))
    assert metrics["train/explained_variance"] == pytest.approx(1 - unexplained, abs=1e-4)


@pytest.mark.parametrize(
    ("environment", "changes"),
    [
        ("Counter-v0", {"threads": 1}),
        ("Counter-v0", {"threads": 2, "shares": 2}),
        ("Counter-v0", {"threads": 3, "shares": 3, "num_envs": 7}),
        ("Counter-v0", {"threads": 2, "shares": 2, "minibatches": "environments", "minibatch_size": 48}),
        ("Counter-v0", {"threads": 2, "shares": 2, "normalise_advantages": False, "max_grad_norm": 0.0}),
        ("IdentityContinuous-v0", {}),
        ("TicTacToe-v1", {}),
    ],
)
def test_ten_updates_by_torch(environment, changes):
    agent = prepared(environment, **changes)
    config = agent.config
    beginning = agent.parameters.copy()
    parameters = torch.nn.Parameter(torch.tensor(beginning.astype(np.float64)))
    optimiser = torch.optim.Adam([parameters], eps=1e-5)
    for _ in range(10):
        streams = agent.learner.epochs.rng.copy()
        metrics = agent.iterate()
        optimiser.param_groups[0]["lr"] = metrics["train/learning_rate"]
        for samples in minibatches(samples_of(agent), streams, config):
            optimiser.zero_grad()
            loss_of(agent, parameters, samples)[-1].backward()
            if config.max_grad_norm > 0:
                torch.nn.utils.clip_grad_norm_([parameters], config.max_grad_norm)
            optimiser.step()
        np.testing.assert_array_equal(agent.learner.epochs.rng, streams)  # the reference has drawn the same numbers
    assert metrics["train/n_updates"] == 10 * config.epochs * config.num_minibatches
    assert metrics["train/minibatches"] == config.epochs * config.num_minibatches
    found = agent.network.layers(agent.parameters - beginning)
    expected = agent.network.layers((parameters.detach().numpy() - beginning).astype(np.float32))
    for (weights, biases), (torch_weights, torch_biases) in zip(found, expected, strict=True):
        for own, other in ((weights, torch_weights), (biases, torch_biases)):
            if own.size:
                assert np.abs(other).max() > 1e-3
                assert_near(own, other, 1e-3)


def test_the_gradient_does_not_depend_on_the_number_of_threads():
    gradients = []
    for threads in (1, 2, 3):
        agent = prepared(threads=threads, shares=threads, num_envs=7, max_grad_norm=0.0, **WHOLE)
        agent.iterate()
        gradients.append(gradient_of(agent))
    assert_near(gradients[1], gradients[0], 1e-5)
    assert_near(gradients[2], gradients[0], 1e-5)


def test_accumulated_minibatches_are_one_large_one():
    agents = [
        prepared(normalise_advantages=False, max_grad_norm=0.0, **{**WHOLE, **changes})
        for changes in ({}, {"minibatch_size": BATCH // 2, "gradient_accumulation": 2}, {"minibatch_size": BATCH // 2})
    ]
    metrics = [agent.iterate() for agent in agents]
    assert [row["train/n_updates"] for row in metrics] == [1, 1, 2]
    assert [row["train/minibatches"] for row in metrics] == [1, 2, 2]
    assert_near(gradient_of(agents[1]), gradient_of(agents[0]), 1e-5)
    assert np.abs(agents[2].parameters - agents[0].parameters).max() > 1e-4


def test_what_is_left_over_is_accumulated_too():
    """Three minibatches by twos: the last one makes a step of its own."""
    agent = prepared(epochs=2, gradient_accumulation=2)
    assert agent.iterate()["train/n_updates"] == 4


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("mode", ["samples", "environments"])
def test_every_sample_is_drawn_once_in_an_epoch(mode, threads):
    agent = prepared(num_envs=7, threads=threads, shares=threads, epochs=2, minibatches=mode, minibatch_size=20)
    metrics = agent.iterate()
    assert metrics["train/n_updates"] == metrics["train/minibatches"] >= 2 * (agent.config.num_minibatches - 1)
    for order, (first, stop) in zip(agent.learner.epochs.orders, agent.learner.epochs.shares, strict=True):
        places = np.arange(first * 17, stop * 17)  # a copy has a row more than samples
        assert sorted(order.tolist()) == places[places % 17 < 16].tolist()
        assert order.tolist() != sorted(order.tolist())
        if mode == "environments":  # whole rollouts of single copies, each from its first step to its last
            columns = order.reshape(-1, 16)
            np.testing.assert_array_equal(columns - columns[:, :1], np.tile(np.arange(16), (len(columns), 1)))
            assert not np.any(columns[:, 0] % 17)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_minibatch_of_one_sample(threads):
    agent = prepared(num_envs=3, horizon=4, minibatch_size=1, epochs=2, threads=threads, shares=threads)
    for _ in range(3):
        metrics = agent.iterate()
    assert np.isfinite(agent.parameters).all()
    assert all(np.isfinite(value) for name, value in metrics.items() if name.startswith("train/"))
    # Without other samples there is nothing to normalise by: the advantage counts as it is.
    assert abs(metrics["train/policy_gradient_loss"]) > 0.01


def test_divergence_stops_an_update():
    stopped, free = prepared(target_kl=1e-9), prepared(target_kl=1e9)
    metrics = stopped.iterate()
    # The second saw a policy that had moved.
    assert (metrics["train/minibatches"], metrics["train/n_updates"]) == (2, 1)
    assert free.iterate()["train/minibatches"] == 9
    one = prepared(minibatch_size=32, epochs=1)
    one.iterate()
    assert np.abs(stopped.parameters - one.parameters).max() > 1e-4  # it stopped before the step, not after


def test_clipping_of_each_number():
    agent = prepared(max_grad_norm=0.0, max_grad_value=0.01, **WHOLE)
    before = agent.parameters.copy()
    agent.iterate()
    expected = np.clip(torch_gradient(agent, before, np.concatenate(samples_of(agent))), -0.01, 0.01)
    assert (np.abs(expected) == 0.01).mean() > 0.05
    assert_near(gradient_of(agent), expected, 1e-3)


@pytest.mark.slow
def test_vtrace_of_an_unchanged_policy_is_gae():
    plain, corrected = prepared(**WHOLE), prepared(estimator="vtrace", **WHOLE)
    plain.iterate()
    corrected.iterate()
    assert_near(gradient_of(corrected), gradient_of(plain), 1e-4)


def test_vtrace_follows_the_policy():
    """Before the second epoch, ratios and values are those of the network after the first."""
    once = prepared(estimator="vtrace", learning_rate=0.05, **WHOLE)
    twice = prepared(estimator="vtrace", learning_rate=0.05, **{**WHOLE, "epochs": 2})
    once.iterate()
    twice.iterate()
    parameters = torch.tensor(once.parameters.astype(np.float64))
    gamma, gae_lambda = 0.9, 0.95
    for whole in twice.learner.recorded.records:
        column, last_value = whole[:-1], whole["value"][-1]
        output = forward(twice.network, parameters, torch.tensor(column["observation"].astype(np.float64)))
        log_probability, _ = distribution(twice, output, column)
        ratio = np.exp(log_probability.numpy() - column["log_probability"])
        values = output[:, 2].numpy()
        np.testing.assert_allclose(column["ratio"], ratio, rtol=1e-4)
        np.testing.assert_allclose(column["current_value"], values, rtol=1e-4, atol=1e-4)
        assert np.abs(ratio - 1).max() > 0.01
        later, following = 0.0, float(last_value)
        for t in range(15, -1, -1):
            if column["ended"][t]:
                later, following = 0.0, float(column["final_value"][t])
            delta = column["reward"][t] + gamma * following - values[t]
            assert column["advantage"][t] == pytest.approx(delta + gamma * gae_lambda * later, rel=1e-3, abs=1e-3)
            later = min(ratio[t], 1) * (delta + gamma * gae_lambda * later)
            assert column["target"][t] == pytest.approx(values[t] + later, rel=1e-3, abs=1e-3)
            following = values[t]


def test_a2c_is_a_configuration_of_ppo():
    actor_critic = prepared(kind=A2C, minibatch_size=10**9, epochs=1, optimiser="adam")
    defaults = {field.name: field.default for field in dataclasses.fields(A2C.Config)}
    assert (defaults["epochs"], defaults["clip"], defaults["gae_lambda"], defaults["optimiser"]) == (1, 0, 1, "rmsprop")
    assert not defaults["normalise_advantages"]
    config = {field.name: getattr(actor_critic.config, field.name) for field in dataclasses.fields(PPO.Config)}
    same = prepared(**config)
    for agent in (actor_critic, same):
        agent.iterate()
    assert actor_critic.parameters.tobytes() == same.parameters.tobytes()
    before = prepared(**config).parameters
    samples = np.concatenate(samples_of(actor_critic))
    # Advantage actor-critic: the gradient of -log pi(a|s) A + c_v (v - R)^2 / 2.
    double = torch.tensor(before.astype(np.float64), requires_grad=True)
    output = forward(actor_critic.network, double, torch.tensor(samples["observation"].astype(np.float64)))
    log_probability, _ = distribution(actor_critic, output, samples)
    value_loss = (output[:, 2] - torch.tensor(samples["target"].astype(np.float64))) ** 2
    (-log_probability * torch.tensor(samples["advantage"].astype(np.float64)) + value_loss / 4).mean().backward()
    expected = double.grad.numpy()
    expected *= min(1, 0.5 / np.linalg.norm(expected))
    assert_near(gradient_of(actor_critic), expected, 1e-4)


def test_schedule_of_the_learning_rate():
    agent = PPO("Counter-v0", **{**SETTINGS, "learning_rate": 0.01, "learning_rate_schedule": "linear"})
    rates = []
    agent.learn(5 * BATCH, lambda agent: rates.append(agent.metrics["train/learning_rate"]))
    np.testing.assert_allclose(rates, [0.01, 0.008, 0.006, 0.004, 0.002])
    constant = PPO("Counter-v0", **{**SETTINGS, "learning_rate_schedule": "constant"})
    constant.learn(2 * BATCH)
    assert constant.metrics["train/learning_rate"] == 3e-3
