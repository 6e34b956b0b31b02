"""`velocirl train`: learn an environment, and keep what was learnt."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import gymnasium

from velocirl.cli.environment_files import Chosen, choose
from velocirl.cli.settings import Request, as_toml, read_request
from velocirl.cli.trust import require_buffer_file
from velocirl.engine.compiler.cache import cached_files
from velocirl.engine.compiler.crashing import said_on_crash
from velocirl.monitor.heartbeat import EVERY, Heartbeat
from velocirl.monitor.resource_use import ResourceReader
from velocirl.runs.callback import Callback
from velocirl.runs.curve import RETURN
from velocirl.runs.directory import Plan, Run, create_run
from velocirl.runs.recording import RunPublisher, RunRecorder, interrupted
from velocirl.runs.state_file import write_whole
from velocirl.tabular.runtimes.mpi_world import RUNTIMES, follows
from velocirl.training.agent import Agent
from velocirl.training.callbacks import Evaluate, StopOnReward
from velocirl.training.config import as_plain
from velocirl.vector.making import GYMNASIUM

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

DEFAULT_TOTAL_STEPS = 1_000_000
CHECKPOINTS = 10  # in a run, unless it is said how often
CRASHED = (
    "\nerror: the run crashed in compiled code, where no index is tested. Start it anew with --check, or go on from its"
    " last checkpoint with `velocirl resume {} --check`: that tests every index, and names the line of a wrong one\n"
)
CONFIG = "config.toml"  # in the directory of a run: what repeats it


def train(arguments: Sequence[str]) -> None:
    """Train an agent in a new run, or several in a new group of runs."""
    request = read_request(arguments)
    if request.seeds is not None:
        if request.values.get("runtime") in RUNTIMES:
            raise ValueError("MPI trains one agent: leave out --seeds, and give each run a --seed of its own")
        from velocirl.cli.train.seeds import train_seeds  # which needs this module

        train_seeds(request)
        return
    chosen = choose(request.environment, named_by=request.named_by, trust=request.trust, quiet=request.quiet)
    agent = build(request.algorithm, chosen, request.values)
    plan = _plan(request, agent, chosen)
    if follows(agent):
        agent.learn(plan.total_steps)  # the first rank has the run, and shows how it goes
        return
    config = as_plain(agent.config)
    if config.get("buffer_file") is not None:
        require_buffer_file(config["buffer_file"], None, trust=True)  # so that the run can be resumed
    seed = config.get("seed") or 0
    run = create_run(
        request.run_dir,
        chosen.id,
        agent.name,
        config,
        seed,
        device=config.get("device", "cpu"),
        threads=config.get("threads"),
        plan=plan,
    )
    write_config(run, chosen)
    with run.hold():
        conduct(agent, run, plan.total_steps, as_json=request.json, quiet=request.quiet)


def build(algorithm: type[Agent], chosen: Chosen, values: dict[str, Any]) -> Agent:
    """An agent; that an environment of Gymnasium cannot be made is an error of one line."""
    try:
        return algorithm(chosen.environment, **values)
    except gymnasium.error.Error as error:
        raise ValueError(f"{chosen.id}: {error}") from error


def write_config(run: Run, chosen: Chosen) -> None:
    """Write the file from which `velocirl train --config` makes the same run again."""
    description = run.description
    assert description.plan is not None  # noqa: S101 - every run of a command has one
    text = config_text(chosen.spelled, description.algorithm, description.plan, description.config)
    write_whole(run.path / CONFIG, [text.encode()])


def config_text(environment: str, algorithm: str, plan: Plan, config: Mapping[str, Any]) -> str:
    """The settings of a run as a TOML file."""
    values = {
        "environment": environment,
        "algorithm": algorithm,
        "total_steps": plan.total_steps,
        "checkpoint_every": plan.checkpoint_every,
        "evaluate_every": plan.evaluate_every,
        "target_return": plan.target_return,
    }
    return f"# velocirl train --config {CONFIG}\n{as_toml(values)}\n{as_toml(config)}"


def conduct(agent: Agent, run: Run, total_steps: int | None, *, as_json: bool, quiet: bool) -> None:
    """Train the agent of a run, or go on training it where `total_steps` is None, and show how it goes.

    The caller holds the run.
    """
    resources = ResourceReader()
    callbacks, recorder = callbacks_of(run, resources, as_json=as_json)
    tested = agent.source.check or agent.source.native is None
    try:
        with nullcontext() if tested else said_on_crash(CRASHED.format(run.path)):
            if as_json or quiet:
                agent.learn(total_steps, [*callbacks, RunPublisher(recorder)])
            else:
                _learn_visibly(agent, run, total_steps, callbacks, RunPublisher(recorder), resources)
    except BaseException as error:
        if run.description.status == "running":  # it ended before training began
            recorder.fail(agent, error)
        raise
    finally:
        resources.close()


def callbacks_of(
    run: Run, resources: ResourceReader, *, as_json: bool, seed: int | None = None, heartbeat_every: float = EVERY
) -> tuple[list[Callback], RunRecorder]:
    """What a run's plan asks for, and its recorder, which is among them; with a seed, lines of JSON name it."""
    plan = run.description.plan
    assert plan is not None  # noqa: S101 - every run of a command has one
    named = {} if seed is None else {"seed": seed}
    recorder = RunRecorder(
        run,
        plan.checkpoint_every,
        evaluated=plan.evaluate_every is not None,
        on_row=(lambda row: _print_json("metrics", {**named, **row})) if as_json else None,
    )
    callbacks: list[Callback] = []
    if plan.evaluate_every is not None:
        callbacks.append(Evaluate(plan.evaluate_every))
    if plan.target_return is not None:
        callbacks.append(StopOnReward(plan.target_return))
    callbacks += [recorder, Heartbeat(run, resources, heartbeat_every)]
    if as_json:
        callbacks.append(_JSONEnds(run, named))
    return callbacks, recorder


def prepare_visibly(agent: Agent, console: Console, indent: str = "") -> None:
    """Compile, and say how long that took; the next time it is only loaded."""
    before = cached_files()
    began = time.perf_counter()
    with console.status(f"{indent}compiling for this processor, once"):
        agent.prepare()
    if cached_files() - before:
        seconds = time.perf_counter() - began
        console.print(f"{indent}compiled for this processor in {seconds:.1f} s, once", style="dim")


def _learn_visibly(
    agent: Agent,
    run: Run,
    total_steps: int | None,
    callbacks: list[Callback],
    publisher: RunPublisher,
    resources: ResourceReader,
) -> None:
    from velocirl.cli.console import make_console  # what draws is imported where there is somebody to look
    from velocirl.monitor.display import Display

    console = make_console()
    if agent.device_reason:
        console.print(f"on {agent.device_reason}", style="dim", markup=False)
    prepare_visibly(agent, console)
    display = Display(console, lambda agent, seconds: _ending(agent, run, seconds), resources)
    try:
        agent.learn(total_steps, [*callbacks, display, publisher])
    finally:
        display.close()


def outcome(agent: Agent, target: float | None) -> str:
    """How training ended: solved, finished or stopped."""
    if interrupted(agent):
        return "stopped"
    mean = agent.metrics.get(RETURN)
    wanted = solved_at(agent.source.id) if target is None else target
    full = len(agent.recent_returns) == agent.recent_returns.maxlen
    return "solved" if wanted is not None and mean is not None and full and mean >= wanted else "finished"


def solved_at(environment: str) -> float | None:
    """The mean return at which an environment counts as solved, where Gymnasium knows one."""
    known = gymnasium.registry.get(environment.removeprefix(GYMNASIUM))
    return None if known is None else known.reward_threshold


def _plan(request: Request, agent: Agent, chosen: Chosen) -> Plan:
    total = request.total_steps or agent.preset().get("total_steps", DEFAULT_TOTAL_STEPS)
    return Plan(
        total_steps=total,
        checkpoint_every=request.checkpoint_every or max(total // CHECKPOINTS, 1),
        evaluate_every=request.evaluate_every,
        target_return=request.target_return,
        environment_file=None if chosen.file is None else str(chosen.file),
        environment_sha256=chosen.sha256,
    )


def _ending(agent: Agent, run: Run, seconds: float) -> list[Text]:
    from rich.text import Text

    from velocirl.monitor.words import say_count, say_figure, say_seconds

    plan = run.description.plan
    word = outcome(agent, None if plan is None else plan.target_return)
    rate = float(agent.metrics.get("time/fps") or 0.0)
    mean = agent.metrics.get(RETURN)
    color = {"solved": "bold green", "finished": "bold", "stopped": "bold yellow"}[word]
    first = Text.assemble(
        (word, color),
        f" after {agent.steps:,} steps, {say_seconds(seconds)}, {say_count(rate)} steps/s",
        "" if mean is None else f"; return {say_figure(mean)}, the mean of {len(agent.recent_returns)} episodes",
    )
    after = "resume" if word == "stopped" else "evaluate"
    return [
        first,
        Text.assemble(("run   ", "dim"), str(run.path)),
        Text.assemble(("next  ", "dim"), f"velocirl {after} {run.name}"),
    ]


class _JSONEnds(Callback):
    """The first and the last line of a training run in JSON."""

    def __init__(self, run: Run, named: dict[str, Any]) -> None:
        self._run, self._named = run, named
        self._began = 0.0

    def start(self, agent: Agent) -> None:
        """Say what is trained."""
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
        """Say why it failed."""
        if not isinstance(error, BrokenPipeError):  # nobody listens
            status = self._run.description.status
            _print_json(
                "end", {**self._named, "status": status, "steps": agent.steps, "error": " ".join(str(error).split())}
            )

    def finish(self, agent: Agent) -> None:
        """Say how it ended."""
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


def _print_json(event: str, values: dict[str, Any]) -> None:
    print(json.dumps({"event": event, **values}, allow_nan=False), flush=True)
