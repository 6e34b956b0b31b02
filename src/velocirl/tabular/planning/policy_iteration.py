"""Policy iteration: evaluate a policy exactly, take what is better, until nothing is."""

from __future__ import annotations

import numpy as np

from velocirl.tabular.planning.backups import Backup
from velocirl.tabular.planning.endings import ending_actions
from velocirl.tabular.planning.models import TabularModel
from velocirl.tabular.planning.plans import Plan, made_plan
from velocirl.tabular.planning.policy_evaluation import chain_values, under

PATIENCE = 1000  # sweeps that the bound may cost where gamma is 1


def policy_iteration(model: TabularModel, gamma: float, tolerance: float = 1e-10, max_iterations: int = 1000) -> Plan:
    """The best plan for a discount `gamma`, found in a few steps of exact policy evaluation.

    `tolerance` is for models too large to be solved at once, see `evaluate_policy`. At gamma = 1 it is the best of the
    policies that end; the first one goes to an end as directly as it can. Truncation is not modelled: a time limit does
    not count.
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
        # By more than rounding, or equally good actions would take turns for ever.
        better = action_values.max(axis=1) > kept + 4.0 * backup.rounding(values)
        if not better.any():
            return made_plan(model, backup, values, policy, iteration, PATIENCE)
        policy = np.where(better, action_values.argmax(axis=1), policy)
    raise RuntimeError(f"after {max_iterations} policies there was still a better one: raise max_iterations")
