"""Callback interface of training, for recorders, progress displays and user code."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from velocirl.training.agent import Agent


class Callback:
    """Base class of callbacks: hooks before, at the start, after each iteration and at the end of training."""

    def prepare(self, agent: Agent) -> None:
        """Run when training is requested, before the environments are created and code is compiled or loaded."""

    def start(self, agent: Agent) -> None:
        """Run when training begins."""

    def step(self, agent: Agent) -> bool | None:  # noqa: ARG002
        """Run after each iteration, with its metrics in `agent.metrics`; return False to stop training."""
        return None

    def finish(self, agent: Agent) -> None:
        """Run when training ends: at its step budget, by a callback or by a signal."""

    def fail(self, agent: Agent, error: BaseException) -> None:
        """Run when training ends with an error."""
