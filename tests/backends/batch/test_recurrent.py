"""Recurrent policies: what learning recomputes is what the rollout saw, and the state begins anew with each episode."""

from math import inf

import gymnasium
import numpy as np
import pytest
import torch
from choosing import slow_but
from torch import nn

import velocirl
from velocirl import PPO, Box, Discrete, Environment, float32, int32, random, record
from velocirl.buffers.records import GOES_ON, TERMINATED, TRUNCATED
from velocirl.program.clock import LEARNING_RATE
from velocirl.training.persistence import Goal

SMALL = {
    "num_envs": 6, "horizon": 21, "minibatch_size": 42, "epochs": 2, "seed": 5, "threads": 1, "device": "cpu",
    "learning_rate": 0.01, "learning_rate_schedule": "constant", "gamma": 0.9, "activation": "tanh",
    "normalise_observations": False,
}  # fmt: skip
BATCH = 6 * 21
QUICK = {"lstm", "own module", "masked", "gymnasium"}  # each the first of its kind
LENGTHS, LIMIT = (3, 9, 6, 1), 4  # of episodes at random; some end by themselves, some are cut off, one does both


pytestmark = pytest.mark.usefixtures("one_torch_thread")


@record
class State:
    count: float32
    episode: int32


def reset(state, params, rng):
    state.count = 0
    state.episode = random.integer(rng, 0, 4)


def step(state, params, action, rng):
    state.count += 1
    return state.count + action, state.count >= LENGTHS[state.episode]


def observe(state, params, observation):
    observation[0] = state.count


cycle = Environment(
    "RecurrentCycle-v0", state=State, observation=Box(0, inf, (1,)), action=Discrete(2), max_steps=LIMIT,
    reset=reset, step=step, observe=observe,
)  # fmt: skip


class Cycle(gymnasium.Env):
    """The same in Python."""

    observation_space, action_space = Box(0, inf, (1,)), Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.count = int(self.np_random.integers(4)), 0
        return np.array([0], np.float32), {}

    def step(self, action):
        self.count += 1
        ended = self.count >= LENGTHS[self.episode]
        return np.array([self.count], np.float32), float(self.count + action), ended, False, {}


class Parts(gymnasium.Env):
    """Observations of three parts, with masks; episodes end at random."""

    observation_space = gymnasium.spaces.Dict(
        {"camera": Box(0, 255, (5, 5, 1), np.uint8), "place": Discrete(3), "speed": Box(-1, 1, (2,))}
    )
    action_space = Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._look()

    def _look(self):
        draw = self.np_random
        seen = {
            "camera": draw.integers(0, 256, (5, 5, 1), np.uint8),
            "place": int(draw.integers(3)),
            "speed": draw.uniform(-1, 1, 2).astype(np.float32),
        }
        mask = np.ones(3, np.int8)
        mask[seen["place"]] = 0
        return seen, {"action_mask": mask}

    def step(self, action):
        seen, info = self._look()
        return seen, float(action), bool(self.np_random.random() < 0.2), False, info


@pytest.fixture(scope="module", autouse=True)
def _register():
    gymnasium.register("RecurrentCycle-v7", Cycle, max_episode_steps=LIMIT)
    gymnasium.register("RecurrentParts-v7", Parts)
    yield
    gymnasium.registry.pop("RecurrentCycle-v7")
    gymnasium.registry.pop("RecurrentParts-v7")


class Remembers(nn.Module):
    """A user's own: it keeps a running mixture of what it saw, and has no `unroll`."""

    state_size = 4

    def __init__(self, inputs=1, outputs=2):
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.enter, self.stay, self.out = nn.Linear(inputs, 4), nn.Linear(4, 4), nn.Linear(4, outputs + 1)
        for one in self.parameters():
            one.data.uniform_(-0.7, 0.7, generator=generator)

    def forward(self, observation, state):
        state = torch.tanh(self.enter(observation) + self.stay(state))
        return self.out(state), state


CASES = {
    "lstm": (cycle, "mlp(8) lstm(8)"),
    "gru": (cycle, "gru(8)"),
    "two layers": (cycle, "lstm(6, layers=2)"),
    "own module": (cycle, Remembers),
    "masked": ("TicTacToe-v1", "mlp(8) gru(8)"),
    "memory": ("Memory-v0", "lstm(8)"),
    "continuous": ("IdentityContinuous-v0", "gru(8)"),
    "gymnasium": ("gym:RecurrentCycle-v7", "gru(8)"),
    "parts": ("gym:RecurrentParts-v7", {"camera": "cnn(3)", "then": "mlp(8) lstm(8)"}),
}


def build(name, **changes):
    environment, network = CASES[name]
    agent = PPO(environment, **{**SMALL, **changes}, network=Remembers() if network is Remembers else network)
    agent.goal = Goal(0, 10**6)
    return agent


def trained(name, iterations=2, **changes):
    """An agent in the middle of episodes, so that what it remembers at the beginning of a rollout counts."""
    agent = build(name, **changes)
    agent.prepare()
    for _ in range(iterations):
        agent.iterate()
    return agent


def collect(agent):
    learner = agent.learner
    with learner.device.at_work():
        learner.collector.collect()
    return learner.recorded.memory[:-1]


def log_probabilities(agent, outputs, samples):
    if agent.head.name == "gaussian":
        normal = torch.distributions.Normal(outputs[..., :1], outputs[..., 1:2].exp())
        return normal.log_prob(torch.tensor(samples["action"])).sum(-1)
    logits = outputs[..., :-1]
    if agent.head.masked:
        logits = logits.masked_fill(torch.tensor(samples["mask"]) == 0, -inf)
    return torch.distributions.Categorical(logits=logits, validate_args=False).log_prob(
        torch.tensor(samples["action"][..., 0]).long()
    )


@pytest.mark.parametrize("name", slow_but(QUICK, CASES))
def test_learning_sees_what_the_rollout_saw(name):
    """Every minibatch of an epoch, with the parameters of the rollout: values and log-probabilities."""
    agent = trained(name)
    samples = collect(agent)
    learner, horizon = agent.learner, agent.config.horizon
    assert samples["ended"][:-1].any()
    program, before, seen = learner.epochs.program, agent.parameters.copy(), []
    run = program.run

    def watch(*arguments, **more):
        run(*arguments, **more)
        index = learner.epochs.drawing.index.numpy().reshape(horizon, -1)
        copies = index[0].tolist()
        np.testing.assert_array_equal(index, np.arange(horizon)[:, None] * 6 + copies)
        outputs, drawn = program._outputs["policy"].reshape(*index.shape, -1), samples[:, copies]
        np.testing.assert_allclose(outputs[..., -1], drawn["value"], atol=1e-5)
        np.testing.assert_allclose(log_probabilities(agent, outputs, drawn), drawn["log_probability"], atol=1e-5)
        seen.extend(copies)

    program.run = watch
    learner.clock.numbers[:, LEARNING_RATE] = 0.0
    with learner.device.at_work():
        learner._start()
        learner.epochs.run(agent.schedule(0.0)._replace(epochs=1))
    assert sorted(seen) == list(range(6))
    learner.fresh = False
    np.testing.assert_array_equal(agent.parameters, before)
    assert np.ptp(samples["value"]) > 1e-3


@pytest.mark.parametrize("name", slow_but({"lstm"}, CASES))
def test_the_policy_has_not_moved_before_the_first_step(name):
    """With one pass over everything, every ratio is 1: the learner reads the policy that the collector used."""
    agent = build(name, minibatch_size=10**9, epochs=1, clip=1e-5)
    for _ in range(3):
        agent.learn(BATCH)
        assert agent.metrics["train/clip_fraction"] == 0
        assert abs(agent.metrics["train/approx_kl"]) < 1e-9
    assert agent.metrics["train/gradient_norm"] > 0


@pytest.mark.parametrize("name", slow_but({"lstm", "gymnasium"}, ["lstm", "gru", "own module", "gymnasium"]))
def test_the_state_is_zero_after_an_end_and_nowhere_else(name):
    agent = trained(name)
    follows = agent.learner.recorded.memory[agent.config.horizon - 1]["ended"] != GOES_ON
    network, given = agent.learner.collector.network, []
    forward = network.forward

    def watch(inputs, state=None):
        given.append(state.clone().numpy())
        return forward(inputs, state)

    network.forward = watch
    for _ in range(3):
        given.clear()
        ended = collect(agent)["ended"]
        for t in range(agent.config.horizon):
            np.testing.assert_array_equal(~given[t].any(axis=1), follows)
            follows = ended[t] != GOES_ON
        np.testing.assert_array_equal(~given[agent.config.horizon].any(axis=1), follows)  # the last value
    assert {GOES_ON, TERMINATED, TRUNCATED} == set(ended.reshape(-1).tolist())


@pytest.mark.parametrize("name", slow_but({"lstm"}, ["lstm", "gru", "two layers", "own module", "gymnasium"]))
def test_values_where_an_episode_is_cut_off(name):
    """Step by step through the module: the last observation is valued with what was remembered before it."""
    agent = trained(name)
    module = agent.network
    samples = collect(agent)
    collector = agent.learner.collector
    state = collector.recorded.start_state.clone()
    assert state.any()
    cuts = 0
    for row in samples:
        with torch.no_grad():
            outputs, state = module(torch.tensor(row["observation"]), state)
            final, _ = module(torch.full((6, 1), float(LIMIT)), state)
        np.testing.assert_allclose(row["value"], values_in(outputs), atol=1e-5)
        truncated = row["ended"] == TRUNCATED
        np.testing.assert_allclose(row["final_value"], np.where(truncated, values_in(final), 0), atol=1e-5)
        state[torch.tensor(row["ended"] != GOES_ON)] = 0.0
        cuts += truncated.sum()
    assert cuts > 6
    np.testing.assert_allclose(collector.memory.numpy(), state.numpy(), atol=1e-5)
    with torch.no_grad():
        last, _ = module(torch.tensor(collector.recorded.memory[-1]["observation"]), state)
    np.testing.assert_allclose(collector.recorded.memory[-1]["value"], values_in(last), atol=1e-5)


def values_in(outputs):
    return outputs.numpy()[:, -1]


@pytest.mark.parametrize("name", slow_but({"lstm", "gru"}, ["lstm", "gru", "own module", "masked", "continuous"]))
def test_resumed_in_the_middle_of_episodes(name, tmp_path):
    """What the network remembers is part of the checkpoint: three iterations and three are six, bit for bit."""
    again = {"network": Remembers()} if name == "own module" else {}
    whole = build(name).learn(6 * BATCH)
    half = build(name).learn(6 * BATCH, lambda agent: agent.steps < 3 * BATCH)
    assert half.steps == 3 * BATCH
    remembered = half.arrays()["policy.state"]
    assert remembered.any(axis=1).sum() >= 2
    resumed = PPO.load(half.save(tmp_path / "half"), **again)
    resumed.learn()
    assert resumed.finished
    expected, found = whole.arrays(), resumed.arrays()
    assert found.keys() == expected.keys()
    for key, array in expected.items():
        assert found[key].tobytes() == array.tobytes(), key
    forgetful = PPO.load(tmp_path / "half.safetensors", **({"network": Remembers()} if again else {}))
    forgetful._waiting["policy.state"][:] = 0
    forgetful.learn()
    assert forgetful.parameters.tobytes() != whole.parameters.tobytes()


def test_whole_copies_make_minibatches():
    """Minibatches of a recurrent network are of whole copies, as near to the wanted size as their number allows."""
    agent = trained("gru", iterations=1, minibatch_size=30)  # 126 / 30 is about 4 minibatches; 6 copies give 3
    assert agent.learner.epochs.drawing._extent.unit == agent.config.horizon
    assert agent.learner.epochs.minibatches == 3
    assert agent.iterate()["train/minibatches"] == 3 * 2


def test_vtrace_of_a_recurrent_policy_follows_it():
    """In the second epoch, the value and ratio of every step are those of the network after the first."""
    agents = [
        build("lstm", estimator="vtrace", minibatch_size=10**9, epochs=epochs, learning_rate=0.05) for epochs in (1, 2)
    ]
    for agent in agents:
        agent.prepare()
        agent.iterate()
    once, twice = agents
    samples, state = twice.learner.recorded.memory[:21], twice.learner.recorded.start_state.clone()
    module = once.network
    for row in samples:
        with torch.no_grad():
            outputs, state = module(torch.tensor(row["observation"]), state)
        np.testing.assert_allclose(row["current_value"], values_in(outputs), atol=1e-4)
        ratio = np.exp(log_probabilities(once, outputs, row).numpy() - row["log_probability"])
        np.testing.assert_allclose(row["ratio"], ratio, rtol=1e-3)
        state[torch.tensor(row["ended"] != GOES_ON)] = 0.0
    assert np.abs(samples["ratio"] - 1).max() > 0.01


@pytest.mark.slow
def test_memory_is_learnt():
    """Perfect 3, any policy without memory 1.5; seed 0, 200000 steps."""
    agent = PPO(
        "Memory-v0", network="mlp(16) lstm(16)", seed=0, threads=1, device="cpu", num_envs=64, horizon=32,
        minibatch_size=512, epochs=4, learning_rate=1e-2, gamma=0.7,
    ).learn(200_000)  # fmt: skip
    assert velocirl.evaluate(agent, episodes=200, seed=1).mean_return >= 2.7
