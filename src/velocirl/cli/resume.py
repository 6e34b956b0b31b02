"""`velocirl resume`: continue a run as if it had never stopped."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from velocirl.algorithms import load_algorithms
from velocirl.cli.named.environment_files import HANDED, Chosen, choose
from velocirl.cli.named.trust import add_trust, require_buffer_file
from velocirl.cli.parsing import Parser, whole_number
from velocirl.cli.ranks import call_of, called, calling, follower, is_follower, several_ranks
from velocirl.cli.train.command import build, conduct
from velocirl.engine.registry import list_envs
from velocirl.monitor.words import printable
from velocirl.runs.checkpoints import Checkpoint, Checkpoints
from velocirl.runs.config_file import write_config
from velocirl.runs.directory import Run
from velocirl.runs.finding import find
from velocirl.runs.groups import Group
from velocirl.training.agent import Agent
from velocirl.training.persistence import ALGORITHMS, Goal, algorithm_from
from velocirl.training.settings.config import as_plain
from velocirl.vector.making import GYMNASIUM

load_algorithms()


def resume(arguments: Sequence[str]) -> None:
    """Continue training the agent of a run from its newest checkpoint, or the agents of a group."""
    given = _parser().parse(arguments)
    if is_follower():
        _follow()
        return
    with calling() as call:
        _resume(given, call)


def _resume(given: dict[str, Any], call: Callable[[dict[str, Any]], None]) -> None:
    run = find(given.get("run"))
    if isinstance(run, Group):
        from velocirl.cli.train.seeds import resume_seeds

        shown: dict[str, Any] = {"as_json": "json" in given, "quiet": "quiet" in given}
        resume_seeds(run, total_steps=given.get("total_steps"), env=given.get("env"), trust="trust" in given, **shown)
        return
    if run.description.plan is None:
        raise ValueError(f"{run.name} was not made by `velocirl train`: load its checkpoint and call learn()")
    with run.hold():
        agent, chosen = _begin_anew(run, given) if run.checkpoints().untouched else _from_checkpoint(run, given)
        if "check" in given:
            agent.source.watch()
        if "total_steps" in given:
            _extend(run, agent, chosen, given["total_steps"])
        elif agent.finished or run.description.status == "finished":
            print(
                f"{run.name} is finished, after {agent.steps:,} steps: try it with `velocirl evaluate {run.name}`,"
                f" or go further with `velocirl resume {run.name} --total-steps N`"
            )
            return
        if several_ranks(as_plain(agent.config), type(agent)):
            call({"environment": chosen.spelled, **call_of(agent)})
        conduct(agent, run, None, as_json="json" in given, quiet="quiet" in given)


def _from_checkpoint(run: Run, given: Mapping[str, Any]) -> tuple[Agent, Chosen]:
    """Load the agent of a run from its newest checkpoint."""
    checkpoint = latest_checkpoint(run.checkpoints())
    for problem in checkpoint.problems:
        print(printable(f"warning: {problem}; going on from step {checkpoint.step}"), file=sys.stderr)
    chosen = environment_of(run, given)
    asked = buffer_file_of(run, checkpoint.state.document.get("config"), trust="trust" in given)
    return Agent.from_state(checkpoint.state, chosen.environment, str(checkpoint.path), **asked), chosen


def _begin_anew(run: Run, given: Mapping[str, Any]) -> tuple[Agent, Chosen]:
    """Build the agent of a run that ended before its first checkpoint, in its initial state."""
    description = run.description
    assert description.plan is not None  # noqa: S101 - asked before
    print(printable(f"{run.name} ended before its first checkpoint: it begins anew"), file=sys.stderr)
    chosen = environment_of(run, given)
    asked = buffer_file_of(run, description.config, trust="trust" in given)
    agent = build(algorithm_from(description.algorithm), chosen, {**description.config, **asked})
    agent.goal = Goal(0, description.plan.total_steps)
    return agent, chosen


def _follow() -> None:
    """Train with rank 0, if it broadcasts a run to resume."""
    call = called()
    if call is not None:
        follower(choose(call["environment"]).environment, call).learn()


def _extend(run: Run, agent: Agent, chosen: Chosen, total: int) -> None:
    """Set a new total of steps, and clear the target return: it may be reached already, but the steps are wanted."""
    plan = run.description.plan
    assert plan is not None and agent.goal is not None  # noqa: S101, PT018 - a run that was trained has both
    if total <= agent.steps:
        raise ValueError(f"{run.name} has taken {agent.steps} steps already; --total-steps counts from its beginning")
    agent.goal = Goal(agent.goal.start, total - agent.goal.start)
    run.describe(plan=msgspec.structs.replace(plan, total_steps=total, target_return=None))
    write_config(run, chosen.spelled)


def latest_checkpoint(checkpoints: Checkpoints, *, memory: bool = True) -> Checkpoint:
    """Load the newest intact checkpoint; its `problems` replace the warnings about newer ones."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return checkpoints.latest(memory=memory)


def environment_of(run: Run, given: Mapping[str, Any]) -> Chosen:
    """Return the environment of a run, or the one given in its place."""
    if "env" in given:
        return choose(given["env"])
    environment, plan, quiet = run.description.environment, run.description.plan, "quiet" in given
    file = None if plan is None else plan.environment_file
    if file is None and not is_named(environment):
        kind = getattr(ALGORITHMS.get(run.description.algorithm), "__name__", "Agent")
        raise ValueError(
            f"{run.name} was trained from Python, in the environment {environment} of a script or notebook: give the"
            f" file that defines it, --env FILE.py, or load it there: agent = {kind}.load({str(run.path)!r})"
        )
    spelled = environment if file is None else f"{file}:{environment}"
    chosen = choose(spelled, named_by=str(run.path), trust="trust" in given, quiet=quiet)
    before = None if plan is None else plan.environment_sha256
    if before is not None and before != chosen.sha256 and not quiet:
        print(printable(f"warning: {chosen.file} is not as it was when {run.name} began"), file=sys.stderr)
    return chosen


def is_named(environment: str) -> bool:
    """Return whether any process can find an environment by its id alone."""
    return environment.startswith(GYMNASIUM) or environment in HANDED or environment in list_envs()


def buffer_file_of(run: Run, config: Any, *, trust: bool) -> dict[str, Any]:
    """Return the replay buffer file of a run, if any; raises unless it is in the run's directory or trusted."""
    path = config.get("buffer_file") if isinstance(config, dict) else None
    if not isinstance(path, str):  # the agent rejects other types
        return {}
    if not Path(os.path.realpath(path)).is_relative_to(run.path):
        require_buffer_file(path, str(run.path), trust=trust)
    return {"buffer_file": path}


def _parser() -> Parser:
    parser = Parser(
        "resume [RUN]", "Train the agent of a run, or those of a group, further from the newest checkpoint."
    )
    parser.add_argument(
        "run",
        nargs="?",
        metavar="RUN",
        help="A run or group: its directory, name, or the beginning of its name (default: the newest)",
    )
    parser.add_argument(
        "--total-steps",
        type=whole_number,
        metavar="N",
        help="New total number of steps, counted from the beginning of the run",
    )
    parser.add_argument("--env", metavar="ENV", help="The environment, if the file that defines it has moved")
    add_trust(parser)
    parser.add_argument(
        "--check", action="store_true", help="Test every index of the environment's functions, and name a wrong one"
    )
    parser.add_argument("--json", action="store_true", help="Print lines of JSON")
    parser.add_argument("--quiet", action="store_true", help="Print nothing")
    return parser
