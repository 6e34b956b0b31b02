"""Rollouts learnt from in whole batches, by torch: against native networks from the same seed, and by a module."""

import dataclasses
from math import inf, nan

import numpy as np
import pytest
import torch
from choosing import slow_but
from fragile import fragile, spoil
from torch import nn

from velocirl import PPO, Box, Checkpoint, Discrete, Environment, NumericalError, float32, int32, random, record
from velocirl.buffers.records import GOES_ON, TERMINATED, TRUNCATED
from velocirl.engine import registry
from velocirl.program.clock import FAULT, STOPPED
from velocirl.runs.checkpoints import Checkpoints
from velocirl.training.persistence import Goal

SMALL = {
    "num_envs": 6, "horizon": 16, "minibatch_size": 32, "epochs": 2, "seed": 5, "threads": 1, "device": "cpu",
    "learning_rate": 3e-3, "learning_rate_schedule": "constant", "gamma": 0.9, "activation": "tanh",
}  # fmt: skip
NATIVE, TORCH = {"hidden": (16, 16), "shared": True, "layer_norm": False}, {"network": "mlp(16, 16)"}
WHOLE = {"minibatch_size": 10**9, "epochs": 1}  # one minibatch of everything, in which no order counts
PLAIN = {"optimiser": "sgd", "max_grad_norm": 0.0, **WHOLE}  # parameters move along the gradient
BATCH = 96
LENGTHS, LIMIT = (3, 9, 6, 1), 4  # of episodes in turn; some end by themselves, some are cut off, one does both


pytestmark = pytest.mark.usefixtures("one_torch_thread")


@record
class State:
    count: float32
    episode: int32


def reset(state, params, rng):
    state.count = 0
    state.episode = random.integer(rng, 0, 4)


def step(state, params, action, rng):
    reward = state.count + 10.0 * action
    state.count += 1
    return reward, state.count >= LENGTHS[state.episode]


def observe(state, params, observation):
    observation[0] = state.count


cycle = Environment(
    "TorchCycle-v0", state=State, observation=Box(0, inf, (1,)), action=Discrete(2), max_steps=LIMIT,
    reset=reset, step=step, observe=observe,
)  # fmt: skip


class Actor(nn.Module):
    """A user's own policy and value."""

    def __init__(self, inputs=1, outputs=2):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.body, self.policy, self.value = nn.Linear(inputs, 16), nn.Linear(16, outputs), nn.Linear(16, 1)
        for one in self.parameters():
            one.data.uniform_(-0.5, 0.5, generator=generator)

    def forward(self, observation):
        features = torch.tanh(self.body(observation))
        return self.policy(features), self.value(features)


def prepared(environment="Counter-v0", **config):
    agent = PPO(environment, **{**SMALL, **config})
    agent.goal = Goal(0, 10**6)
    agent.prepare()
    return agent


def both(environment, **config):
    return prepared(environment, **NATIVE, **config), prepared(environment, **TORCH, **config)


def native_samples(agent):
    return agent.learner.recorded.records[:, :-1]


def samples_of(agent):
    """The samples (copies, horizon) of torch's learner."""
    return agent.learner.recorded.records[:, :-1].copy()


def assert_near(found, expected, tolerance):
    assert np.abs(found - expected).max() <= tolerance * np.abs(expected).max()


@pytest.fixture(scope="module")
def short_pole():
    return dataclasses.replace(registry.find("CartPole-v1"), id="ShortPole-v0", max_steps=5)


ENVIRONMENTS = ["Counter-v0", "short pole", "IdentityContinuous-v0", "TicTacToe-v1", "TorchCycle-v0"]


def found(name, short_pole):
    return short_pole if name == "short pole" else cycle if name == cycle.id else name


@pytest.mark.parametrize("name", slow_but({"short pole"}, ENVIRONMENTS))
def test_the_first_rollout_is_that_of_the_native_learner(name, short_pole):
    """Sample by sample: both draw the same random numbers for the same copies."""
    native, torched = both(found(name, short_pole), normalise_observations=name == "short pole", **WHOLE)
    np.testing.assert_array_equal(torched.parameters, native.parameters)
    rows = native.iterate(), torched.iterate()
    expected, stored = native_samples(native), samples_of(torched)
    for field in ("ended", "mask"):
        np.testing.assert_array_equal(stored[field], expected[field], err_msg=field)
    for field in ("action", "observation", "log_probability", "value", "reward", "final_value", "advantage", "target"):
        np.testing.assert_allclose(stored[field], expected[field], rtol=1e-5, atol=2e-5, err_msg=field)
    assert name not in ("Counter-v0", "short pole") or expected["ended"].any()
    for metric in ("rollout/ep_rew_mean", "rollout/ep_len_mean", "train/explained_variance", "train/loss",
                   "train/value_loss", "train/entropy_loss", "train/gradient_norm", "train/minibatches"):  # fmt: skip
        assert rows[1][metric] == pytest.approx(rows[0][metric], rel=1e-4, abs=1e-5, nan_ok=True), metric
    assert list(torched.recent.returns) == list(native.recent.returns)
    assert list(torched.recent.lengths) == list(native.recent.lengths)


@pytest.mark.parametrize("name", slow_but((), ENVIRONMENTS))
def test_gradients_are_those_of_the_native_learner(name, short_pole):
    native, torched = both(found(name, short_pole), **PLAIN)
    before = native.parameters.copy()
    native.iterate()
    torched.iterate()
    expected = native.parameters - before
    assert np.abs(expected).max() > 1e-4
    assert_near(torched.parameters - before, expected, 1e-4)


@pytest.mark.parametrize(
    "changes",
    [
        {"value_clip": 0.1, "dual_clip": 1.5, "entropy_coefficient": 0.1},
        pytest.param({"estimator": "vtrace", "rho_limit": 0.8}, marks=pytest.mark.slow),
        pytest.param({"normalise_observations": True, "normalise_rewards": True}, marks=pytest.mark.slow),
        {"normalise_advantages": False, "gae_lambda": 0.5},
        {"max_grad_norm": 0.5},
        {"max_grad_value": 0.01},
        {"optimiser": "adam", "learning_rate": 0.01},
    ],
    ids=lambda changes: " ".join(changes),
)
def test_iterations_are_those_of_the_native_learner(changes, short_pole):
    """Four iterations of three passes over everything, so that ratios and values are no longer those of the rollout."""
    config = {**PLAIN, "epochs": 3, "learning_rate": 0.2, "value_coefficient": 0.02, **changes}
    native, torched = both(short_pole, **config)
    before = native.parameters.copy()
    for _ in range(4):
        rows = native.iterate(), torched.iterate()
        np.testing.assert_array_equal(samples_of(torched)["action"], native_samples(native)["action"])
    assert_near(torched.parameters - before, native.parameters - before, 2e-3)
    for metric in ("train/approx_kl", "train/clip_fraction", "train/loss", "train/n_updates", "train/learning_rate"):
        assert rows[1][metric] == pytest.approx(rows[0][metric], rel=2e-3, abs=2e-5), metric
    assert rows[0]["train/approx_kl"] > 1e-6
    arrays = native.arrays(), torched.arrays()
    for name in ("observation.moments", "reward.moments"):
        assert name == "reward.moments" or arrays[0][name].any() == changes.get("normalise_observations", False)
        if arrays[1][name].any():
            assert_near(arrays[1][name], arrays[0][name], 1e-5)


def value_of(module, counts):
    with torch.no_grad():
        return module(torch.tensor(np.asarray(counts, np.float32)).reshape(-1, 1))[1].numpy()[:, 0].astype(np.float64)


def check_column(module, column, last_value, gamma, gae_lambda, next_count):
    """Everything that a rollout stored of one copy, from the counts that it saw."""
    counts, ended = column["observation"][:, 0], column["ended"]
    cut = (ended != GOES_ON) & (counts + 1 >= LIMIT)
    assert np.all(counts[1:] == np.where(ended[:-1] != GOES_ON, 0, counts[:-1] + 1))
    assert np.all(counts < LIMIT)
    truncated = ended == TRUNCATED
    assert np.all(cut[truncated])
    values = value_of(module, counts)
    np.testing.assert_allclose(column["value"], values, atol=1e-5)
    # What follows a cut is worth the value of the last observation of that episode, not of the next one's first.
    final = np.where(truncated, value_of(module, np.full(len(counts), LIMIT)), 0.0)
    np.testing.assert_allclose(column["final_value"], final, atol=1e-5)
    assert last_value == pytest.approx(value_of(module, [next_count])[0], abs=1e-5)
    advantage, following = 0.0, float(last_value)
    for t in reversed(range(len(column))):
        if ended[t] != GOES_ON:
            advantage, following = 0.0, final[t]
        advantage = column["reward"][t] + gamma * following - values[t] + gamma * gae_lambda * advantage
        following = values[t]
        assert column["advantage"][t] == pytest.approx(advantage, rel=1e-4, abs=1e-4)
        assert column["target"][t] == pytest.approx(advantage + values[t], rel=1e-4, abs=1e-4)
    return int(truncated.sum())


def test_advantages_at_the_ends_of_episodes():
    """By a user's module, in plain Python: several cuts and ends of each copy in one rollout, and in the next."""
    raw = {"normalise_observations": False, "normalise_rewards": False}
    agent = prepared(cycle, network=Actor(), num_envs=20, horizon=25, **raw, **WHOLE)
    kinds = set()
    for _ in range(2):
        module = Actor()
        module.load_state_dict(agent.network.state_dict())  # as it is during the rollout
        agent.iterate()
        samples, last_values = samples_of(agent), agent.learner.recorded.records["value"][:, -1].copy()
        next_counts = agent.learner.collector.fleet.copies.state["count"]
        cuts = [
            check_column(module, column, last_values[i], 0.9, 0.95, next_counts[i]) for i, column in enumerate(samples)
        ]
        assert max(cuts) >= 4
        kinds |= set(samples["ended"].reshape(-1).tolist())
        policy = torch.log_softmax(module(torch.tensor(samples["observation"].reshape(-1, 1)))[0], 1).detach().numpy()
        chosen = policy[np.arange(len(policy)), samples["action"].reshape(-1)]
        np.testing.assert_allclose(samples["log_probability"].reshape(-1), chosen, atol=1e-5)
    assert kinds == {GOES_ON, TERMINATED, TRUNCATED}


def test_the_gradient_of_a_users_module():
    """One step against torch autograd and torch's own loss."""
    agent = prepared(cycle, network=Actor(), entropy_coefficient=0.1, **PLAIN)
    module = Actor()
    before = agent.parameters.copy()
    agent.iterate()
    samples = samples_of(agent).reshape(-1)
    policy, value = module(torch.tensor(samples["observation"]))
    choice = torch.distributions.Categorical(logits=policy)
    log_probability = choice.log_prob(torch.tensor(samples["action"][:, 0]).long())
    advantage = torch.tensor(samples["advantage"])
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    ratio = torch.exp(log_probability - torch.tensor(samples["log_probability"]))
    error = (value[:, 0] - torch.tensor(samples["target"])) ** 2 / 2
    (-ratio * advantage + 0.5 * error - 0.1 * choice.entropy()).mean().backward()
    expected = np.concatenate([one.grad.numpy().reshape(-1) for one in module.parameters()])
    assert_near((before - agent.parameters) / 3e-3, expected, 1e-3)


def test_the_number_of_threads_changes_nothing():
    """Two threads share out mapped functions from 2048 indices on."""
    agents = [prepared(num_envs=256, threads=threads, **TORCH) for threads in (1, 2)]
    for agent in agents:
        agent.iterate()
    assert agents[0].parameters.tobytes() == agents[1].parameters.tobytes()


def test_every_sample_is_used_once_in_an_epoch():
    agent = prepared(num_envs=7, horizon=10, minibatch_size=14, **TORCH)
    program, seen = agent.learner.epochs.program, []
    run = program.run

    def watch(*arguments, **more):
        run(*arguments, **more)
        seen.append(agent.learner.epochs.drawing.index.numpy().copy())

    program.run = watch
    agent.iterate()
    assert [len(one) for one in seen] == [14] * 10
    first, second = np.concatenate(seen[:5]), np.concatenate(seen[5:])
    assert sorted(first) == sorted(second) == list(range(70))
    assert first.tolist() != second.tolist()


def test_accumulated_minibatches_are_one_large_one():
    plain = {**PLAIN, "normalise_advantages": False}
    agents = [
        prepared(**TORCH, **{**plain, **changes})
        for changes in ({}, {"minibatch_size": BATCH // 2, "gradient_accumulation": 2}, {"minibatch_size": BATCH // 2})
    ]
    before = agents[0].parameters.copy()
    rows = [agent.iterate() for agent in agents]
    assert [row["train/n_updates"] for row in rows] == [1, 1, 2]
    assert [row["train/minibatches"] for row in rows] == [1, 2, 2]
    whole, accumulated, single = (agent.parameters - before for agent in agents)
    assert_near(accumulated, whole, 1e-4)
    assert rows[1]["train/gradient_norm"] == pytest.approx(rows[0]["train/gradient_norm"], rel=1e-4)
    assert np.abs(single - whole).max() > 0.1 * np.abs(whole).max()


def test_what_is_left_over_is_accumulated_too():
    """Three minibatches by twos: the last one makes a step of its own, with its own mean."""
    assert prepared(gradient_accumulation=2, **TORCH).iterate()["train/n_updates"] == 4
    halves = prepared(**TORCH, **{**PLAIN, "minibatch_size": 32, "gradient_accumulation": 2, "learning_rate": 1e-12})
    assert halves.iterate()["train/n_updates"] == 2


def test_an_update_stops_where_the_policy_has_moved_too_far():
    free = prepared(learning_rate=0.1, epochs=8, **TORCH)
    held = prepared(learning_rate=0.1, epochs=8, target_kl=0.002, **TORCH)
    rows = free.iterate(), held.iterate()
    assert rows[0]["train/minibatches"] == 24
    assert 1 < rows[1]["train/minibatches"] < 24
    assert rows[1]["train/n_updates"] == rows[1]["train/minibatches"] - 1  # the one that told of it makes no step
    assert held.learner.clock.counts[0, STOPPED] == 1
    again = held.iterate()
    assert again["train/n_updates"] > rows[1]["train/n_updates"]  # the next update begins anew


def test_each_number_of_the_gradient_is_clipped():
    plain, clipped = (prepared(**TORCH, **PLAIN, max_grad_value=limit) for limit in (0.0, 0.01))
    before = plain.parameters.copy()
    for agent in (plain, clipped):
        agent.iterate()
    gradient = (before - plain.parameters) / 3e-3
    expected = np.clip(gradient, -0.01, 0.01)
    assert (np.abs(gradient) > 0.01).mean() > 0.05
    assert_near((before - clipped.parameters) / 3e-3, expected, 2e-2)  # parameters are rounded at 1e-7


def test_the_gradient_is_clipped_to_its_norm():
    agent = prepared(**TORCH, **{**PLAIN, "max_grad_norm": 0.25, "learning_rate": 0.5})
    before = agent.parameters.copy()
    row = agent.iterate()
    assert row["train/gradient_norm"] > 1  # told as it was
    assert np.linalg.norm(agent.parameters - before) == pytest.approx(0.125, rel=1e-3)


def test_the_last_episodes_to_end_are_told():
    """Of a rollout with more than 100 ends the last hundred count, in the order of their ends."""
    agent = prepared(num_envs=20, horizon=40, **TORCH)
    lengths = np.arange(20) % 5 + 1
    agent.learner.collector.fleet.copies.params["length"] = lengths
    agent.iterate()
    ends = [int(lengths[copy]) for t in range(40) for copy in range(20) if (t + 1) % lengths[copy] == 0]
    assert len(ends) > 300
    assert list(agent.recent.lengths) == ends[-100:]
    assert list(agent.recent.returns) == [length * (length - 1) / 2 for length in ends[-100:]]


def assert_stops(agent, message, directory, saved=(BATCH,)):
    """It stops in the second iteration, parameters are numbers still, and the newest checkpoint is from before."""
    with pytest.raises(NumericalError, match=message):
        agent.learn(10 * BATCH, Checkpoint(directory, every=1))
    assert list(Checkpoints(directory).steps()) == list(saved)
    if saved:
        arrays = Checkpoints(directory).latest().state.arrays.values()
        assert all(np.isfinite(array).all() for array in arrays if array.dtype.kind == "f")
        assert np.isfinite(agent.parameters).all()


@pytest.mark.parametrize("network", ["mlp(16, 16)", "mlp(8) gru(8)", Actor], ids=str)
@pytest.mark.parametrize("number", [nan, -inf])
def test_a_reward_that_is_no_number(number, network, tmp_path):
    agent = prepared(fragile, network=network() if network is Actor else network)
    spoil(agent, 4, at=21, reward=number)  # step 4 of the second rollout
    message = rf"a reward of the environment is not finite: copy 4, step {BATCH + 4 * 6} of the run \(4 of this"
    assert_stops(agent, message, tmp_path)


@pytest.mark.parametrize("number", [nan, inf])
@pytest.mark.parametrize("normalise", [False, True])
def test_an_observation_that_is_no_number(number, normalise, tmp_path):
    agent = prepared(fragile, normalise_observations=normalise, **TORCH)
    spoil(agent, 3, at=20, observation=number)
    message = rf"an observation of the environment is not finite: copy 3, step {BATCH + 4 * 6} of the run \(4 of this"
    assert_stops(agent, message, tmp_path)


def test_a_final_observation_that_is_no_number(tmp_path):
    agent = prepared(fragile, **TORCH)
    agent.learner.collector.fleet.copies.elapsed[2] = 980  # cut off at step 1000: step 3 of the second rollout
    spoil(agent, 2, at=20, observation=nan)
    message = rf"an observation of the environment is not finite: copy 2, step {BATCH + 3 * 6} of the run \(3 of this"
    assert_stops(agent, message, tmp_path)


def test_the_first_of_several_faults_is_told():
    agent = prepared(fragile, **TORCH)
    spoil(agent, 5, at=3, reward=nan)
    spoil(agent, 4, at=2, reward=inf)
    with pytest.raises(NumericalError, match=r"copy 4, step 6 of the run \(1 of this rollout\)"):
        agent.learn(BATCH)


def test_a_gradient_that_is_no_number(tmp_path):
    """A reward near the largest number is finite, a hundred times the critic's error is not."""
    agent = prepared(fragile, value_coefficient=100.0, normalise_rewards=False, **TORCH)
    spoil(agent, 0, at=21, reward=1e38)
    assert_stops(agent, f"the gradient is not finite in the update after step {2 * BATCH} of the run", tmp_path)
    assert agent.learner.clock.counts[0, FAULT] == 1


def test_a_step_that_leaves_the_numbers(tmp_path):
    agent = prepared(fragile, **{**TORCH, "learning_rate": 3e38, "max_grad_norm": 0.0})
    assert_stops(agent, "is not finite", tmp_path, saved=())


def test_a_saved_rollout_holds_nothing_of_what_lay_in_memory():
    """Records have gaps between their fields, and a copy by numpy has anything at all in them."""
    agent = PPO("CartPole-v1", **{**SMALL, "device": "python"})
    agent.prepare()
    recorded = agent.learner.collector.recorded
    kind = recorded.memory.dtype
    recorded.memory.view(np.uint8)[...] = 0xAB
    saved = recorded.contents()["waiting.records"].reshape(-1, kind.itemsize)
    held = np.zeros(kind.itemsize, bool)
    for field, start in (one[:2] for one in kind.fields.values()):
        held[start : start + field.itemsize] = True
    assert 0 < held.sum() < kind.itemsize
    assert (saved == np.where(held, 0xAB, 0)).all()


def test_scheduled_settings_are_those_of_threads(short_pole):
    schedule = {"clip": [(0.0, 0.3), (1.0, 0.01)], "entropy_coefficient": lambda left: 0.5 * left, **WHOLE}
    native, torched = both(found("short pole", short_pole), **schedule)
    for _ in range(3):
        rows = native.iterate(), torched.iterate()
        assert rows[0]["train/entropy_coefficient"] == rows[1]["train/entropy_coefficient"]
    assert rows[0]["train/clip"] == pytest.approx(0.3 - 0.29 * native.goal.progress(2 * BATCH))
    np.testing.assert_allclose(torched.parameters, native.parameters, atol=1e-5)
