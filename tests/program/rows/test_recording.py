"""Rollouts, against a model of one copy written by hand: fleets and Gymnasium's environments, compiled and in Python.

Cycle counts its steps; its episodes have the lengths 3, 9, 6 and 1, in turn, under a limit of 6 steps. So one
terminates, one is cut off by the limit, one does both in the same step, and one is over at once.
"""

from math import inf

import gymnasium
import numpy as np
import pytest
import torch

import velocirl
from velocirl import PPO, Box, Discrete, Environment, float32, int32, random, record
from velocirl.buffers.records import GOES_ON, TERMINATED, TRUNCATED
from velocirl.program.rows.recording import EPISODE

LENGTHS, LIMIT = (3, 9, 6, 1), 6
HORIZON = 25
SMALL = {
    "horizon": HORIZON, "minibatch_size": 64, "seed": 3, "hidden": (16, 16), "shared": True, "activation": "tanh",
    "layer_norm": False,
}  # fmt: skip


@record
class State:
    count: float32
    episode: int32


def reset(state, params, rng):
    state.count = 0
    state.episode += 1


def step(state, params, action, rng):
    reward = state.count + 10.0 * action
    state.count += 1
    return reward, state.count >= LENGTHS[state.episode % 4]


def observe(state, params, observation):
    observation[0] = state.count


cycle = Environment(
    "Cycle-v0", state=State, observation=Box(0, inf, (1,)), action=Discrete(2), max_steps=LIMIT,
    reset=reset, step=step, observe=observe,
)  # fmt: skip


class Cycle(gymnasium.Env):
    """The same in Python, which begins with any of the four episodes."""

    observation_space, action_space = Box(0, inf, (1,)), Discrete(2)
    lengths = LENGTHS

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode = int(self.np_random.integers(4)) if seed is not None else self.episode + 1
        self.count = 0
        return np.array([0], np.float32), {}

    def step(self, action):
        reward, self.count = self.count + 10.0 * action, self.count + 1
        return np.array([self.count], np.float32), reward, self.count >= self.lengths[self.episode % 4], False, {}


@pytest.fixture(scope="module", autouse=True)
def _register_cycle():
    gymnasium.register("HostCycle-v0", Cycle, max_episode_steps=LIMIT)
    yield
    gymnasium.registry.pop("HostCycle-v0")


def outputs(agent, inputs):
    """The network of an agent in torch, for inputs (rows, inputs)."""
    *hidden, last = agent.network.layers(agent.parameters.astype(np.float64))
    values = torch.tensor(np.asarray(inputs, np.float64))
    for weights, biases in hidden:
        values = torch.tanh(values @ torch.tensor(weights) + torch.tensor(biases))
    return values @ torch.tensor(last[0]) + torch.tensor(last[1])


def values(agent, counts):
    return outputs(agent, np.asarray(counts, np.float64)[:, None]).numpy()[:, -1]


def collect(agent):
    learner = agent.learner
    with learner.device.at_work():
        learner.collector.collect()
    return gather(learner.recorded.records, learner.recorded.log)


def estimate(agent):
    """What comes after a rollout; the normalizers of the agent know of it then."""
    agent.learner._start()
    agent.learner.fresh = False
    agent.learner.settle()


def gather(records, log):
    """The samples (copies, horizon), last values and ended episodes of all copies."""
    steps, copies = np.nonzero(log.ends[0] >= 0)
    np.testing.assert_array_equal(log.ends[0, steps, copies], steps * len(records) + copies)
    episodes = np.zeros(len(steps), EPISODE)
    episodes["step"], episodes["copy"] = steps, copies
    episodes["total"], episodes["length"] = log.returns[0, steps, copies], log.lengths[0, steps, copies]
    return records[:, :-1].copy(), records["value"][:, -1].copy(), episodes


def life(phase, skip, steps):
    """Counts and ends of `steps` steps after `skip`, from the episode `phase`, and the count that follows."""
    counts, ends, count, episode = [], [], 0, phase
    for _ in range(skip + steps):
        terminated, truncated = count + 1 >= LENGTHS[episode % 4], count + 1 >= LIMIT
        ended = TERMINATED if terminated else TRUNCATED if truncated else GOES_ON
        counts.append(count)
        ends.append(ended)
        count = 0 if ended else count + 1
        episode += ended != GOES_ON
    return np.array(counts[skip:]), np.array(ends[skip:]), count


def check_rollout(agent, skip=0, phases=None):
    """Everything that a rollout stored, copy by copy; returns the episode with which each began."""
    samples, last_value, episodes = collect(agent)
    lives = {phase: Life(agent, phase, skip) for phase in range(4)}
    found = []
    for i, column in enumerate(samples):
        begins = range(4) if phases is None else [phases[i]]
        fitting = [phase for phase in begins if lives[phase].fits(column)]
        assert fitting, f"copy {i}: {column['observation'][:, 0]} {column['ended']}"
        one = lives[fitting[0]]
        actions = column["action"][:, 0]
        np.testing.assert_array_equal(column["reward"], one.counts + 10 * actions)
        np.testing.assert_allclose(column["value"], one.values, atol=1e-5)
        np.testing.assert_allclose(column["final_value"], one.final_values, atol=1e-5)
        np.testing.assert_allclose(last_value[i], one.last_value, atol=1e-5)
        np.testing.assert_allclose(column["log_probability"], one.policy[np.arange(HORIZON), actions], atol=1e-5)
        own = np.sort(episodes[episodes["copy"] == i], order="step")
        np.testing.assert_array_equal(own["step"], np.flatnonzero(one.ended))
        np.testing.assert_array_equal(own["length"], one.counts[own["step"]] + 1)
        totals = np.cumsum(column["reward"])[own["step"]]
        np.testing.assert_allclose(own["total"][1:], np.diff(totals))  # the first one may have begun before
        found.append(fitting[0])
    return found


class Life:
    """What a copy goes through in a rollout after `skip` steps, if it began with the episode `phase`."""

    def __init__(self, agent, phase, skip):
        self.counts, self.ended, next_count = life(phase, skip, HORIZON)
        self.values = values(agent, self.counts)
        # The value of the observation at which the episode was cut off, not of the one that follows it.
        self.final_values = np.where(self.ended == TRUNCATED, values(agent, [LIMIT])[0], 0)
        self.last_value = values(agent, [next_count])[0]
        self.policy = torch.log_softmax(outputs(agent, self.counts[:, None])[:, :2], dim=1).numpy()

    def fits(self, column):
        shown = column["observation"][:, 0]
        return np.array_equal(shown, self.counts) and np.array_equal(column["ended"], self.ended)


def prepared(environment, **config):
    agent = PPO(environment, **{**SMALL, **config})
    agent.prepare()
    return agent


@pytest.mark.parametrize(("num_envs", "threads"), [(7, 1), (7, 2), (7, 3), (100, 1), (200, 2)])
def test_every_transition_of_a_fleet(num_envs, threads):
    agent = prepared(cycle, num_envs=num_envs, threads=threads, shares=threads)
    assert agent.learner.device.team.threads == threads
    assert check_rollout(agent) == [1] * num_envs  # a reset counts the episodes from 1
    check_rollout(agent, skip=HORIZON, phases=[1] * num_envs)  # the next rollout goes on where this one ended


def test_every_transition_of_a_fleet_in_python():
    agent = prepared(cycle, num_envs=7, device="python")
    assert check_rollout(agent) == [1] * 7
    check_rollout(agent, skip=HORIZON, phases=[1] * 7)


@pytest.mark.parametrize(("device", "threads", "workers"), [
    ("cpu", 1, None), ("cpu", 1, 2), ("cpu", 2, None), ("cpu", 2, 2), ("python", 1, None),
])  # fmt: skip
def test_every_transition_of_gymnasium(device, threads, workers):
    agent = prepared("gym:HostCycle-v0", num_envs=5, device=device, threads=threads, shares=threads, workers=workers)
    try:
        phases = check_rollout(agent)
        assert len(set(phases)) > 1  # copies have seeds of their own
        check_rollout(agent, skip=HORIZON, phases=phases)
    finally:
        agent.learner.collector.envs.close()


def test_a_native_environment_as_one_of_gymnasium():
    """Counter through Gymnasium's interface is Counter: 10 steps, all of which pay their index, then terminated."""
    agent = prepared("gym:velocirl/Counter-v0", num_envs=3, threads=1)
    samples, _, episodes = collect(agent)
    for column in samples:
        np.testing.assert_array_equal(column["observation"][:, 0], np.arange(HORIZON) % 10)
        np.testing.assert_array_equal(column["reward"], np.arange(HORIZON) % 10)
        np.testing.assert_array_equal(column["ended"], np.where(np.arange(HORIZON) % 10 == 9, TERMINATED, GOES_ON))
        assert not column["final_value"].any()
    assert episodes["total"].tolist() == [45] * 6
    assert episodes["length"].tolist() == [10] * 6


def test_rollouts_do_not_depend_on_the_number_of_threads():
    stored = [collect(prepared(cycle, num_envs=7, threads=threads, shares=threads))[0] for threads in (1, 2, 3)]
    for other in stored[1:]:
        assert other["action"].tobytes() == stored[0]["action"].tobytes()
        assert other["log_probability"].tobytes() == stored[0]["log_probability"].tobytes()
    assert 0.3 < stored[0]["action"].mean() < 0.7


def test_no_two_streams_are_alike():
    agent = prepared(cycle, num_envs=7, threads=2, shares=2)
    collector = agent.learner.collector
    streams = np.concatenate([collector.fleet.copies.rng, collector.rng, agent.learner.epochs.rng, agent._acting])
    assert len(np.unique(streams, axis=0)) == 7 + 7 + 2 + 1
    first_numbers = [random.uniform(stream) for stream in streams.copy()]
    assert len(set(first_numbers)) == len(first_numbers)


def test_what_is_drawn_is_stored_before_it_is_clipped():
    agent = prepared("IdentityContinuous-v0", num_envs=6, threads=2, shares=2)
    samples, _, _ = collect(agent)
    drawn, seen = samples["action"][..., 0].astype(np.float64), samples["observation"][..., 0].astype(np.float64)
    assert (np.abs(drawn) > 1).mean() > 0.2
    # The environment got the clipped number; the log-probability is that of what was drawn.
    np.testing.assert_allclose(samples["reward"], -((np.clip(drawn, -1, 1) - seen) ** 2), atol=1e-5)
    layers = agent.network.layers(agent.parameters)
    log_deviation = float(layers[-1][1][0])
    assert log_deviation == 0
    hidden = np.tanh(np.tanh(seen[..., None] @ layers[0][0] + layers[0][1]) @ layers[1][0] + layers[1][1])
    mean = (hidden @ layers[2][0] + layers[2][1])[..., 0]
    expected = torch.distributions.Normal(torch.tensor(mean), 1.0).log_prob(torch.tensor(drawn)).numpy()
    np.testing.assert_allclose(samples["log_probability"], expected, atol=1e-5)


def test_masks_are_stored_and_kept_to():
    agent = prepared("TicTacToe-v1", num_envs=9, threads=2, shares=2)
    samples, _, _ = collect(agent)
    samples = samples.reshape(-1)
    boards = samples["observation"]
    empty = boards.reshape(-1, 9, 3)[:, :, 0] == 1  # each cell is a code of three: empty, mine, theirs
    np.testing.assert_array_equal(samples["mask"] != 0, empty)
    actions = samples["action"][:, 0]
    assert samples["mask"][np.arange(len(samples)), actions].all()
    logits = outputs(agent, boards)[:, :9].masked_fill(torch.tensor(~empty), -inf)
    expected = torch.log_softmax(logits, dim=1).numpy()[np.arange(len(samples)), actions]
    np.testing.assert_allclose(samples["log_probability"], expected, atol=1e-5)
    assert empty.sum(axis=1).min() <= 2
    assert empty.sum(axis=1).max() == 9


def test_normalised_rollouts():
    """Observations are stored as the network saw them, final ones are seen in the same way, and moments stand still."""
    agent = prepared(cycle, num_envs=7, threads=2, shares=2, normalise_observations=True)
    first, _, _ = collect(agent)
    estimate(agent)
    counts = first["observation"].astype(np.float64)  # nothing is known yet: mean 0, deviation 1
    np.testing.assert_allclose(agent.observation_moments.mean, counts.mean(), rtol=1e-6)
    np.testing.assert_allclose(agent.observation_moments.inverse_deviation, 1 / counts.std(), rtol=1e-6)
    samples, last_value, _ = collect(agent)

    def seen(count):
        return (np.asarray(count, np.float64) - counts.mean()) / counts.std()

    for i, column in enumerate(samples):
        truth, ended, next_count = life(1, HORIZON, HORIZON)
        np.testing.assert_allclose(column["observation"][:, 0], seen(truth), atol=1e-5)
        cut = np.flatnonzero(ended == TRUNCATED)
        np.testing.assert_allclose(column["final_value"][cut], values(agent, seen([LIMIT] * len(cut))), atol=1e-5)
        np.testing.assert_allclose(last_value[i], values(agent, [seen(next_count)])[0], atol=1e-5)


def test_discounted_returns_for_the_scale_of_rewards():
    agent = prepared(cycle, num_envs=7, threads=2, shares=2, gamma=0.9, normalise_rewards=True)
    samples, _, _ = collect(agent)
    returns = []
    for column in samples:
        total = 0.0
        for sample in column:
            total = 0.9 * total + float(sample["reward"])
            returns.append(total)
            total = 0.0 if sample["ended"] else total
    estimate(agent)
    np.testing.assert_allclose(agent.reward_moments.inverse_deviation, 1 / np.std(returns), rtol=1e-5)
    expected = np.clip(samples["reward"] / np.std(returns), -10, 10)
    np.testing.assert_allclose(agent.learner.recorded.records["reward"][:, :-1], expected, rtol=1e-5)


@pytest.mark.parametrize("environment", [cycle, "IdentityContinuous-v0", "TicTacToe-v1"], ids=str)
def test_the_policy_has_not_moved_before_the_first_step(environment):
    """In the first epoch every ratio is 1: the learner sees the policy that the collector used."""
    environment = velocirl.engine.registry.find(environment)
    settings = {**SMALL, "minibatch_size": 10**9, "threads": 2, "shares": 2}
    agent = PPO(environment, **settings, num_envs=100, epochs=1, clip=1e-5)
    for _ in range(3):
        agent.learn(100 * HORIZON)
        assert agent.metrics["train/clip_fraction"] == 0
        assert abs(agent.metrics["train/approx_kl"]) < 1e-9
    assert agent.metrics["train/gradient_norm"] > 0
