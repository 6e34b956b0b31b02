"""Small worlds whose solution is known, and other ways to solve a model."""

import gymnasium
import numpy as np
from scipy.optimize import linprog

from velocirl.tabular.planning.models import TabularModel

TAXI = next(name for name in ("Taxi-v4", "Taxi-v3") if name in gymnasium.registry)  # of whichever Gymnasium


def gambler(goal, chance):
    """One action: win or lose one, until there is nothing or the goal, which pays 1. State k owns k + 1."""
    return TabularModel.from_outcomes(
        [
            [
                [
                    (chance, min(k + 1, goal - 2), float(k + 2 == goal), k + 2 == goal),
                    (1 - chance, max(k - 1, 0), 0.0, k == 0),
                ]
            ]
            for k in range(goal - 1)
        ]
    )


def stay_or_leave():
    """One state: stay for 1, or leave for 5 and the end."""
    return TabularModel.from_outcomes([[[(1.0, 0, 1.0, False)], [(1.0, 0, 5.0, True)]]])


def corridor(length, step_reward=0.0):
    """Wait (0) or go on (1), until the end of the corridor pays 1; waiting is the first action."""
    return TabularModel.from_outcomes(
        [
            [
                [(1.0, k, step_reward, False)],
                [(1.0, min(k + 1, length - 1), step_reward + float(k == length - 1), k == length - 1)],
            ]
            for k in range(length)
        ]
    )


def episodic_arrays(states, actions, seed):
    """Probabilities, rewards and terminal states of a random world in which each step may end the episode."""
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.ones(states), (states, actions))
    probabilities[:, :, -1] += 0.1
    probabilities /= probabilities.sum(axis=2, keepdims=True)
    return probabilities, rng.standard_normal((states, actions, states)), np.arange(states) == states - 1


def dense(model):
    """What goes on (states, actions, states), and the expected reward (states, actions), summed outcome by outcome."""
    moves, paid = np.zeros((model.states, model.actions, model.states)), np.zeros((model.states, model.actions))
    for outcome, pair in enumerate(model.pairs):
        state, action = divmod(int(pair), model.actions)
        paid[state, action] += model.probabilities[outcome] * model.rewards[outcome]
        if not model.terminated[outcome]:
            moves[state, action, model.next_states[outcome]] += model.probabilities[outcome]
    return moves, paid


def linear_programme(model, gamma):
    """The optimal values: the smallest that are at least what every legal action is worth."""
    moves, paid = dense(model)
    rows = (gamma * moves - np.eye(model.states)[:, None, :])[model.legal]
    solution = linprog(
        np.ones(model.states), A_ub=rows, b_ub=-paid[model.legal], bounds=(None, None), method="highs-ds"
    )
    assert solution.success, solution.message
    return solution.x
