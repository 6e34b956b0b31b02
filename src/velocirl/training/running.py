"""Runs of agents: the directory of a training and the callbacks that write it."""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from velocirl.engine.compiler.crashing import said_on_crash
from velocirl.engine.counts import STEPS, require_count
from velocirl.engine.disk.files import read_plain
from velocirl.engine.environment import Environment
from velocirl.engine.registry import BUILT_IN
from velocirl.monitor.heartbeat import EVERY, Heartbeat
from velocirl.monitor.resource_use import ResourceReader
from velocirl.runs.callback import Callback
from velocirl.runs.config_file import write_config
from velocirl.runs.directory import DESCRIPTION, Plan, Run, RunExistsError, create_run, is_held, open_run
from velocirl.runs.groups import is_group
from velocirl.runs.memory_files import ROWS
from velocirl.runs.metrics import RETURN, Row
from velocirl.runs.placement import NEXT, is_numbered, place_run, tell, tell_next
from velocirl.runs.recording import RunPublisher, RunRecorder
from velocirl.training.callbacks import Evaluate, StopOnReward
from velocirl.training.persistence import Goal
from velocirl.training.saved import other_setting
from velocirl.training.settings.config import as_plain

if TYPE_CHECKING:
    from velocirl.training.agent import Agent

CHECKPOINTS = 10  # default number of checkpoints of a run
CRASHED = (
    "\nerror: the run crashed in compiled code, where no index is tested. Start it anew with --check, or go on from its"
    " last checkpoint with `velocirl resume {} --check`: that tests every index, and names the line of a wrong one\n"
)


class Recording(NamedTuple):
    """Recorders of a run."""

    run: Run
    callbacks: list[Callback]  # the recorder and the heartbeat
    publisher: RunPublisher  # called after all other callbacks
    resources: ResourceReader


def new_run(agent: Agent, directory: str | Path | None, plan: Plan, environment: str) -> Run:
    """Create the run of an agent; `environment` is written as on the command line."""
    config = as_plain(agent.config)
    run = create_run(
        directory, agent.source.id, agent.name, config, config.get("seed") or 0, plan=plan, **_machinery(config)
    )
    write_config(run, environment)
    return run


def asked_by(plan: Plan) -> list[Callback]:
    """Return the callbacks that a plan asks for."""
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
    """Return the callbacks that record a run."""
    plan = run.description.plan
    assert plan is not None  # noqa: S101 - every run that is trained has one
    recorder = RunRecorder(run, plan.checkpoint_every, evaluated=plan.evaluate_every is not None, on_row=on_row)
    return recorder, Heartbeat(run, resources, heartbeat_every)


@contextmanager
def recorded(agent: Agent, run: Run, on_row: Callable[[Row], None] | None = None) -> Iterator[Recording]:
    """Record the training of an agent in this context, including how it ends. The caller holds the run."""
    resources = ResourceReader()
    recorder, heartbeat = recorders(run, resources, on_row=on_row)
    tested = agent.source.check or agent.source.native is None
    try:
        with nullcontext() if tested else said_on_crash(CRASHED.format(run.path)):
            yield Recording(run, [recorder, heartbeat], RunPublisher(recorder), resources)
    except BaseException as error:
        if run.description.status == "running":  # training failed before it started
            recorder.fail(agent, error)
        raise
    finally:
        resources.close()


@contextmanager
def kept_in(
    directory: str | Path,
    agent: Agent,
    goal: Goal,
    callbacks: Sequence[Callback],
    checkpoint_every: int | None,
    exist: str = NEXT,
) -> Iterator[Recording]:
    """Train an agent toward a goal as the run in a directory: a new run, or the one that is at the agent's step.

    `Evaluate` and `StopOnReward` among the callbacks become part of the plan, so that `velocirl resume` restores them.
    It cannot restore other callbacks.
    """
    if checkpoint_every is not None:
        checkpoint_every = require_count("checkpoint_every", checkpoint_every, STEPS)
    file, sha256 = file_of(agent.source.native)
    spelled = agent.source.id if file is None else f"{file}:{agent.source.id}"

    def plan(before: Plan | None) -> Plan:
        every = before.checkpoint_every if before else max(goal.total // CHECKPOINTS, 1)
        return Plan(
            total_steps=goal.stop,
            checkpoint_every=checkpoint_every or every,
            # Without evaluations, the best model of the earlier ones is kept.
            evaluate_every=_first(_evaluates, callbacks) or (before.evaluate_every if before else None),
            target_return=_first(_target, callbacks),
            environment_file=file,
            environment_sha256=sha256,
        )

    with held_run(agent, directory, plan, spelled, exist) as run, recorded(agent, run) as recording:
        yield recording


@contextmanager
def held_run(
    agent: Agent,
    directory: str | Path | None,
    plan: Callable[[Plan | None], Plan],
    environment: str,
    exist: str,
    told: Callable[[Path, Path], None] = tell_next,
) -> Iterator[Run]:
    """Hold the run that an agent is trained as: a new one as `exist` asks, or the one that is at the agent's step.

    `plan` makes the new plan from the existing run's plan, or from None.
    """
    run = None if directory is None else _run_of(agent, Path(directory).expanduser().resolve(), exist)
    if run is None:
        place = None if directory is None else place_run(directory, exist, told)
        run = new_run(agent, place, plan(None), environment)
        with run.hold():
            agent.run_dir = run.path
            yield run
        return
    with run.hold():
        if (odds := at_odds(run, agent)) is not None:  # another process has trained it meanwhile
            raise RunExistsError(odds)
        config = as_plain(agent.config)
        run.describe(plan=plan(run.description.plan), config=config, **_machinery(config))
        write_config(run, environment)
        agent.run_dir = run.path
        yield run


def _run_of(agent: Agent, path: Path, exist: str) -> Run | None:
    """Return the run that an agent continues: in `path`, or in the numbered directory where it was trained before."""
    before = agent.run_dir
    places = [*([before] if before is not None and is_numbered(before, path) else []), path]
    if exist == "resume":
        return open_run(path) if (path / DESCRIPTION).exists() else None
    for place in places if exist == NEXT else ():
        if (place / DESCRIPTION).exists() and not is_held(place) and at_odds(run := open_run(place), agent) is None:
            return run
    return None


def go_on(
    agent: Agent,
    directory: str | Path,
    total_steps: int | None,
    default: int | None = None,
    told: Callable[[str], None] = tell,
) -> None:
    """Restore an untrained agent from the run in a directory, and set its goal as `resume` does.

    `total_steps` counts from the beginning of the run. If there is no run, a run of `default` steps will start there.
    """
    path = Path(directory).expanduser().resolve()
    if is_group(path):
        raise RunExistsError(f"{path} is a group of runs: resume it by `velocirl resume {path}`")
    steps = None if total_steps is None else require_count("total_steps", total_steps, "a whole number of at least 1")
    if not (path / DESCRIPTION).exists():
        steps = steps or default
        if steps is None and agent.goal is None:
            raise ValueError(f"there is no run in {path} yet: say for how many steps, learn(total_steps)")
        agent.goal = agent.goal if steps is None else Goal(agent.steps, steps)
        return
    run = open_run(path)
    if (odds := at_odds(run, agent)) is not None:
        if agent.steps:
            raise RunExistsError(odds)
        with run.hold():
            _be_where(run, agent, told)
    plan = run.description.plan
    planned = None if plan is None else plan.total_steps
    start, wanted = 0 if agent.goal is None else agent.goal.start, steps or planned
    if wanted is None:
        raise ValueError(f"{path} was not planned: say for how many steps, learn(total_steps)")
    ended = run.description.status == "finished" and planned is not None and wanted <= planned
    if ended or wanted <= agent.steps:
        told(f"{path} is finished, after {agent.steps:,} {agent.counted}: a larger total_steps continues it")
        wanted = agent.steps
    agent.goal = Goal(start, max(wanted - start, 1))


def _be_where(run: Run, agent: Agent, told: Callable[[str], None]) -> None:
    """Restore an agent from the newest checkpoint of a run, if the agent has the run's settings."""
    seeds = {run.description.seed, agent.seed} if "seed" in agent.given else set()
    other = other_setting(msgspec.to_builtins(run.description), agent)
    if len(seeds) > 1 or (other is not None and other[0] in ("algorithm", "environment")):
        raise RunExistsError(_another(run, agent))
    if other is not None:
        name, theirs, ours = other
        raise RunExistsError(
            f"{run.path} was trained with {name}={theirs!r}, and this agent has {name}={ours!r}: give the agent that,"
            " or choose another run_dir"
        )
    if run.checkpoints().untouched:
        told(f"{run.path} ended before its first checkpoint: it begins again")
        run.describe(seed=agent.seed)
        return
    checkpoint = run.checkpoints().latest()
    agent.reseed(run.description.seed)
    agent.restore(checkpoint.state, str(checkpoint.path))


def file_of(environment: Environment | None) -> tuple[str | None, str | None]:
    """Return the file that defines a user's environment and its SHA-256, if a command can import it again.

    Scripts and notebooks are excluded: importing them would run them.
    """
    name = "__main__" if environment is None else environment.source
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    if name == "__main__" or name.startswith(f"{BUILT_IN}.") or not file or not file.endswith(".py"):
        return None, None
    if not any(value is environment for value in vars(module).values()):  # only its functions come from this module
        return None, None
    path = Path(file).resolve()
    return str(path), hashlib.sha256(read_plain(path)).hexdigest()


def at_odds(run: Run, agent: Agent) -> str | None:
    """Return why an agent is not at a run's step, and what to do: metrics and checkpoints belong to one training."""
    description, path = run.description, str(run.path)
    if (description.algorithm, description.environment, description.seed) != (agent.name, agent.source.id, agent.seed):
        return _another(run, agent)
    steps = max(run.checkpoints().steps(), default=0)
    rows = agent.state(live=True).arrays.get(ROWS)
    forgetful = agent.steps > 0 and rows is not None and len(rows) == 0  # best models have no replay buffer
    if steps == agent.steps and not forgetful:
        return None
    where = "without its memory" if steps == agent.steps else f"at step {agent.steps:,}"
    return (
        f"{path} is a run that is at step {steps:,}, and this agent is {where}: go on with"
        f" agent = {type(agent).__name__}.load({path!r}, best=False) and agent.learn(run_dir={path!r}), or give"
        " another run_dir"
    )


def _another(run: Run, agent: Agent) -> str:
    description = run.description
    theirs = (description.algorithm, description.environment, description.seed)
    ours = (agent.name, agent.source.id, agent.seed)
    said = ["{} on {} with seed {}".format(*one) for one in (theirs, ours)]
    return f"{run.path} is a run of {said[0]}, and this agent is {said[1]}: give another run_dir"


def _first(ask: Callable[[Callback], Any], callbacks: Sequence[Callback]) -> Any:
    """Return the first result of `ask` over the callbacks that is not None."""
    return next((said for one in callbacks if (said := ask(one)) is not None), None)


def _evaluates(callback: Callback) -> int | None:
    return callback.every if isinstance(callback, Evaluate) else None


def _target(callback: Callback) -> float | None:
    """Return the mean return at which a callback ends training, or None."""
    if not isinstance(callback, StopOnReward) or callback.metric != RETURN or not math.isfinite(callback.threshold):
        return None
    return float(callback.threshold)


def _machinery(config: dict[str, Any]) -> dict[str, Any]:
    return {"device": config.get("device", "cpu"), "threads": config.get("threads")}
