"""The presets: PPO with nothing else learns each built-in environment, to a stated return within a stated budget."""

import dataclasses

import numpy as np
import pytest

import velocirl
from velocirl.algorithms.online.ppo import PPOConfig
from velocirl.engine import registry
from velocirl.training.settings.limits import USUAL_LIMIT

WITHOUT = {
    "Counter-v0",  # every policy earns the same
}
# The return that a deterministic policy must reach; what a perfect one earns is said in each environment's file.
QUICK = {
    "CartPole-v1": 500.0,
    "Identity-v0": 16.0,
}
SLOW = {
    "MountainCarContinuous-v0": 90.0,
    "IdentityContinuous-v0": -0.05,
    "GridWorld-v0": 0.94,
    "Bandit-v0": 0.75,
    "Acrobot-v1": -100.0,
    "Catch-v0": 1.0,
    "CatchPixels-v0": 1.0,
    "ChemicalReactor-v0": 280.0,  # its PID earns 190
    "CliffWalking-v1": -13.0,
    "FrozenLake-v1": 0.7,
    "FrozenLake8x8-v1": 0.6,
    "HVACControl-v0": 200.0,  # its PID earns 174
    "IndustrialBenchmark-v0": -162_000.0,  # its PID earns -167,000
    "Memory-v0": 2.85,
    "MinAtarBreakout-v1": 15.0,
    "MinAtarFreeway-v1": 45.0,
    "MinAtarSpaceInvaders-v1": 50.0,
    "MountainCar-v0": -110.0,
    "Pendulum-v1": -200.0,
    "PowerGrid-v0": 318.0,  # its PID earns 285
    "RiggedBandit-v0": 1.0,
    "RobotAssembly-v0": 300.0,  # its PID earns 238
    "Squared-v0": 0.95,
    "SteelAnnealing-v0": 150.0,  # its PID earns 139
    "SupplyChain-v0": 76.0,  # its base-stock policy earns 73.7
    "TicTacToe-v1": 0.9,
    "WaterTreatment-v0": 142.0,  # its PID earns 120
}
# What takes too long for a test on a CPU, from pixels or with large networks.
ON_A_GPU = {"MinAtarAsterix-v1": 15.0, "MinAtarSeaquest-v1": 15.0, "Platformer-v0": 12.0}
# Of algorithms that keep limits: the cost of an episode that they aim at, so as to stay below the usual limit, and the
# return that nine tenths of the way from a random policy to PPO's earn; eight tenths of it for the one that learns from
# a memory, in fewer steps.
LIMITED = {
    ("ChemicalReactor-v0", velocirl.PPOLagrangian): (8.0, 271.0),
    ("ChemicalReactor-v0", velocirl.FOCOPS): (8.0, 271.0),
    ("ChemicalReactor-v0", velocirl.SACLagrangian): (8.0, 240.0),
    ("PowerGrid-v0", velocirl.PPOLagrangian): (5.0, 303.0),
}
PRESETS = sorted({**QUICK, **SLOW, **ON_A_GPU})


def trained(name, seed, device="auto"):
    agent = velocirl.PPO(name, seed=seed, threads=2, device=device)
    return agent.learn(agent.preset()["total_steps"])


def mean_return(agent):
    return velocirl.evaluate(agent, episodes=1000, seed=1).mean_return


def test_every_environment_that_ppo_can_learn_has_a_preset():
    built_in = [registry.find(name) for name in velocirl.list_envs()]
    built_in = [one for one in built_in if one.source.startswith(registry.BUILT_IN)]
    assert {one.id for one in built_in if one.presets.get("ppo")} == set(PRESETS)
    assert {one.id for one in built_in if not one.presets.get("ppo")} == WITHOUT


@pytest.mark.parametrize("name", PRESETS)
def test_preset_says_only_what_differs_from_the_defaults(name):
    preset = dict(registry.find(name).presets["ppo"])
    total_steps = preset.pop("total_steps")
    agent = velocirl.PPO(name, seed=0, threads=2)
    assert total_steps >= agent.config.batch
    defaults = dataclasses.asdict(PPOConfig())
    for setting, value in preset.items():
        assert getattr(agent.config, setting) == value != defaults[setting], setting
    for setting in defaults.keys() - preset.keys() - {"seed", "shares", "threads", "device", "precision"}:
        assert getattr(agent.config, setting) == defaults[setting], setting


def test_given_settings_stand_above_the_preset():
    assert velocirl.PPO("CartPole-v1", hidden=(16,)).config.hidden == (16,)


@pytest.mark.parametrize(("name", "threshold"), QUICK.items())
def test_preset_learns(name, threshold):
    assert mean_return(trained(name, seed=0)) >= threshold


@pytest.mark.slow
@pytest.mark.parametrize(("name", "threshold"), SLOW.items())
def test_preset_learns_what_takes_longer(name, threshold):
    assert mean_return(trained(name, seed=0)) >= threshold


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("name", "kind"), LIMITED)
def test_preset_keeps_the_limit_and_earns_what_it_allows(name, kind):
    aim, threshold = LIMITED[name, kind]
    agent = kind(name, seed=0, threads=2, device="cpu", cost_limit=aim)
    agent.learn(agent.preset()["total_steps"])
    envs, going = velocirl.make_vec(name, 256, seed=1), np.ones(256, np.bool_)
    returns, costs = np.zeros(256), np.zeros(256)
    observations, _ = envs.reset()
    while going.any():
        actions, _ = agent.predict(observations, deterministic=False)
        observations, rewards, terminated, truncated, infos = envs.step(actions)
        returns += rewards * going
        costs += infos["cost"] * going
        going &= ~(terminated | truncated)
    assert costs.mean() <= USUAL_LIMIT
    assert returns.mean() >= threshold


@pytest.mark.slow
@pytest.mark.cuda
@pytest.mark.parametrize(("name", "threshold"), ON_A_GPU.items())
def test_preset_learns_from_pixels(name, threshold):
    assert mean_return(trained(name, seed=0, device="cuda")) >= threshold


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_cartpole_is_solved_whatever_the_seed(seed):
    agent = trained("CartPole-v1", seed)
    assert sum(agent.recent.returns) / len(agent.recent.returns) >= 475.0
    assert mean_return(agent) == 500.0
