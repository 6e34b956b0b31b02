"""Who is told of a run as it goes: recorders, displays, and whatever a user hangs in."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from velocirl.training.agent import Agent


class Callback:
    """Does something before, at the start, after each iteration and at the end of training; subclasses say what."""

    def prepare(self, agent: Agent) -> None:
        """Training was asked for; what it needs is compiled now, or loaded, and the environments are made."""

    def start(self, agent: Agent) -> None:
        """Training begins."""

    def step(self, agent: Agent) -> bool | None:  # noqa: ARG002
        """An iteration is done, its figures are in `agent.metrics`; returning False stops training."""
        return None

    def finish(self, agent: Agent) -> None:
        """Training is over: its end was reached, a callback stopped it, or a signal did."""

    def fail(self, agent: Agent, error: BaseException) -> None:
        """Training ended with an error."""
