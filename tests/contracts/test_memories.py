"""What every algorithm keeps that learns from a memory: whole groups, priorities that follow the errors, clear ends.

In plain Python all of them run every time; compiled, those that no other test compiles are slow.
"""

from types import SimpleNamespace

import numpy as np
import pytest
from constrained import for_algorithm

from velocirl.algorithms import algorithm_modules, load_algorithms
from velocirl.buffers.records import GOES_ON, TERMINATED
from velocirl.training.off_policy import NoisyConfig, OffPolicyAgent
from velocirl.training.persistence import ALGORITHMS

load_algorithms()

COPIES = 8
COMMON = {"num_envs": COPIES, "train_every": 16, "hidden": (16, 16), "threads": 1, "seed": 5}
SMALL = {
    "cpu": {"learning_starts": 100, "batch_size": 16, "buffer_size": 1001},
    "python": {"learning_starts": 64, "batch_size": 8, "buffer_size": 201},
}
OURS = {name: kind for name, kind in ALGORITHMS.items() if kind.__module__ in algorithm_modules().values()}
NAMES = sorted(name for name, kind in OURS.items() if issubclass(kind, OffPolicyAgent))
ALPHA = 0.6


def cases():
    for name in NAMES:
        yield pytest.param(name, "python", id=f"{name}-python")
        yield pytest.param(name, "cpu", id=f"{name}-cpu", marks=() if name == "dqn" else pytest.mark.slow)


by_algorithm = pytest.mark.parametrize(("name", "device"), list(cases()))
both_devices = pytest.mark.parametrize("device", ["python", pytest.param("cpu", marks=pytest.mark.slow)])


def made(name, device, environment=None, **changes):
    kind = ALGORITHMS[name]
    environment = environment or ("Pendulum-v1" if issubclass(kind.Config, NoisyConfig) else "CartPole-v1")
    return kind(for_algorithm(kind, environment), device=device, **{**COMMON, **SMALL[device], **changes})


def capacity_of(agent):
    return agent.config.buffer_size // agent.config.num_envs * agent.config.num_envs


def rows_of(agent):
    """All places of the memory, as they lie."""
    learner = agent.learner
    return learner.ring.rows


def batch_of(agent):
    """What was drawn last, and what came of it."""
    learner = agent.learner
    if agent.config.device == "cpu":
        return learner.updates.batch
    drawn = learner.ring.drawn
    fields = {f"{name}s": drawn.rows[name] for name in ("reward", "discount", "error")}
    return SimpleNamespace(places=drawn.places, lasts=drawn.lasts, **fields)


@by_algorithm
def test_the_memory_has_whole_groups(name, device):
    agent = made(name, device)
    agent.prepare()
    assert len(rows_of(agent)) == capacity_of(agent) == SMALL[device]["buffer_size"] - 1
    most = capacity_of(agent) * 3 // 5
    small = made(name, device, num_envs=most)
    small.prepare()
    assert len(rows_of(small)) == most


@by_algorithm
def test_what_is_remembered_stays_until_it_is_forgotten(name, device):
    """When a memory is full, one more step replaces the oldest group and touches nothing else."""
    agent = made(name, device)
    agent.learn(capacity_of(agent) + 4 * COPIES)
    place = int(agent.state().arrays["memory.counts"][0])
    assert place == 4 * COPIES
    before = rows_of(agent).copy()
    agent.learn(COPIES)
    others = np.ones(len(before), bool)
    others[place : place + COPIES] = False
    for field in before.dtype.names:
        np.testing.assert_array_equal(rows_of(agent)[field][others], before[field][others], err_msg=field)
    assert not np.array_equal(rows_of(agent)["observation"][~others], before["observation"][~others])


@by_algorithm
def test_each_step_begins_where_the_one_before_has_ended(name, device):
    agent = made(name, device)
    agent.learn(capacity_of(agent) + 4 * COPIES)
    rows = np.roll(rows_of(agent).reshape(-1, COPIES), -4, axis=0)  # the oldest first
    goes_on = rows["ended"][:-1] == GOES_ON
    assert goes_on.mean() > 0.8
    np.testing.assert_array_equal(rows["next_observation"][:-1][goes_on], rows["observation"][1:][goes_on])


@by_algorithm
def test_errors_become_priorities(name, device):
    """Those of the last batch are there; what came since, in a step without an update, has the greatest so far."""
    agent = made(name, device, n_step=3, priority="proportional", priority_alpha=ALPHA)
    agent.learn(capacity_of(agent) + 4 * COPIES)
    state, batch = agent.state().arrays, batch_of(agent)
    priorities, place = state["memory.priorities"], int(state["memory.counts"][0])
    last = dict(zip(batch.places.tolist(), np.abs(batch.errors).tolist(), strict=True))  # of one drawn twice, the last
    newest = range(place - COPIES, place)
    assert place == 4 * COPIES
    assert state["memory.greatest"][0] > 1.0
    assert (priorities[list(newest)] == state["memory.greatest"][0]).all()
    for drawn, error in last.items():
        if drawn not in newest:
            assert priorities[drawn] == pytest.approx((error + 1e-6) ** ALPHA, rel=1e-4)
    assert len(np.unique(priorities)) > len(priorities) // 10


@both_devices
def test_an_episode_that_ends_in_its_last_step_is_over(device):
    """Both flags are set when a counter is through with its length at its limit of steps."""
    agent = made("dqn", device, "Counter-v0", params={"length": 20}).learn(1000 if device == "cpu" else 200)
    rows = rows_of(agent)
    ends = rows["next_observation"][:, 0] == 20
    assert ends.sum() >= len(rows) // 25
    np.testing.assert_array_equal(rows["ended"], np.where(ends, TERMINATED, GOES_ON))


@both_devices
def test_what_follows_n_steps_is_valued_where_they_end(device):
    slowly = {"learning_rate": 1e-12, "learning_rate_schedule": "constant"}  # so that the network stays as it is
    agent = made("dqn", device, **slowly, n_step=3, double=False, dueling=False, batch_size=16)
    agent.learn(1024 if device == "cpu" else 224)
    rows, batch = rows_of(agent), batch_of(agent)

    def values(observations):
        numbers = observations.astype(np.float64)
        *hidden, (weights, biases) = agent.network.layers(agent.parameters)
        for inner, more in hidden:
            numbers = np.maximum(numbers @ inner + more, 0.0)
        return numbers @ weights + biases

    following = values(rows["next_observation"][batch.lasts]).max(1)
    estimates = values(rows["observation"][batch.places])[np.arange(16), rows["action"][batch.places, 0]]
    errors = estimates - (batch.rewards + batch.discounts * following)
    assert (batch.lasts != batch.places).sum() > 8
    np.testing.assert_allclose(batch.errors, errors, rtol=1e-3, atol=1e-4)


@by_algorithm
def test_a_live_state_has_the_memory_itself_and_any_other_a_copy(name, device):
    agent = made(name, device).learn(128)
    rows = rows_of(agent)
    assert np.shares_memory(agent.state(live=True).arrays["memory.rows"], rows)
    copied = agent.state().arrays["memory.rows"]
    assert not np.shares_memory(copied, rows)
    np.testing.assert_array_equal(copied, rows[: len(copied)])
    assert len(copied) == 128
