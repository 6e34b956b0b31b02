"""Policy iteration: evaluate a policy exactly, then act greedily, until nothing improves."""

from __future__ import annotations

import numpy as np

from velocirl.tabular.planning.backups import Backup
from velocirl.tabular.planning.endings import ending_actions
from velocirl.tabular.planning.models import TabularModel
from velocirl.tabular.planning.plans import Plan, made_plan
from velocirl.tabular.planning.policy_evaluation import chain_values, under

PATIENCE = 1000  # sweeps allowed for the error bound if gamma is 1


def policy_iteration(model: TabularModel, gamma: float, tolerance: float = 1e-10, max_iterations: int = 1000) -> Plan:
    """Return the optimal plan for a discount `gamma`, found in a few exact policy evaluations.

    `tolerance` is for models too large to be solved directly, see `evaluate_policy`. At gamma = 1 the plan is the best
    of the policies that end; the first policy takes the shortest way to an end. Truncation is not modeled: a time limit
    does not count.
    """
    backup = Backup(model, gamma)
    values = np.zeros(model.states)
    policy = backup(values).argmax(axis=1)
    if not backup.contracts:
        ending = ending_actions(model, model.legal)
        policy = np.where(ending >= 0, ending, policy)

    for iteration in range(1, max_iterations + 1):
        values = chain_values(under(model, policy), gamma, tolerance, values)
        action_values = backup(values)
        kept = action_values[np.arange(model.states), policy]
        # Better by more than rounding, or equally good actions would alternate forever.
        better = action_values.max(axis=1) > kept + 4.0 * backup.rounding(values)
        if not better.any():
            return made_plan(model, backup, values, policy, iteration, PATIENCE)
        policy = np.where(better, action_values.argmax(axis=1), policy)
    raise RuntimeError(f"after {max_iterations} policies there was still a better one: raise max_iterations")
