"""Acting in training: from the output of a network to an action of each copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from velocirl.engine.compiler.columns import rows_at
from velocirl.learners.program import Call
from velocirl.learners.recording import FAULT_IN_POLICY, STEP, not_finite, tell


def acting(call: Call, head: Any) -> Callable[..., Any]:
    """`act(i, r, t, columns, outputs, log, clock)`: draw an action for copy i, whose output stands in row r."""
    function = call.function

    def act(i, r, t, columns, outputs, log, clock):
        if not_finite(outputs[r]):
            tell(log, FAULT_IN_POLICY, i, t + clock[STEP])
        function(*rows_at(columns, i, r, t))

    def act_with_head(i, r, t, columns, outputs, log, clock):
        if not_finite(outputs[r]):
            tell(log, FAULT_IN_POLICY, i, t + clock[STEP])
        function(head, *rows_at(columns, i, r, t))

    return act_with_head if call.takes_head else act


def keep_mask(row, mask):
    """What was legal is kept with the step, for the update."""
    for k in range(len(row.mask)):
        row.mask[k] = mask[k]


def random_action(head, row, mask, rng):
    """Any legal action is as probable as any other."""
    head.draw(mask, rng, row.action)
