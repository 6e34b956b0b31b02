"""Sources of experience, as arrays with a row for each environment: a fleet, or Gymnasium environments."""

from __future__ import annotations

from typing import Any, NamedTuple

from velocirl.engine.fleets.lifecycle import Copies
from velocirl.program.rows.recording import Outcome


class Experience(NamedTuple):
    """Observations, action masks, actions and results of environments; arrays of the device on which they step."""

    observation: Any  # (environments, raw) now, after an automatic reset
    final: Any  # (environments, raw) the episode's last, if it ended in this step
    mask: Any  # (environments, choices) current action mask
    final_mask: Any  # (environments, choices) mask in the last state of a truncated episode; zeros if unknown
    action: Any  # (environments, numbers) next action; a composite one is an (environments,) record
    told: Outcome
    final_state: Any = None  # (environments,) records: last state of the episode that ended last, if available


def of_fleet(copies: Copies) -> Experience:
    """Return the experience of a fleet, as views of its own memory."""
    count = len(copies.elapsed)
    seen, final = copies.observation.reshape(count, -1), copies.final_observation.reshape(count, -1)
    told = Outcome(
        copies.reward, copies.terminated, copies.truncated, copies.episode_return, copies.episode_length,
        copies.costs, copies.episode_costs,
    )  # fmt: skip
    action = copies.action if copies.action.dtype.names else copies.action.reshape(count, -1)
    masks = copies.mask.reshape(count, -1), copies.final_mask.reshape(count, -1)
    return Experience(seen, final, *masks, action, told, copies.final_state)
