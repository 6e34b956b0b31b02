"""What every algorithm keeps that learns from a memory: whole groups, priorities that follow the errors, clear ends."""

import numpy as np
import pytest
from choosing import slow_but
from velocirl.buffers.rollout import GOES_ON, TERMINATED
from velocirl.training.off_policy_agent import OffPolicyAgent

from velocirl import DQN
from velocirl.algorithms import load_algorithms
from velocirl.training.agent import ALGORITHMS

load_algorithms()

SMALL = {"num_envs": 8, "learning_starts": 100, "train_every": 16, "batch_size": 16, "buffer_size": 1001,
         "hidden": (16, 16), "threads": 1, "seed": 5}  # fmt: skip
NAMES = sorted(name for name, kind in ALGORITHMS.items() if issubclass(kind, OffPolicyAgent))
ALPHA = 0.6

by_algorithm = pytest.mark.parametrize("name", slow_but({"dqn"}, NAMES))


def made(name, **changes):
    environment = "CartPole-v1" if name == "dqn" else "Pendulum-v1"
    return ALGORITHMS[name](environment, **{**SMALL, **changes})


@by_algorithm
def test_the_memory_has_whole_groups(name):
    agent = made(name)
    agent.prepare()
    assert len(agent.learner.buffer.rows) == 1000
    small = made(name, num_envs=600)
    small.prepare()
    assert len(small.machine.buffer.rows) == 600


@pytest.mark.slow
@by_algorithm
def test_errors_become_priorities(name):
    """Those of the last batch are there; what came since, in a step without an update, has the greatest so far."""
    agent = made(name, n_step=3, priority="proportional", priority_alpha=ALPHA).learn(1032)
    state, batch = agent.state().arrays, agent.learner.batch
    priorities, place = state["memory.priorities"], int(state["memory.counts"][0])
    last = dict(zip(batch.places.tolist(), np.abs(batch.errors).tolist(), strict=True))  # of one drawn twice, the last
    newest = range(place - 8, place)
    assert place == 32
    assert state["memory.greatest"][0] > 1.0
    assert (priorities[list(newest)] == state["memory.greatest"][0]).all()
    for drawn, error in last.items():
        if drawn not in newest:
            assert priorities[drawn] == pytest.approx((error + 1e-6) ** ALPHA, rel=1e-4)
    assert len(np.unique(priorities)) > 100


def test_an_episode_that_ends_in_its_last_step_is_over():
    """Both flags are set when a counter is through with its length at its limit of steps."""
    agent = DQN("Counter-v0", **SMALL, params={"length": 20}).learn(1000)
    rows = agent.learner.buffer.rows
    ends = rows["next_observation"][:, 0] == 20
    assert ends.sum() >= 40
    np.testing.assert_array_equal(rows["ended"], np.where(ends, TERMINATED, GOES_ON))


@pytest.mark.slow
def test_what_follows_n_steps_is_valued_where_they_end():
    slowly = {"learning_rate": 1e-12, "learning_rate_schedule": "constant"}  # so that the network stays as it is
    agent = DQN("CartPole-v1", **SMALL, **slowly, n_step=3, double=False, dueling=False).learn(1024)
    rows, batch = agent.learner.buffer.rows, agent.learner.batch

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
def test_a_live_state_has_the_memory_itself_and_any_other_a_copy(name, monkeypatch):
    agent = made(name).learn(512)
    machine, buffer = agent.learner, agent.learner.buffer
    plain = machine.state
    monkeypatch.setattr(machine, "state", lambda: {**plain(), "memory.rows": buffer.rows[: len(buffer)]})
    assert np.shares_memory(agent.state(live=True).arrays["memory.rows"], buffer.rows)
    copied = agent.state().arrays["memory.rows"]
    assert not np.shares_memory(copied, buffer.rows)
    np.testing.assert_array_equal(copied, buffer.rows[: len(buffer)])
