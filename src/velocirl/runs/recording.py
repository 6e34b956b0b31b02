"""Recording of training: metrics, checkpoints, the best model, TensorBoard events and an image.

All but the image is scheduled by steps, never by the clock: a run that was killed and resumed leaves the same files.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from velocirl.engine.disk.confined import NotPlainFileError
from velocirl.runs.callback import Callback
from velocirl.runs.checkpoints import SCORE
from velocirl.runs.curves.curve import draw_curve
from velocirl.runs.directory import CURVE, EVENTS, Run
from velocirl.runs.metrics import EVALUATION, RETURN, STEP, MetricsLog, Row
from velocirl.runs.model_score import ModelScore
from velocirl.runs.signals import StopSignals
from velocirl.runs.tensorboard import EventWriter, available

if TYPE_CHECKING:
    from velocirl.training.agent import Agent

MOST_ROWS = 2000  # of a run, without evaluations: as many as an image can show
JUDGEMENTS = 25  # evaluations of the model per run, for an agent with constraints
HOPEFUL = 1.5  # multiple of its limit that the cost of earlier models may reach
EVENTS_AFTER = 10.0  # seconds; shorter runs write events at the end, as importing tensorboard is slow
SIGNALS = tuple(one.name for one in StopSignals.SIGNALS)


class RecordingError(OSError):
    """Error for a run that could not be saved; the message contains the reason and the checkpoint to resume from."""


def interrupted(agent: Agent) -> bool:
    """Return whether a signal ended training, rather than its step budget or a callback."""
    return not agent.finished and agent.stopping in SIGNALS


class RunRecorder(Callback):
    """Callback that writes a run's metrics, checkpoints, best model and status to disk.

    Each checkpoint compares the model with the best one, by the mean return of the last 100 episodes. With
    `evaluated=True` each evaluation does so instead, by its mean. For an agent with constraints this happens 25 times
    in a run, by the costs of its episodes first: see `Agent.model_score`. `on_row` is called with every row written.
    """

    def __init__(
        self,
        run: Run,
        checkpoint_every: int,
        *,
        evaluated: bool = False,
        on_row: Callable[[Row], None] | None = None,
    ) -> None:
        if checkpoint_every < 1:
            raise ValueError(f"checkpoint_every must be at least 1 step, got {checkpoint_every}")
        self.run = run
        self.row: Row | None = None  # the row of this iteration, if one was due
        self.best: ModelScore | None = None
        self._every = checkpoint_every
        self._judge = EVALUATION if evaluated else RETURN
        self._limited = False  # whether the agent has constraints
        self._on_row = on_row
        self._checkpoints = run.checkpoints()
        self._log: MetricsLog | None = None
        self._last = 0  # steps before this iteration
        self._saved = self._written = -1  # steps of the last checkpoint and the last row

    def prepare(self, agent: Agent) -> None:
        """Set the run's status to running, although code is still being compiled."""
        with self._explained(agent):
            self.run.set_status("running")

    def start(self, agent: Agent) -> None:
        """Continue from the agent's step: rows of later steps are dropped."""
        with self._explained(agent):
            self._log = self.run.metrics()
            self._log.rewind(agent.steps)
            self.run.set_status("running")
            self.best = self._checkpoints.best_score(self._judge)
            self._limited = bool(agent.limits)
            if agent.steps and self._checkpoints.untouched:  # what it learned earlier is the starting point of this run
                self._save(agent)
        self._last = agent.steps

    def step(self, agent: Agent) -> bool | None:
        """Write all that is due."""
        last, self._last = self._last, agent.steps
        self.row = None
        with self._explained(agent):
            if self._row_is_due(agent, last):
                self._write(agent)
            if self._limited and self._judgement_is_due(agent, last):
                self._judge_by(agent, RETURN)
            if agent.steps // self._every != last // self._every:
                self._save(agent)
                if not self._limited:
                    self._judge_by(agent, RETURN)
            self._judge_by(agent, EVALUATION)
        self._tell()
        return None

    def finish(self, agent: Agent) -> None:
        """Save the final state and set the run's status."""
        self.row = None
        try:
            with self._explained(agent):
                whole = not interrupted(agent)
                if whole and self._written != agent.steps and agent.metrics:
                    self._write(agent)
                if self._saved != agent.steps:
                    self._save(agent)
                if whole:
                    self._judge_by(agent, RETURN)
                self.run.set_status("stopped" if interrupted(agent) else "finished")
        except BaseException as error:  # `fail` is only called for errors before this point
            self.fail(agent, error)
            raise
        self._close()
        self._tell()

    def fail(self, agent: Agent, error: BaseException) -> None:  # noqa: ARG002 - a callback's signature
        """Set the status to failed; earlier saves stay as they are."""
        with contextlib.suppress(OSError):  # such as a full disk, which is then the error being raised
            self.run.set_status("stopped" if isinstance(error, (KeyboardInterrupt, SystemExit)) else "failed")
        self._close()

    def _judgement_is_due(self, agent: Agent, last: int) -> bool:
        """Return whether the model is to be scored in this iteration.

        More frequent than checkpoints: costs oscillate around a limit, and all checkpoints may fall above it.
        """
        goal = agent.goal
        assert goal is not None  # noqa: S101 - in training there is one
        place, before = (JUDGEMENTS * (steps - goal.start) // goal.total for steps in (agent.steps, last))
        return place != before

    def _hopeful(self, agent: Agent, metric: str, value: float) -> bool:
        """Return whether training episodes suggest that the model beats the best: scoring it takes other episodes."""
        costs = agent.limited_costs()
        if metric == EVALUATION or self.best is None or self.best.excess:
            return True
        return value > self.best.value and all(one.mean <= HOPEFUL * max(one.limit, 1.0) for one in costs)

    def _row_is_due(self, agent: Agent, last: int) -> bool:
        goal = agent.goal
        assert goal is not None  # noqa: S101 - in training there is one
        place, before = (MOST_ROWS * (steps - goal.start) // goal.total for steps in (agent.steps, last))
        return place != before or agent.iterations == 1 or agent.finished or EVALUATION in agent.metrics

    def _write(self, agent: Agent) -> None:
        assert self._log is not None  # noqa: S101 - started
        self._log.append(agent.metrics)
        self.row, self._written = agent.metrics, agent.steps

    def _tell(self) -> None:
        if self.row is not None and self._on_row is not None:
            self._on_row(self.row)

    def _save(self, agent: Agent) -> None:
        assert self._log is not None  # noqa: S101 - started
        self._require_directory(agent)
        self._log.sync()
        state = agent.state(live=True)
        self._checkpoints.save(agent.steps, state.arrays, state.document)
        self._saved = agent.steps

    def _judge_by(self, agent: Agent, metric: str) -> None:
        value = agent.metrics.get(metric)
        if metric != self._judge or value is None:
            return
        if self._limited and not self._hopeful(agent, metric, float(value)):
            return
        score = agent.model_score(metric)
        if not score.beats(self.best):
            return
        score = agent.judged_afresh(score)
        self._require_directory(agent)
        state = agent.state(live=True)
        self._checkpoints.save_best(state.arrays, {**state.document, SCORE: score.document()})
        self.best = score

    def _require_directory(self, agent: Agent) -> None:
        """Raise if the run's directory is gone: a second one in its place would not be found."""
        if not self.run.path.is_dir():
            raise RecordingError(
                f"the run cannot be saved at step {agent.steps}: its directory {self.run.path} is gone. Where it was"
                " moved, go on from its last checkpoint with `velocirl resume` and its new path"
            )

    @contextlib.contextmanager
    def _explained(self, agent: Agent) -> Iterator[None]:
        try:
            yield
        except RecordingError:
            raise
        except OSError as error:
            saved = max(self._checkpoints.steps(), default=None)
            after = "there is no checkpoint yet" if saved is None else f"the checkpoint of step {saved} is whole"
            advice = (
                ""
                if saved is None or isinstance(error, NotPlainFileError)
                else f": make room, then go on with `velocirl resume {self.run.name}`"
            )
            raise RecordingError(f"the run cannot be saved at step {agent.steps}: {error}; {after}{advice}") from error

    def _close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None


class RunPublisher(Callback):
    """Callback that publishes a run: TensorBoard events during training, an image at its end, where both are installed.

    It must be the last of the callbacks, so that no display waits for it.
    """

    def __init__(self, recorder: RunRecorder) -> None:
        self._recorder = recorder
        self._writer: EventWriter | None = None
        self._resumed_at = 0
        self._due = 0.0

    def start(self, agent: Agent) -> None:
        """Store the starting step; if there are events already, further rows must follow at once."""
        self._resumed_at = agent.steps
        self._due = 0.0 if self._has_events() else time.perf_counter() + EVENTS_AFTER

    def step(self, agent: Agent) -> bool | None:  # noqa: ARG002 - a callback's signature
        """Write the row of this iteration as an event."""
        row = self._recorder.row
        if row is None:
            return None
        with _forgiven("TensorBoard events"):
            if self._writer is not None:
                self._writer.add(int(row[STEP] or 0), row)
                self._writer.flush()
            elif time.perf_counter() >= self._due and available():
                self._open()
        return None

    def finish(self, agent: Agent) -> None:
        """Write the remaining events and draw the image; after a signal only the events, to end quickly."""
        run = self._recorder.run
        if interrupted(agent):
            self._close()
            return
        with _forgiven("TensorBoard events"):
            if self._writer is None and available():
                self._open()
        self._close()
        with _forgiven("the picture of the learning curve"):
            draw_curve(run.rows(), run.files / CURVE, f"{agent.source.id}  {agent.name}")

    def fail(self, agent: Agent, error: BaseException) -> None:  # noqa: ARG002 - a callback's signature
        """Write the remaining events."""
        self._close()

    def _has_events(self) -> bool:
        return bool((self._recorder.run.files / EVENTS).names())

    def _close(self) -> None:
        if self._writer is not None:
            with _forgiven("TensorBoard events"):
                self._writer.close()
            self._writer = None

    def _open(self) -> None:
        """Open an events file and add the rows so far: all, or those after the step at which the run resumed."""
        run = self._recorder.run
        resumed = self._resumed_at if self._has_events() else None
        self._writer = EventWriter(run.files / EVENTS, resumed)
        for row in run.rows():
            step = int(row[STEP] or 0)
            if resumed is None or step > resumed:
                self._writer.add(step, row)
        self._writer.flush()


@contextlib.contextmanager
def _forgiven(what: str) -> Iterator[None]:
    """Turn write errors into warnings: a run must not fail for files that can be recreated from its metrics."""
    try:
        yield
    except OSError as error:
        warnings.warn(f"{what} could not be written: {error}", stacklevel=3)
