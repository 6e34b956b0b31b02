"""PPO learns. Each test states seed, budget and threshold; what a perfect and a random policy earn is beside it."""

import subprocess
import sys
from math import inf

import numpy as np
import pytest

import velocirl
from velocirl import A2C, PPO, Box, Discrete, Environment, float32, record

NETWORK = {"threads": 2, "hidden": (64, 64), "shared": True, "activation": "tanh"}  # whatever a preset says


def learnt(environment, steps, seed=0, episodes=200, kind=PPO, **config):
    agent = kind(environment, seed=seed, **{**NETWORK, **config}).learn(steps)
    return velocirl.evaluate(agent, episodes=episodes, seed=1).mean_return


def test_identity():
    """Perfect 16, random 4: each observation says what to do."""
    config = {"num_envs": 32, "horizon": 16, "minibatch_size": 128, "learning_rate": 3e-3, "gamma": 0.0}
    assert learnt("Identity-v0", 30_000, **config) >= 15.5


@pytest.mark.slow
def test_identity_continuous():
    """Perfect 0, always the mean -16/3."""
    config = {"num_envs": 32, "horizon": 16, "minibatch_size": 128, "learning_rate": 3e-3, "gamma": 0.0}
    assert learnt("IdentityContinuous-v0", 100_000, entropy_coefficient=0.0, **config) >= -0.1


def test_bandit():
    """The best arm pays 0.8, the others at most 0.5; what is observed says nothing."""
    config = {"num_envs": 64, "horizon": 16, "minibatch_size": 256, "learning_rate": 3e-3}
    agent = PPO("Bandit-v0", seed=0, **NETWORK, **config).learn(30_000)
    assert agent.predict(0, deterministic=True)[0] == 2
    assert agent.predict(np.zeros(1000, np.int64))[0].tolist().count(2) > 900


@pytest.mark.slow
def test_squared():
    """Perfect 1, random about -0.7: the map is another in every episode."""
    config = {"num_envs": 64, "horizon": 32, "minibatch_size": 512, "learning_rate": 2e-3}
    assert learnt("Squared-v0", 300_000, **config) >= 0.8


@pytest.mark.slow
def test_tic_tac_toe_with_masks():
    """Perfect 0.96, random 0. Without its mask it would lose by illegal moves."""
    config = {"num_envs": 64, "horizon": 32, "minibatch_size": 512, "learning_rate": 2e-3}
    assert learnt("TicTacToe-v1", 300_000, **config) >= 0.8


CARTPOLE = {
    "num_envs": 32, "horizon": 32, "minibatch_size": 256, "epochs": 10, "learning_rate": 2e-3, "gamma": 0.98,
    "gae_lambda": 0.9, "entropy_coefficient": 0.0,
}  # fmt: skip


def test_cartpole():
    """Solved is 475 of 500."""
    assert learnt("CartPole-v1", 100_000, **CARTPOLE) >= 475


def test_cartpole_by_whole_rollouts_on_one_thread():
    assert learnt("CartPole-v1", 100_000, minibatches="environments", threads=1, **CARTPOLE) >= 475


def test_a_minibatch_of_which_no_share_has_a_sample_is_none():
    """12 minibatches of 8 and 4 samples of two shares: some have two, and some would have none."""
    config = {"num_envs": 3, "horizon": 4, "minibatch_size": 1, "epochs": 2, "seed": 0, "shares": 2}
    agent = PPO("Identity-v0", **{**NETWORK, "hidden": (16,)}, **config).learn(36)
    assert agent.metrics["train/minibatches"] == 2 * 8
    assert agent.metrics["train/n_updates"] == 3 * 2 * 8
    assert np.isfinite(agent.parameters).all()


def test_a2c_learns_too():
    """Perfect 16, random 4."""
    config = {"num_envs": 32, "gamma": 0.0, "optimiser": "adam", "learning_rate": 3e-3, "entropy_coefficient": 0.01}
    assert learnt("Identity-v0", 60_000, kind=A2C, **config) >= 15.5


@record
class State:
    count: float32


def reset(state, params, rng):
    state.count = 0


def step(state, params, action, rng):
    return 1.0, False


def observe(state, params, observation):
    observation[0] = 1.0


forever = Environment(
    "Forever-v0", state=State, observation=Box(-inf, inf, (1,)), action=Discrete(2), max_steps=8,
    reset=reset, step=step, observe=observe,
)  # fmt: skip


def test_a_time_limit_is_not_an_end():
    """Reward 1 for ever, cut off after 8 steps: V is 1 / (1 - gamma) = 50. As an end it would be at most 7.5."""
    agent = PPO(
        forever, seed=0, num_envs=16, horizon=32, minibatch_size=128, epochs=8, learning_rate=1e-2, gamma=0.98,
        max_grad_norm=0.0, normalise_rewards=False, **NETWORK,
    ).learn(60_000)  # fmt: skip
    assert np.all(np.abs(agent.learner.recorded.records["value"] - 50) < 2.5)


@pytest.mark.slow
def test_acrobot():
    """Solved is -100; never reached is -500."""
    config = {"num_envs": 64, "horizon": 128, "minibatch_size": 512, "learning_rate": 2e-3}
    normalised = {"normalise_observations": True, "normalise_rewards": True}
    assert learnt("Acrobot-v1", 600_000, **config, **normalised) >= -100


@pytest.mark.slow
def test_pendulum():
    """Solved is -200; a random policy earns about -1200."""
    config = {"num_envs": 64, "horizon": 64, "minibatch_size": 256, "epochs": 8, "gamma": 0.95, "learning_rate": 1e-3}
    normalised = {"normalise_observations": True, "normalise_rewards": True}
    assert learnt("Pendulum-v1", 1_000_000, entropy_coefficient=0.0, **config, **normalised) >= -200


@pytest.mark.slow
def test_inverted_pendulum_of_gymnasium():
    """MuJoCo in two worker processes; 1000 is perfect."""
    pytest.importorskip("mujoco")
    agent = PPO(
        "gym:InvertedPendulum-v5", seed=1, workers=2, num_envs=8, horizon=64, minibatch_size=128, epochs=10,
        learning_rate=1e-3, gae_lambda=0.9, entropy_coefficient=0.0, normalise_observations=True,
        **{**NETWORK, "threads": 1},
    )  # fmt: skip
    try:
        agent.learn(100_000)
        assert velocirl.evaluate(agent, episodes=16, seed=1).mean_return >= 900
    finally:
        agent.learner.collector.envs.close()


def test_another_process_finds_everything_compiled():
    """What one process compiles has the fingerprint of what another looks for, for networks of any width."""
    small = "hidden=({},), shared=True, activation='tanh', num_envs=8, horizon=8, seed=0, device='cpu', threads=1"
    script = "import velocirl\n{}velocirl.PPO('CartPole-v1', {}).learn(64).predict([0.0] * 4)\n"
    refuse = "from velocirl.engine.compiler import units; units._compile = None\n"
    for before, width in (("", 24), (refuse, 40)):
        subprocess.run([sys.executable, "-c", script.format(before, small.format(width))], check=True)


def test_every_algorithm_is_found_where_there_is_no_torch():
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "from velocirl.algorithms import load_algorithms; from velocirl.training.persistence import ALGORITHMS\n"
        "load_algorithms(); print(sorted(ALGORITHMS)); import velocirl\n"
        "print(velocirl.PPO('Identity-v0', seed=0, device='cpu', hidden=(24,)).config.device)\n"
        "try: velocirl.PPO('Identity-v0', network='mlp(8) lstm(8)')\n"
        "except ImportError as error: print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", script], text=True, capture_output=True, check=True).stdout
    assert said.splitlines() == [
        "['a2c', 'bc', 'cql', 'cql-lagrangian', 'discrete-bc', 'discrete-cql', 'discrete-iql', 'discrete-sac',"
        " 'double-q-learning', 'dqn', 'expected-sarsa', 'focops', 'iql', 'iql-lagrangian', 'online-cql',"
        " 'online-iql', 'ppo', 'ppo-lagrangian', 'q-lambda', 'q-learning', 'qr-dqn', 'rebrac', 'sac', 'sac-lagrangian',"
        " 'sarsa', 'td3', 'td3-bc', 'td3-bc-lagrangian']",
        "cpu",
        'a network of torch, or device="cuda", needs torch: pip install "velocirl[torch]"',
    ]
