"""DQN learns, remembers the right transitions, and repeats itself. Learning tests state seed, budget and threshold."""

import os
import subprocess
import sys
from math import inf

import gymnasium
import numpy as np
import pytest
from choosing import slow_but
from scalars import numbers

import velocirl
from velocirl import DQN, Box, Discrete, Environment, NumericalError, float32, record
from velocirl.algorithms.online.dqn import value_of
from velocirl.buffers.records import GOES_ON, TERMINATED, TRUNCATED
from velocirl.networks.numpy_mlp import NumpyMLP
from velocirl.program.pace import exploration_at

SMALL = {"num_envs": 4, "hidden": (16, 16), "seed": 1, "learning_starts": 40, "batch_size": 16, "train_every": 4,
         "target_every": 12, "buffer_size": 3000, "gamma": 0.9}  # fmt: skip
OPTIONS = {
    "plain": {"double": False, "dueling": False},
    "double": {"double": True, "dueling": False},
    "dueling": {"double": False, "dueling": True},
    "three steps": {"n_step": 3},
    "squared": {"huber": 0.0},
    "soft target": {"tau": 0.05, "target_every": 1},
    "proportional": {"priority": "proportional"},
    "by rank": {"priority": "rank"},
    "two threads": {"threads": 2},
    "clipped": {"max_grad_value": 0.5, "max_grad_norm": 0.0, "optimiser": "rmsprop"},
    "two phases": {"exploration_initial": 0.8, "exploration_final": 0.2, "exploration_last": 0.01},
}


def learnt(environment, steps, seed=0, episodes=100, **config):
    agent = DQN(environment, **{**SMALL, "seed": seed, **config}).learn(steps)
    return velocirl.evaluate(agent, episodes=episodes, seed=1).mean_return


def transitions(agent):
    return agent.learner.ring.rows[: len(agent.learner.ring.buffer)]


@pytest.mark.parametrize("name", slow_but({"soft target", "two phases"}, OPTIONS))
def test_identity(name):
    """Perfect 16, random 4: each observation says what to do."""
    config = {"learning_starts": 200, "learning_rate": 5e-3, "batch_size": 32}
    assert learnt("Identity-v0", 6000, **config, **OPTIONS[name]) >= 15.5


@pytest.mark.slow
def test_tic_tac_toe_with_masks():
    """Perfect 0.96, random 0. Without its mask it would lose by illegal moves."""
    config = {"num_envs": 16, "hidden": (64, 64), "buffer_size": 50_000, "batch_size": 64, "learning_starts": 1000}
    assert learnt("TicTacToe-v1", 60_000, episodes=500, **config) >= 0.7


@pytest.mark.parametrize("priority", slow_but({"none"}, ["none", "proportional", "rank"]))
@pytest.mark.parametrize("length", [10, 30], ids=["terminated", "truncated"])
def test_what_is_remembered(length, priority):
    """Step k of an episode pays k and leads to k + 1: every field of a record follows from its observation."""
    agent = DQN("Counter-v0", **SMALL, priority=priority, params={"length": length}).learn(1200)
    rows = transitions(agent)
    end = min(length, 20)  # by a terminal state, or by the limit of 20 steps
    first = rows["observation"][:, 0]
    assert len(rows) == 1200
    assert set(first.astype(int)) == set(range(end))
    np.testing.assert_array_equal(rows["next_observation"][:, 0], first + 1)
    np.testing.assert_array_equal(rows["reward"], first)
    over = TERMINATED if length == 10 else TRUNCATED
    np.testing.assert_array_equal(rows["ended"], np.where(first + 1 == end, over, GOES_ON))
    lives = rows.reshape(-1, 4)  # a group has a record of each copy
    np.testing.assert_array_equal(lives["observation"][1:, :, 0], np.where(
        lives["ended"][:-1] != GOES_ON, 0, lives["next_observation"][:-1, :, 0]))  # fmt: skip


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("length", [10, 30], ids=["terminated", "truncated"])
def test_the_last_batch_is_of_three_steps(length, threads):
    """What is learnt from never crosses the end of an episode, nor the seam of a ring that was filled many times."""
    config = {**SMALL, "buffer_size": 100, "batch_size": 64, "n_step": 3, "threads": threads}
    agent = DQN("Counter-v0", **config, params={"length": length})
    end, seen = min(length, 20), set()
    for _ in range(40):
        agent.learn(20)
        rows, batch = agent.learner.ring.rows, agent.learner.updates.batch
        if not batch.weights.any():  # nothing was drawn yet
            continue
        first, last = rows["observation"][batch.places, 0], rows["next_observation"][batch.lasts, 0]
        steps = last - first
        newest = (batch.lasts - agent.learner.ring.counts[0]) % 100 >= 96
        assert ((steps == 3) | (last == end) | newest).all()
        assert (steps >= 1).all()
        assert (steps <= 3).all()
        rewards = sum(np.where(k < steps, 0.9**k * (first + k), 0.0) for k in range(3))
        np.testing.assert_allclose(batch.rewards, rewards, rtol=1e-5)
        over = (last == end) & (length == 10)
        np.testing.assert_allclose(batch.discounts, np.where(over, 0.0, 0.9**steps), rtol=1e-5)
        assert (batch.weights == 1).all()
        seen |= set(steps)
    assert seen == {1, 2, 3}


@pytest.mark.slow
def test_masks_are_those_of_their_observations():
    """A field of the board that is taken cannot be taken again; after an end nothing is said."""
    agent = DQN("TicTacToe-v1", **SMALL).learn(1200)
    rows = transitions(agent)
    goes_on = rows["ended"] == GOES_ON
    # Each field one-hot: empty, mine, theirs.
    before, after = (rows[name].reshape(-1, 9, 3)[:, :, 0] == 1 for name in ("observation", "next_observation"))
    assert goes_on.sum() > 300
    np.testing.assert_array_equal(rows["mask"] != 0, before)
    np.testing.assert_array_equal(rows["next_mask"][goes_on] != 0, after[goes_on])
    assert not rows["next_mask"][~goes_on].any()


def test_the_oldest_make_room():
    agent = DQN("Counter-v0", **{**SMALL, "buffer_size": 100}).learn(1000)
    assert len(agent.learner.ring.buffer) == 100
    assert agent.learner.ring.counts.tolist() == [0, 100, 1000]


@record
class State:
    count: float32


def reset(state, params, rng):
    state.count = 0


def step(state, params, action, rng):
    state.count += 1
    return 1.0, state.count >= params.length


def observe(state, params, observation):
    observation[0] = 1.0


@record
class Params:
    length: float32 = 1000


forever = Environment(
    "ForeverValued-v0", state=State, params=Params, observation=Box(-inf, inf, (1,)), action=Discrete(2), max_steps=8,
    reset=reset, step=step, observe=observe,
)  # fmt: skip


def values_of(agent):
    """What the network says of the only observation."""
    network = NumpyMLP(agent.network)
    network.parameters[:] = agent.parameters
    output = network.forward(np.ones((1, 1), np.float32))[0][0]
    return [float(value_of(agent.head, output, action, numbers(dueling=1.0))) for action in range(2)]


@pytest.mark.parametrize("n_step", [1, 4])
def test_a_time_limit_is_not_an_end(n_step):
    """Reward 1 for ever, cut off after 8 steps: Q is 1 / (1 - 0.9) = 10. As an end it would be below 5.7."""
    agent = DQN(forever, **{**SMALL, "n_step": n_step}, learning_rate=3e-3, huber=0.0).learn(12_000)
    assert values_of(agent) == pytest.approx([10, 10], abs=0.5)


def test_an_end_is_an_end():
    """An episode of one step pays 1, and nothing follows."""
    agent = DQN(forever, **SMALL, learning_rate=3e-3, params={"length": 1}).learn(6000)
    assert values_of(agent) == pytest.approx([1, 1], abs=0.05)


def test_the_target_network_has_memory_of_its_own_and_follows():
    """An update every 4 steps from the first on, and a copy every 100 updates."""
    agent = DQN("Counter-v0", **{**SMALL, "target_every": 100, "learning_starts": 0}).learn(400)
    networks = agent.learner.networks
    target = networks.parameters["target_values"]
    assert not np.shares_memory(target, agent.parameters)
    assert not np.shares_memory(networks._packed["target_values"], networks._packed["values"])
    np.testing.assert_array_equal(target, agent.parameters)
    held = target.copy()
    agent.learn(396)
    np.testing.assert_array_equal(target, held)
    assert not np.array_equal(agent.parameters, held)
    agent.learn(4)
    np.testing.assert_array_equal(target, agent.parameters)


def test_a_soft_target_moves_a_part_of_the_way():
    agent = DQN("Counter-v0", **{**SMALL, "target_every": 1, "tau": 0.25, "learning_starts": 36})
    start = agent.parameters.copy()
    agent.learn(40)
    assert agent.metrics["train/n_updates"] == 1
    expected = 0.25 * agent.parameters + 0.75 * start
    np.testing.assert_allclose(agent.learner.networks.parameters["target_values"], expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("num_envs", "train_every", "gradient_steps", "updates"),
    [(4, 4, 1, 250), (1, 4, 1, 250), (4, 1, 1, 1000), (4, 2, 3, 1500), (5, 10, 4, 400)],
)
def test_updates_for_each_step(num_envs, train_every, gradient_steps, updates):
    """However many copies there are, the ratio of updates to steps is what was asked for."""
    ratio = {"num_envs": num_envs, "train_every": train_every, "gradient_steps": gradient_steps}
    agent = DQN("Counter-v0", **{**SMALL, **ratio, "learning_starts": 0}).learn(1000)
    assert agent.metrics["train/n_updates"] == updates


def test_exploration_by_hand():
    agent = DQN(
        "Counter-v0", **SMALL, exploration_initial=0.9, exploration_final=0.1, exploration_fraction=0.5,
        exploration_last=0.0, device="python",
    )  # fmt: skip
    agent.learn(4)
    pace = agent.pace(1)._replace(total=1000)
    found = [exploration_at(step, pace) for step in (0, 100, 250, 500, 750, 1000, 2000)]
    assert found == pytest.approx([0.9, 0.74, 0.5, 0.1, 0.05, 0.0, 0.0])
    assert exploration_at(250, pace._replace(start=200)) == pytest.approx(0.82)


def test_explores_as_often_as_it_says():
    """The network is never trained and always prefers one action: the other comes from chance alone, half of it."""
    quiet = {"learning_starts": 0, "train_every": 10**6, "exploration_initial": 0.4, "exploration_final": 0.4}
    agent = DQN("Counter-v0", **{**SMALL, **quiet, "hidden": ()})
    agent.parameters[:] = [0, 0, 0, 1, 0, 0]  # weights, then biases: of two advantages and the value
    rows = transitions(agent.learn(2800))
    assert np.mean(rows["action"] == 1) == pytest.approx(0.2, abs=0.03)


def test_starts_with_random_actions():
    agent = DQN("Counter-v0", **{**SMALL, "learning_starts": 2000, "exploration_initial": 0.0}, exploration_final=0.0)
    agent.learn(2000)
    assert np.mean(transitions(agent)["action"]) == pytest.approx(0.5, abs=0.05)
    assert agent.metrics["train/n_updates"] == 0
    assert agent.metrics["train/loss"] is None


def stop_at(steps):
    return lambda agent: agent.steps < steps


def assert_same_state(found, expected):
    assert found.arrays.keys() == expected.arrays.keys()
    for name, array in expected.arrays.items():
        assert found.arrays[name].dtype == array.dtype
        for field in array.dtype.names or ((),):  # what lies between the fields of a record is nothing
            assert found.arrays[name][field].tobytes() == array[field].tobytes(), name
    assert found.document == expected.document


@pytest.mark.parametrize(
    ("environment", "config"),
    [
        ("Counter-v0", {"n_step": 3, "threads": 2}),
        pytest.param("Counter-v0", {"priority": "proportional", "buffer_size": 1000}, marks=pytest.mark.slow),
        pytest.param("Counter-v0", {"priority": "rank", "buffer_size": 1000}, marks=pytest.mark.slow),
        pytest.param("TicTacToe-v1", {}, marks=pytest.mark.slow),
        pytest.param("CartPole-v1", {"tau": 0.1, "buffer_size": 1500}, marks=pytest.mark.slow),
    ],
)
def test_going_on_from_a_file_is_going_on(environment, config, tmp_path):
    """Interrupted in the middle, saved, loaded by a new agent and led to its end, against never interrupted."""
    whole = DQN(environment, **{**SMALL, **config}).learn(4096)
    half = DQN(environment, **{**SMALL, **config}).learn(4096, stop_at(2048))
    assert half.steps == 2048
    assert not half.finished
    resumed = DQN.load(half.save(tmp_path / "half"))
    assert_same_state(resumed.state(), half.state())
    resumed.prepare()
    assert_same_state(resumed.state(), half.state())
    resumed.learn()
    assert_same_state(resumed.state(), whole.state())
    assert DQN(environment, **{**SMALL, **config, "seed": 2}).learn(4096).parameters.tobytes() != (
        whole.parameters.tobytes()
    )


def test_looking_does_not_change_training():
    def look(agent):
        agent.predict(agent.source.observation_space.sample())
        velocirl.evaluate(agent, episodes=2, seed=agent.steps, deterministic=False)

    whole = DQN("Counter-v0", **SMALL).learn(3000, look)
    assert whole.parameters.tobytes() == DQN("Counter-v0", **SMALL).learn(3000).parameters.tobytes()


class Corridor(gymnasium.Env):
    """Six places in a row: to the right pays 1 at the end, to the left leads back; 30 steps at most."""

    observation_space, action_space = Discrete(6), Discrete(2, start=3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps = 0, 0
        return self.place, {}

    def step(self, action):
        assert self.action_space.contains(int(action))
        self.place, self.steps = max(self.place + (1 if action == 4 else -1), 0), self.steps + 1
        return self.place, float(self.place == 5), self.place == 5, self.steps >= 30, {}


@pytest.fixture
def corridor():
    gymnasium.register("Corridor-v0", Corridor)
    yield "gym:Corridor-v0"
    gymnasium.registry.pop("Corridor-v0")


@pytest.mark.slow
def test_gymnasium(corridor, tmp_path):
    """Perfect 1 in 5 steps. What is remembered is right, and a resumed agent goes on learning."""
    agent = DQN(corridor, **{**SMALL, "n_step": 2}, learning_rate=3e-3).learn(4000)
    assert velocirl.evaluate(agent, episodes=10, seed=1).lengths.tolist() == [5] * 10
    rows = transitions(agent)
    places, following = rows["observation"].argmax(1), rows["next_observation"].argmax(1)
    assert set(np.unique(rows["action"])) == {0, 1}  # counted from 0, whatever the environment counts from
    assert np.abs(following - places).max() <= 1
    np.testing.assert_array_equal(rows["ended"] == TERMINATED, following == 5)
    assert len(rows) == 3000
    resumed = DQN.load(agent.save(tmp_path / "agent"))
    resumed.prepare()
    newest = (resumed.learner.ring.counts[0] - 1 - np.arange(4)) % 3000
    assert (transitions(resumed)["ended"][newest] != GOES_ON).all()  # its episodes are not gone on with
    resumed.learn(2000)
    assert resumed.metrics["train/n_updates"] > agent.metrics["train/n_updates"]
    assert velocirl.evaluate(resumed, episodes=10, seed=1).lengths.tolist() == [5] * 10


@pytest.mark.slow
def test_what_is_not_a_number_stops_it(define):
    def step(state, params, action, rng):
        state.value += 1.0
        nothing = state.value - state.value
        return 1.0 if state.value < 100.0 else nothing / nothing, False

    broken = define(step=step)
    with pytest.raises(NumericalError, match="reward of the environment is not finite"):
        DQN(broken, **SMALL).learn(4000)


def test_a_gradient_that_is_not_a_number_stops_it():
    agent = DQN("Counter-v0", **SMALL, learning_rate=1e30, huber=0.0, max_grad_norm=0.0)
    with pytest.raises(NumericalError, match="not finite"):
        agent.learn(4000)


def test_only_for_choices():
    with pytest.raises(ValueError, match="one of several actions"):
        DQN("Pendulum-v1")
    with pytest.raises(ValueError, match="tau must be above 0"):
        DQN("Counter-v0", tau=0.0)
    with pytest.raises(ValueError, match="needs no workers"):
        DQN("Counter-v0", workers=2)


def test_metrics_have_the_names_of_stable_baselines3():
    agent = DQN("Counter-v0", **SMALL).learn(2000)
    names = {"rollout/exploration_rate", "rollout/ep_rew_mean", "train/loss", "train/n_updates", "train/learning_rate"}
    assert names <= agent.metrics.keys()
    assert agent.metrics["rollout/ep_rew_mean"] == 45.0
    assert agent.metrics["rollout/exploration_rate"] == pytest.approx(0.05)


def test_on_the_command_line_without_torch(tmp_path):
    script = "import sys; sys.modules['torch'] = None; from velocirl.cli.main import main; sys.exit(main())"
    arguments = ["train", "Counter-v0", "--algorithm", "dqn", "--total-steps", "3000", "--num-envs", "4", "--json"]
    home = {**os.environ, "XDG_DATA_HOME": str(tmp_path)}
    finished = subprocess.run(
        [sys.executable, "-c", script, *arguments], env=home, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
    assert "rollout/exploration_rate" in finished.stdout


CARTPOLE_STEPS = 100_000


@pytest.mark.slow
def test_cartpole():
    """Solved is 475 of 500; the preset, and seed 0."""
    agent = DQN("CartPole-v1", seed=0).learn(CARTPOLE_STEPS)
    assert velocirl.evaluate(agent, episodes=100, seed=1).mean_return >= 475


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
def test_cartpole_whatever_the_seed(seed):
    agent = DQN("CartPole-v1", seed=seed).learn(CARTPOLE_STEPS)
    assert velocirl.evaluate(agent, episodes=100, seed=1).mean_return >= 475
