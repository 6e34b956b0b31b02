"""The presets of tables: every tabular algorithm with nothing else learns what a table can hold, to a stated return."""

import dataclasses

import numpy as np
import pytest
from choosing import slow_but
from gymnasium.spaces import Discrete
from tic_tac_toe_oracle import CODES, cells_of, outcome_of_policy, value_of_policy

import velocirl
from velocirl.algorithms import load_algorithms
from velocirl.engine import registry
from velocirl.tabular.agent import TabularAgent
from velocirl.tabular.config import TabularConfig
from velocirl.tabular.tables.states import states_of
from velocirl.training.persistence import ALGORITHMS

load_algorithms()
# What the best policies that do not look at the clock earn, less what 2000 episodes may be off by.
THRESHOLDS = {
    "Bandit-v0": 0.77,
    "CliffWalking-v1": -13.0,
    "FrozenLake-v1": 0.71,
    "FrozenLake8x8-v1": 0.87,
    "GridWorld-v0": 0.94,
    "RiggedBandit-v0": 1.0,
}
QUICK = ("CliffWalking-v1", "FrozenLake-v1")
# Those that value what they do, exploring as they are, go a long way round the cliff and keep further from holes.
ON_POLICY = {**THRESHOLDS, "CliffWalking-v1": -17.0, "FrozenLake-v1": 0.69, "FrozenLake8x8-v1": 0.83}
TABULAR = [name for name, kind in ALGORITHMS.items() if issubclass(kind, TabularAgent)]
ALL = {name: ON_POLICY if "sarsa" in name else THRESHOLDS for name in TABULAR}
BOARDS = np.array([cells_of(code) for code in range(CODES)])


def trained(algorithm, name, seed):
    agent = ALGORITHMS[algorithm](name, seed=seed)
    return agent.learn(agent.preset()["total_steps"])


def mean_return(agent):
    return velocirl.evaluate(agent, episodes=2000, seed=1).mean_return


def best_moves(agent):
    values = agent.q_values(BOARDS)
    return np.where(BOARDS == 0, values, -np.inf).argmax(axis=1)


def assert_plays_well(agent, share):
    """Exactly, over all that an opponent at random may do: 0.9598 is the best that there is."""
    moves = best_moves(agent)
    assert value_of_policy(moves) >= share * 0.9598
    assert outcome_of_policy(moves)[2] < 0.01


def test_every_environment_that_a_table_can_learn_has_a_preset():
    built_in = [registry.find(name) for name in velocirl.list_envs()]
    built_in = [one for one in built_in if one.source.startswith(registry.BUILT_IN)]

    def fits(one):
        try:
            states_of(one.observation)
        except ValueError:
            return False
        return isinstance(one.action, Discrete)

    assert {one.id for one in built_in if "tabular" in one.presets} == {one.id for one in built_in if fits(one)}
    assert {one.id for one in built_in if "tabular" in one.presets} == {*THRESHOLDS, "TicTacToe-v1"}


@pytest.mark.parametrize("name", sorted([*THRESHOLDS, "TicTacToe-v1"]))
def test_preset_says_only_what_differs_from_the_defaults(name):
    preset = dict(registry.find(name).presets["tabular"])
    assert preset.pop("total_steps") >= 10_000
    defaults, config = dataclasses.asdict(TabularConfig()), velocirl.QLearning(name, seed=0).config
    for setting, value in preset.items():
        assert getattr(config, setting) == value != defaults[setting], setting
    for setting in defaults.keys() - preset.keys() - {"seed", "num_envs", "storage", "runtime"}:  # resolved
        assert getattr(config, setting) == defaults[setting], setting


def test_given_settings_stand_above_the_preset():
    assert velocirl.QLearning("TicTacToe-v1").config.gamma == 1.0
    assert velocirl.QLearning("TicTacToe-v1", gamma=0.5).config.gamma == 0.5


@pytest.mark.parametrize("name", slow_but(QUICK, THRESHOLDS))
def test_q_learning_learns(name):
    assert min(mean_return(trained("q-learning", name, seed)) for seed in range(5)) >= THRESHOLDS[name]


def test_q_learning_plays_tic_tac_toe_as_well_as_can_be():
    for seed in range(3):
        assert_plays_well(trained("q-learning", "TicTacToe-v1", seed), 0.9995)


@pytest.mark.slow
@pytest.mark.parametrize("name", THRESHOLDS)
@pytest.mark.parametrize("algorithm", sorted(ALL.keys() - {"q-learning"}))
def test_the_other_algorithms_learn_with_the_same_settings(algorithm, name):
    assert min(mean_return(trained(algorithm, name, seed)) for seed in range(3)) >= ALL[algorithm][name]


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", sorted(ALL.keys() - {"q-learning"}))
def test_the_other_algorithms_play_tic_tac_toe(algorithm):
    for seed in range(3):
        assert_plays_well(trained(algorithm, "TicTacToe-v1", seed), 0.985)
