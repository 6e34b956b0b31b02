"""`velocirl train`: train an agent and keep the run."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gymnasium
import msgspec

from velocirl.cli.named.environment_files import Chosen, choose
from velocirl.cli.named.trust import require_buffer_file
from velocirl.cli.ranks import several_ranks
from velocirl.cli.settings import Request, read_request
from velocirl.runs.callback import Callback
from velocirl.runs.directory import Plan, Run
from velocirl.runs.metrics import RETURN, Row
from velocirl.runs.placement import COMMAND, tell, tell_next
from velocirl.training.agent import Agent
from velocirl.training.outcome import ending, outcome
from velocirl.training.running import CHECKPOINTS, Recording, asked_by, go_on, held_run, recorded

DEFAULT_TOTAL_STEPS = 1_000_000


def train(arguments: Sequence[str]) -> None:
    """Train an agent in a new run, or several in a new group of runs."""
    request = read_request(arguments)
    if request.seeds is not None:
        if several_ranks(request.values, request.algorithm):
            raise ValueError("ranks train one agent: leave out --seeds, and give each run a --seed of its own")
        from velocirl.cli.train.seeds import train_seeds  # imported here: that module imports this one

        train_seeds(request)
        return
    chosen = choose(request.environment, named_by=request.named_by, trust=request.trust, quiet=request.quiet)
    agent = build(request.algorithm, chosen, request.values)
    plan = plan_of(request, agent, chosen)
    resuming = request.exist == "resume"
    if agent.follows:
        agent.learn(None if resuming else plan.total_steps)  # rank 0 has the run, and displays it
        return
    if (memory := getattr(agent.config, "buffer_file", None)) is not None:
        require_buffer_file(memory, None, trust=True)  # so that the run can be resumed
    say, say_next = (_nothing, _nothing) if request.quiet else (tell, partial(tell_next, spelled=COMMAND))
    if resuming and request.run_dir is not None:
        go_on(agent, request.run_dir, request.total_steps, plan.total_steps, say)
        assert agent.goal is not None  # noqa: S101 - set just now
        if agent.finished:
            if several_ranks(request.values, request.algorithm):
                agent.learn(progress=False)  # ends the other ranks
            return
        plan = msgspec.structs.replace(plan, total_steps=agent.goal.stop)
    total = None if resuming else plan.total_steps
    with held_run(agent, request.run_dir, lambda _: plan, chosen.spelled, request.exist, say_next) as run:
        conduct(agent, run, total, as_json=request.json, quiet=request.quiet)


def _nothing(*_: Any) -> None:
    """Print nothing."""


def build(algorithm: type[Agent], chosen: Chosen, values: dict[str, Any]) -> Agent:
    """Build an agent; an environment that Gymnasium cannot create is an error of one line."""
    try:
        return algorithm(chosen.environment, **values)
    except gymnasium.error.Error as error:
        raise ValueError(f"{chosen.id}: {error}") from error


def conduct(agent: Agent, run: Run, total_steps: int | None, *, as_json: bool, quiet: bool) -> None:
    """Train the agent of a run, or continue if `total_steps` is None, and display progress.

    The caller must hold the run.
    """
    plan = run.description.plan
    assert plan is not None  # noqa: S101 - every run of a command has one
    with recorded(agent, run, row_printer() if as_json else None) as recording:
        callbacks = [*asked_by(plan), *recording.callbacks]
        if as_json:
            agent.learn(total_steps, [*callbacks, JSONEnds(run), recording.publisher])
        elif quiet:
            agent.learn(total_steps, [*callbacks, recording.publisher])
        else:
            _learn_visibly(agent, total_steps, callbacks, recording)


def _learn_visibly(agent: Agent, total_steps: int | None, callbacks: list[Callback], recording: Recording) -> None:
    from velocirl.monitor.console import make_console  # rendering is imported only when needed
    from velocirl.monitor.display import Display

    run = recording.run
    resources = recording.resources

    def last_lines(agent: Agent, seconds: float) -> list[Any]:
        return ending(agent, run, seconds, resources.mean_other_cores)

    display = Display(make_console(), last_lines, resources)
    try:
        agent.learn(total_steps, [*callbacks, display, recording.publisher])
    finally:
        display.end()


def plan_of(request: Request, agent: Agent, chosen: Chosen) -> Plan:
    """Return the training plan of a request."""
    total = request.total_steps or agent.preset().get("total_steps", DEFAULT_TOTAL_STEPS)
    return Plan(
        total_steps=total,
        checkpoint_every=request.checkpoint_every or max(total // CHECKPOINTS, 1),
        evaluate_every=request.evaluate_every,
        target_return=request.target_return,
        environment_file=None if chosen.file is None else str(chosen.file),
        environment_sha256=chosen.sha256,
    )


class JSONEnds(Callback):
    """First and last line of a training run in JSON; with a seed, the lines contain it."""

    def __init__(self, run: Run, seed: int | None = None) -> None:
        self._run, self._named = run, _named(seed)
        self._began = 0.0

    def start(self, agent: Agent) -> None:
        """Print what is trained."""
        self._began = time.perf_counter()
        description = self._run.description
        plain = {"environment": description.environment, "algorithm": description.algorithm, "seed": description.seed}
        total = None if agent.goal is None else agent.goal.stop
        place = {"run": self._run.name, "path": str(self._run.path)}
        _print_json(
            "start",
            {**self._named, **place, **plain, "steps": agent.steps, "total_steps": total, "config": description.config},
        )

    def fail(self, agent: Agent, error: BaseException) -> None:
        """Print why training failed."""
        if not isinstance(error, BrokenPipeError):  # the reader is gone
            status = self._run.description.status
            _print_json(
                "end", {**self._named, "status": status, "steps": agent.steps, "error": " ".join(str(error).split())}
            )

    def finish(self, agent: Agent) -> None:
        """Print how training ended."""
        plan = self._run.description.plan
        _print_json(
            "end",
            {
                **self._named,
                "status": self._run.description.status,
                "outcome": outcome(agent, None if plan is None else plan.target_return),
                "run": self._run.name,
                "path": str(self._run.path),
                "steps": agent.steps,
                "seconds": round(time.perf_counter() - self._began, 4),
                "return": agent.metrics.get(RETURN),
            },
        )


def row_printer(seed: int | None = None) -> Callable[[Row], None]:
    """Return a function that prints each row of metrics as a line of JSON; with a seed, the line contains it."""
    return lambda row: _print_json("metrics", {**_named(seed), **row})


def _named(seed: int | None) -> dict[str, Any]:
    return {} if seed is None else {"seed": seed}


def _print_json(event: str, values: dict[str, Any]) -> None:
    print(json.dumps({"event": event, **values}, allow_nan=False), flush=True)
