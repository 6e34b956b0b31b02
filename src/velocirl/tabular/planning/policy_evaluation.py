"""Exact policy evaluation."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from velocirl.tabular.planning.backups import Backup
from velocirl.tabular.planning.endings import ending_actions
from velocirl.tabular.planning.faults import TOLERANCE, ModelError
from velocirl.tabular.planning.models import TabularModel
from velocirl.tabular.planning.value_iteration import settled

DENSE_STATES = 2000  # up to this size the equations are solved directly: 32 MB, a tenth of a second
MAX_SWEEPS = 1_000_000


def evaluate_policy(
    model: TabularModel, policy: ArrayLike, gamma: float, tolerance: float = 1e-10
) -> NDArray[np.float64]:
    """Return the value of every state (states,) under a policy: actions (states,) or probabilities (states, actions).

    V = r + gamma P V, solved directly for up to 2,000 states, beyond that by sweeps to the `tolerance`. At gamma = 1
    the policy must not collect rewards forever. If it never ends and collects none, the value is 0.
    """
    return chain_values(under(model, policy), gamma, tolerance, np.zeros(model.states))


def under(model: TabularModel, policy: ArrayLike) -> TabularModel:
    """Return the model under a policy: each state has one action left, which follows the policy."""
    weights = _action_weights(model, np.asarray(policy)).ravel()[model.pairs]
    used = weights > 0.0
    counts = np.bincount(model.pairs[used] // model.actions, minlength=model.states)
    return TabularModel(
        model.states,
        1,
        np.concatenate(([0], np.cumsum(counts))),
        (weights * model.probabilities)[used],
        model.next_states[used],
        model.rewards[used],
        model.terminated[used],
        model.start,
    )


def chain_values(
    chain: TabularModel, gamma: float, tolerance: float, guess: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the values of a model with one action; sweeps start from `guess`."""
    backup = Backup(chain, gamma)
    endless = np.zeros(chain.states, np.bool_)
    if not backup.contracts:
        endless = ending_actions(chain, chain.legal) < 0
        paying = endless[chain.pairs] & (chain.rewards != 0.0) & (chain.probabilities > 0.0)
        if paying.any():
            state = int(chain.pairs[np.argmax(paying)])
            raise ModelError(state, None, "rewards go on for ever under this policy; take a gamma below 1")
    if chain.states > DENSE_STATES:
        return settled(backup, np.where(endless, 0.0, guess), tolerance, MAX_SWEEPS)[0]
    goes_on = ~(chain.terminated | endless[chain.pairs])
    places = chain.pairs[goes_on] * chain.states + chain.next_states[goes_on]
    moves = np.bincount(places, chain.probabilities[goes_on], chain.states**2).reshape(chain.states, chain.states)
    paid = backup(np.zeros(chain.states))[:, 0]
    return np.asarray(np.linalg.solve(np.eye(chain.states) - gamma * moves, paid), np.float64)


def _action_weights(model: TabularModel, policy: NDArray[Any]) -> NDArray[np.float64]:
    """Return the probability of each action under a policy, (states, actions)."""
    shape = (model.states, model.actions)
    if policy.shape == (model.states,) and np.issubdtype(policy.dtype, np.integer):
        beyond = (policy < 0) | (policy >= model.actions)
        if beyond.any():
            state = int(np.argmax(beyond))
            raise ModelError(state, None, f"the policy must take an action below {model.actions}, got {policy[state]}")
        weights = np.zeros(shape)
        weights[np.arange(model.states), policy.astype(np.intp)] = 1.0
    elif policy.shape == shape and np.issubdtype(policy.dtype, np.floating):
        weights = policy.astype(np.float64)
        wrong = ~((weights >= 0.0).all(axis=1) & (np.abs(weights.sum(axis=1) - 1.0) <= TOLERANCE))
        if wrong.any():
            state = int(np.argmax(wrong))
            raise ModelError(
                state, None, f"the policy must be probabilities that sum to 1, got {weights[state].tolist()}"
            )
    else:
        raise ValueError(
            f"a policy must be whole numbers of the shape ({model.states},) or probabilities of the shape {shape}, got "
            f"{policy.dtype} of {policy.shape}"
        )
    forbidden = (weights > 0.0) & ~model.legal
    if forbidden.any():
        state, action = divmod(int(np.argmax(forbidden)), model.actions)
        raise ModelError(state, action, "the policy takes it, but it is illegal")
    return weights
