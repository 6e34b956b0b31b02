"""Where experience comes from, as arrays with a row for each copy: a fleet of ours, or environments of Gymnasium's."""

from __future__ import annotations

from typing import Any, NamedTuple

from velocirl.engine.fleets.lifecycle import Copies
from velocirl.program.rows.recording import Outcome


class Experience(NamedTuple):
    """What copies see, may do, do, and what comes of it; arrays of the device where they step."""

    observation: Any  # (copies, raw) now, after an automatic reset
    final: Any  # (copies, raw) the last of the episode, where one ended in this step
    mask: Any  # (copies, choices) what is legal now
    final_mask: Any  # (copies, choices) what was in the last state of an episode that was truncated; zeros if unknown
    action: Any  # (copies, numbers) what to do next; of several parts (copies,) record
    told: Outcome
    final_state: Any = None  # (copies,) records: the state in which an episode ended last, where there is one to see


def of_fleet(copies: Copies) -> Experience:
    """The experience of a fleet, in its own memory."""
    count = len(copies.elapsed)
    seen, final = copies.observation.reshape(count, -1), copies.final_observation.reshape(count, -1)
    told = Outcome(
        copies.reward, copies.terminated, copies.truncated, copies.episode_return, copies.episode_length,
        copies.costs, copies.episode_costs,
    )  # fmt: skip
    action = copies.action if copies.action.dtype.names else copies.action.reshape(count, -1)
    masks = copies.mask.reshape(count, -1), copies.final_mask.reshape(count, -1)
    return Experience(seen, final, *masks, action, told, copies.final_state)
