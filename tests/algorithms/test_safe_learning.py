"""Constrained algorithms find the known answers of problems of two actions, and of two states: see `gamble`."""

import signal
from math import inf

import numpy as np
import pytest
from gamble import STEPS, gamble
from scalars import numbers, stepped, stream

import velocirl
from velocirl import FOCOPS, PPOLagrangian, SACLagrangian, make_vec
from velocirl.algorithms.safe import focops, ppo_lagrangian
from velocirl.buffers.returns import gae_of_costs
from velocirl.networks.heads import categorical

LIMIT = 3.0
BY_HAND = {  # settings, numbers and functions of an algorithm
    "ppo-lagrangian": (
        PPOLagrangian, ppo_lagrangian,
        {"clip": 0.2, "weight_limit": inf, "value_clip": 0.0, "dual_clip": 0.0, "proportional_gain": 0.5,
         "integral_gain": 0.02, "derivative_gain": 0.5, "largest_multiplier": 100.0},
        {"multiplier": (0.0,), "integral": (0.0,), "excess": (0.0,)},
    ),
    "focops": (
        FOCOPS, focops, {"temperature": 1.5, "trust_region": 0.02, "multiplier_rate": 0.02, "largest_multiplier": 2.0},
        {"multiplier": (0.0,)},
    ),
}  # fmt: skip
COMMON = {
    "limits": (LIMIT,), "counted": (1.0,), "entropy_coefficient": 0.0, "normalise_advantages": 0.0,
    "value_coefficient": 0.0, "cost_value_coefficient": 0.0,
}  # fmt: skip


@pytest.mark.parametrize("name", BY_HAND)
def test_a_policy_of_two_numbers_is_as_often_hot_as_the_limit_allows(name):
    """The functions of the algorithm alone, with gradient descent on two logits and advantages that are exact.

    To be hot pays 0.8 more and costs 1, so that at a price of 0.8 either is worth as much.
    """
    kind, functions, own, learnt = BY_HAND[name]
    head, settings, learnt = categorical(2), numbers(**COMMON, **own), numbers(**learnt)
    rows, rng = stepped(kind, head, 40, constraints=1, limited=("heat",)), stream(1)
    policy, means = np.zeros(2 + 1 + 1), numbers(advantage=0.0, advantage_scale=0.0, rows=40.0)
    metrics = numbers(**dict.fromkeys(kind.reports, 0.0) | {"multiplier": (0.0,)})
    hot, prices = [], []
    for _ in range(300):
        for row in rows:
            functions.act(head, policy, row, np.ones(2, np.int8), rng)
        share = rows["action"].mean()
        hot.append(share * STEPS)
        functions.move_multipliers(numbers(count=4.0, costs=(share * STEPS,)), learnt, settings)
        prices.append(learnt.multiplier[0])
        chosen = rows["action"][:, 0] - share
        rows["reward_advantage"], rows["cost_advantages"][:, 0] = 0.8 * chosen, chosen
        total = np.zeros(4)
        for row in rows:
            gradient = np.zeros(4)
            ppo_lagrangian.mix_advantages(row, learnt)
            functions.loss_gradient(head, policy, row, means, learnt, settings, gradient, metrics)
            total += gradient / len(rows)
        policy[:2] -= 2.0 * total[:2]
    assert np.mean(hot[:30]) > 4.5  # without a price, to be hot is worth it
    assert np.mean(hot[150:]) == pytest.approx(LIMIT, abs=0.5)
    assert np.mean(prices[150:]) == pytest.approx(0.8, abs=0.3)


ROLLOUTS = {"num_envs": 32, "horizon": 10, "hidden": (8,), "learning_rate": 3e-3, "log_deviation": -1.5}
TRAINED = {
    PPOLagrangian: ({**ROLLOUTS, "proportional_gain": 0.2, "integral_gain": 0.05, "entropy_coefficient": 0.0}, 60_000),
    FOCOPS: ({**ROLLOUTS, "multiplier_rate": 0.03}, 60_000),
    SACLagrangian: (
        {"num_envs": 8, "hidden": (16,), "train_every": 8, "learning_starts": 500, "buffer_size": 2000,
         "multiplier_episodes": 8, "learning_rate": 3e-3, "gamma": 0.8, "temperature": 0.01}, 30_000,
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", TRAINED, ids=lambda kind: kind.name)
def test_training_keeps_the_limit_and_earns_what_it_allows(kind):
    config, steps = TRAINED[kind]
    agent = kind(gamble, seed=1, threads=1, device="cpu", cost_limits={"heat": LIMIT}, **config)
    agent.learn(steps)
    envs, returns, costs = make_vec(gamble, 500, seed=7), np.zeros(500), np.zeros(500)
    observations, _ = envs.reset()
    for _ in range(STEPS):
        actions, _ = agent.predict(observations)
        observations, rewards, _, _, infos = envs.step(actions)
        returns += rewards
        costs += infos["cost"]
    assert costs.mean() == pytest.approx(LIMIT, abs=0.7)
    assert returns.mean() == pytest.approx(5.1, abs=0.8)
    assert agent.recent.violations > 0


def test_the_cost_of_each_limit_has_its_own_gae():
    """Against sums written out: A_t = sum of (gamma lambda)^i delta_(t+i), until an episode ends."""
    generator, gamma, decay = np.random.default_rng(0), 0.97, 0.9
    steps, limits = 12, 3
    costs, values = generator.integers(0, 2, (steps + 1, limits)), generator.normal(size=(steps + 1, limits))
    finals, ended = generator.normal(size=(steps + 1, limits)), np.zeros(steps + 1, np.int8)
    ended[[4, 9]] = 1, 2
    finals[4] = 0.0  # nothing follows a terminal state
    advantages, targets = np.zeros((2, steps + 1, limits))
    gae_of_costs(costs, values, finals, ended, advantages, targets, numbers(gamma=gamma, gae_lambda=decay))
    for k in range(limits):
        for t in range(steps):
            expected = 0.0
            for i in range(t, steps):
                following = finals[i, k] if ended[i] else values[i + 1, k]
                expected += (gamma * decay) ** (i - t) * (costs[i, k] + gamma * following - values[i, k])
                if ended[i]:
                    break
            assert advantages[t, k] == pytest.approx(expected, abs=1e-6)
            assert targets[t, k] == pytest.approx(expected + values[t, k], abs=1e-6)


@pytest.mark.parametrize("kind", [PPOLagrangian, FOCOPS, SACLagrangian])
def test_multipliers_are_saved_and_go_on_and_are_shown(kind, tmp_path):
    own = {"horizon": 16, "minibatch_size": 32}
    if kind is SACLagrangian:
        own = {"learning_starts": 32, "batch_size": 8, "train_every": 4, "gamma": 0.5, "learning_rate": 0.02}
        own |= {"multiplier_episodes": 10}
    agent = kind(gamble, seed=2, device="python", num_envs=4, hidden=(4,), cost_limits={"heat": 0.5}, **own)
    agent.learn(192)
    again = velocirl.load(agent.save(tmp_path / "agent"))
    multiplier = agent.learner.state()["numbers.values"][1 if kind is SACLagrangian else 0]
    assert multiplier > 0.0
    if kind is SACLagrangian:  # 12 of 16 episodes have decided, and the others go on to be counted
        assert agent.arrays()["policy.episodes"][:, 0].tolist() == [1.0] * 4
    assert np.array_equal(again.arrays()["numbers.values"], agent.arrays()["numbers.values"])
    for one in (agent, again):
        one.learn(128)
    for name, array in agent.arrays().items():
        assert np.array_equal(np.asarray(array), np.asarray(again.arrays()[name])), name
    assert agent.metrics == {
        **again.metrics,
        **{name: agent.metrics[name] for name in agent.metrics if "time/" in name},
    }
    assert agent.metrics["train/multiplier/heat"] > 0.0
    assert agent.metrics["rollout/violations"] == agent.recent.violations > 0
    assert 0.0 < agent.metrics["episode/cost/heat"] == agent.metrics["episode/cost"] <= STEPS


def test_a_signal_that_raises_ends_training_and_not_the_process():
    """It waits while compiled loops run, and would strike at the first Python that one of them called."""

    def alarm(*_):
        raise TimeoutError("enough")

    agent = SACLagrangian(gamble, seed=1, threads=1, device="cpu", num_envs=8, hidden=(16,), multiplier_episodes=8)
    agent.prepare()
    before = signal.signal(signal.SIGALRM, alarm)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(TimeoutError, match="enough"):
            agent.learn(10**7, progress=False)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
