"""`velocirl train --seeds N` on a GPU: all agents learn in one batch, each with its own run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from velocirl.cli.named.environment_files import Chosen
from velocirl.cli.train.command import JSONEnds, build, row_printer
from velocirl.cli.train.seed_processes import SeedProcess
from velocirl.monitor.heartbeat import EVERY
from velocirl.monitor.resource_use import ResourceReader
from velocirl.runs.callback import Callback
from velocirl.runs.groups import Group
from velocirl.runs.metrics import RETURN
from velocirl.runs.recording import RunPublisher, RunRecorder
from velocirl.training.agent import Agent
from velocirl.training.running import asked_by, new_run, recorders
from velocirl.training.together import learn_together

if TYPE_CHECKING:
    from velocirl.cli.train.seeds_display import SeedsDisplay

HEARTBEAT_SECONDS = 0.2  # per agent: keeps the cost of many heartbeats negligible


def conduct_together(
    group: Group, chosen: Chosen, algorithm: type[Agent], values: dict[str, Any], lines: Sequence[SeedProcess],
    display: SeedsDisplay | None, as_json: bool,
) -> float:  # fmt: skip
    """Train the agents of a group; `lines` are their entries in the display. Returns the seconds it took."""
    began = time.monotonic()
    resources, every = ResourceReader(), max(EVERY, len(lines) * HEARTBEAT_SECONDS)
    plan = group.description.plan
    agents: list[Any] = []
    callbacks: list[list[Callback]] = []
    recording: list[RunRecorder] = []
    with ExitStack() as held:
        for line in lines:
            agent = build(algorithm, chosen, {**values, "seed": line.seed})
            run = new_run(agent, group.run_path(line.seed), plan, chosen.spelled)
            held.enter_context(run.hold())
            on_row = row_printer(line.seed) if as_json else None
            recorder, heartbeat = recorders(run, resources, on_row=on_row, heartbeat_every=every)
            ends = [JSONEnds(run, line.seed)] if as_json else []
            own = [*asked_by(plan), recorder, heartbeat, *ends]
            agents.append(agent)
            recording.append(recorder)
            callbacks.append([*own, _Line(line, display), RunPublisher(recorder)])
        try:
            learn_together(agents, plan.total_steps, callbacks)
        except BaseException as error:
            for agent, recorder, line in zip(agents, recording, lines, strict=True):
                if recorder.run.description.status == "running":  # it ended before training began
                    recorder.fail(agent, error)
                    line.state, line.error = "failed", str(error)
            raise
        finally:
            resources.close()
    return time.monotonic() - began


class _Line(Callback):
    """Callback that updates one agent's line of the display."""

    def __init__(self, line: SeedProcess, display: SeedsDisplay | None) -> None:
        self._line, self._display = line, display
        self._shown = 0.0

    def prepare(self, agent: Agent) -> None:  # noqa: ARG002
        """Mark the line as compiling."""
        self._line.state = "compiling"
        if self._display is not None:
            self._display.refresh()

    def start(self, agent: Agent) -> None:  # noqa: ARG002
        """Mark the line as running."""
        self._line.state = "running"

    def step(self, agent: Agent) -> bool | None:
        """Show progress, at most ten times a second."""
        line, mean = self._line, agent.metrics.get(RETURN)
        line.steps, line.rate = agent.steps, float(agent.metrics.get("time/fps") or 0.0)
        line.mean = None if mean is None else float(mean)
        if self._display is not None and time.monotonic() - self._shown > 0.1:
            self._display.refresh()
            self._shown = time.monotonic()
        return None

    def finish(self, agent: Agent) -> None:
        """Mark the line as finished or stopped."""
        self._line.state = "finished" if agent.finished else "stopped"

    def fail(self, agent: Agent, error: BaseException) -> None:  # noqa: ARG002
        """Mark the line as failed."""
        self._line.state, self._line.error = "failed", str(error)
