"""Listeners of a training: the user's callbacks, the run's recorder and the display."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from velocirl.monitor.attention import attention, in_notebook, is_free
from velocirl.monitor.terminal import in_terminal, started_by_notebook
from velocirl.runs.callback import Callback

if TYPE_CHECKING:
    from velocirl.monitor.watcher import Watcher
    from velocirl.training.agent import Agent
    from velocirl.training.persistence import Goal
    from velocirl.training.running import Recording

PATIENCE = 2.0  # seconds; shorter trainings show nothing


@contextmanager
def presented(
    agent: Agent,
    goal: Goal,
    callbacks: Sequence[Callback],
    *,
    progress: bool | None,
    run_dir: str | Path | None,
    exist: str,
    checkpoint_every: int | None,
) -> Iterator[list[Callback]]:
    """Yield all listeners of a training, in calling order, and close them afterwards."""
    with ExitStack() as held:
        recording = None
        if run_dir is not None:
            from velocirl.training.running import kept_in  # imported here: most trainings do not need it

            recording = held.enter_context(kept_in(run_dir, agent, goal, callbacks, checkpoint_every, exist))
        elif checkpoint_every is not None:
            raise ValueError("checkpoint_every says how often a run is saved: give its directory as run_dir too")
        told = [*callbacks, *(() if recording is None else recording.callbacks)]
        if wanted(progress):
            display = make_display(recording)
            held.callback(display.end)
            held.enter_context(attention())
            told.append(display)
        yield told if recording is None else [*told, recording.publisher]


def wanted(progress: bool | None) -> bool:
    """Return whether progress is shown: `progress` if given, else whether a terminal or notebook displays it."""
    seen = in_notebook() or in_terminal() or started_by_notebook()
    return is_free() and seen if progress is None else progress


def make_display(recording: Recording | None) -> Watcher:
    """Return the display for this process: in a notebook, in a terminal, or line by line."""
    given = {}
    if recording is not None:
        from velocirl.training.outcome import ending

        run, resources = recording.run, recording.resources
        given = {
            "ending": lambda agent, seconds: ending(agent, run, seconds, resources.mean_other_cores),
            "resources": resources,
        }
    if in_notebook():
        from velocirl.monitor.notebook import NotebookDisplay

        return NotebookDisplay(**given, after=PATIENCE)
    from velocirl.monitor.console import make_console
    from velocirl.monitor.display import Display

    return Display(make_console(), **given, after=PATIENCE)
