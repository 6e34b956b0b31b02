"""Agents trained as runs: the directory that a training leaves, and who writes what into it."""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from velocirl.engine.compiler.crashing import said_on_crash
from velocirl.engine.counts import STEPS, require_count
from velocirl.engine.disk.files import read_plain
from velocirl.engine.environment import Environment
from velocirl.engine.registry import BUILT_IN
from velocirl.monitor.heartbeat import EVERY, Heartbeat
from velocirl.monitor.resource_use import ResourceReader
from velocirl.runs.callback import Callback
from velocirl.runs.config_file import write_config
from velocirl.runs.directory import DESCRIPTION, Plan, Run, RunExistsError, create_run, open_run
from velocirl.runs.memory_files import ROWS
from velocirl.runs.metrics import RETURN, Row
from velocirl.runs.recording import RunPublisher, RunRecorder
from velocirl.training.callbacks import Evaluate, StopOnReward
from velocirl.training.settings.config import as_plain

if TYPE_CHECKING:
    from velocirl.training.agent import Agent, Goal

CHECKPOINTS = 10  # in a run, unless it is said how often
CRASHED = (
    "\nerror: the run crashed in compiled code, where no index is tested. Start it anew with --check, or go on from its"
    " last checkpoint with `velocirl resume {} --check`: that tests every index, and names the line of a wrong one\n"
)


class Recording(NamedTuple):
    """Who is told of the training of a run."""

    run: Run
    callbacks: list[Callback]  # the recorder and the heartbeat
    publisher: RunPublisher  # which stands behind everybody else
    resources: ResourceReader


def new_run(agent: Agent, directory: str | Path | None, plan: Plan, environment: str) -> Run:
    """A new run of an agent; `environment` is as one writes it on a command line."""
    config = as_plain(agent.config)
    run = create_run(
        directory, agent.source.id, agent.name, config, config.get("seed") or 0, plan=plan, **_machinery(config)
    )
    write_config(run, environment)
    return run


def asked_by(plan: Plan) -> list[Callback]:
    """What a plan asks for between iterations."""
    callbacks: list[Callback] = []
    if plan.evaluate_every is not None:
        callbacks.append(Evaluate(plan.evaluate_every))
    if plan.target_return is not None:
        callbacks.append(StopOnReward(plan.target_return))
    return callbacks


def recorders(
    run: Run,
    resources: ResourceReader,
    *,
    on_row: Callable[[Row], None] | None = None,
    heartbeat_every: float = EVERY,
) -> tuple[RunRecorder, Heartbeat]:
    """Who writes down how the training of a run goes."""
    plan = run.description.plan
    assert plan is not None  # noqa: S101 - every run that is trained has one
    recorder = RunRecorder(run, plan.checkpoint_every, evaluated=plan.evaluate_every is not None, on_row=on_row)
    return recorder, Heartbeat(run, resources, heartbeat_every)


@contextmanager
def recorded(agent: Agent, run: Run, on_row: Callable[[Row], None] | None = None) -> Iterator[Recording]:
    """Train the agent of a run while this context lasts, and let the run say how that ended. The caller holds it."""
    resources = ResourceReader()
    recorder, heartbeat = recorders(run, resources, on_row=on_row)
    tested = agent.source.check or agent.source.native is None
    try:
        with nullcontext() if tested else said_on_crash(CRASHED.format(run.path)):
            yield Recording(run, [recorder, heartbeat], RunPublisher(recorder), resources)
    except BaseException as error:
        if run.description.status == "running":  # it ended before training began
            recorder.fail(agent, error)
        raise
    finally:
        resources.close()


@contextmanager
def kept_in(
    directory: str | Path, agent: Agent, goal: Goal, callbacks: Sequence[Callback], checkpoint_every: int | None
) -> Iterator[Recording]:
    """Train an agent on its way to a goal as the run in a directory: a new one, or one that is where the agent is.

    What `Evaluate` and `StopOnReward` among the callbacks ask for becomes a part of the plan, so that
    `velocirl resume` does it too; other callbacks it cannot know.
    """
    if checkpoint_every is not None:
        checkpoint_every = require_count("checkpoint_every", checkpoint_every, STEPS)
    path = Path(directory).expanduser().resolve()
    file, sha256 = file_of(agent.source.native)
    spelled = agent.source.id if file is None else f"{file}:{agent.source.id}"
    known = open_run(path) if (path / DESCRIPTION).exists() else None
    before = None if known is None else known.description.plan
    plan = Plan(
        total_steps=goal.stop,
        checkpoint_every=checkpoint_every or (before.checkpoint_every if before else max(goal.total // CHECKPOINTS, 1)),
        # Who goes on without evaluations keeps the best model of those before.
        evaluate_every=_first(_evaluates, callbacks) or (before.evaluate_every if before else None),
        target_return=_first(_target, callbacks),
        environment_file=file,
        environment_sha256=sha256,
    )
    run = new_run(agent, path, plan, spelled) if known is None else known
    with run.hold():
        if known is not None:
            _require_same(known, agent)
            config = as_plain(agent.config)
            run.describe(plan=plan, config=config, **_machinery(config))
            write_config(run, spelled)
        with recorded(agent, run) as recording:
            yield recording


def file_of(environment: Environment | None) -> tuple[str | None, str | None]:
    """The file that defines an environment of one's own, and its SHA-256, where a command can import it again.

    A script is not such a file, since to import it is to run it, nor is a notebook.
    """
    name = "__main__" if environment is None else environment.source
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    if name == "__main__" or name.startswith(f"{BUILT_IN}.") or not file or not file.endswith(".py"):
        return None, None
    if not any(value is environment for value in vars(module).values()):  # only its functions are from there
        return None, None
    path = Path(file).resolve()
    return str(path), hashlib.sha256(read_plain(path)).hexdigest()


def _require_same(run: Run, agent: Agent) -> None:
    """Refuse an agent that is not where the run is: figures and checkpoints are of one training."""
    description, path = run.description, str(run.path)
    theirs = (description.algorithm, description.environment, description.seed)
    ours = (agent.name, agent.source.id, agent.seed)
    if theirs != ours:
        said = ["{} on {} with seed {}".format(*one) for one in (theirs, ours)]
        raise RunExistsError(f"{path} is a run of {said[0]}, and this agent is {said[1]}: give another run_dir")
    steps = max(run.checkpoints().steps(), default=0)
    rows = agent.state(live=True).arrays.get(ROWS)
    forgetful = agent.steps > 0 and rows is not None and len(rows) == 0  # a best model has no memory
    if steps != agent.steps or forgetful:
        where = "without its memory" if steps == agent.steps else f"at step {agent.steps:,}"
        raise RunExistsError(
            f"{path} is a run that is at step {steps:,}, and this agent is {where}: go on with"
            f" agent = {type(agent).__name__}.load({path!r}, best=False) and agent.learn(run_dir={path!r}), or give"
            " another run_dir"
        )


def _first(ask: Callable[[Callback], Any], callbacks: Sequence[Callback]) -> Any:
    """What the first of the callbacks says that says something."""
    return next((said for one in callbacks if (said := ask(one)) is not None), None)


def _evaluates(callback: Callback) -> int | None:
    return callback.every if isinstance(callback, Evaluate) else None


def _target(callback: Callback) -> float | None:
    """The mean return at which a callback ends training, where that is what it does."""
    if not isinstance(callback, StopOnReward) or callback.metric != RETURN or not math.isfinite(callback.threshold):
        return None
    return float(callback.threshold)


def _machinery(config: dict[str, Any]) -> dict[str, Any]:
    return {"device": config.get("device", "cpu"), "threads": config.get("threads")}
