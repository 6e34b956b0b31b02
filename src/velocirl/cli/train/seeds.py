"""`velocirl train --seeds N`: the same training with many seeds, over the cores of this machine."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from velocirl.cli.named.environment_files import Chosen, choose, vouch
from velocirl.cli.resume import is_named
from velocirl.cli.settings import Request
from velocirl.cli.train.command import build, plan_of
from velocirl.cli.train.given import sent
from velocirl.cli.train.seed_processes import SeedProcess, SeedProcesses
from velocirl.cli.train.seeds_together import conduct_together
from velocirl.engine.disk.files import open_plain, parse_json
from velocirl.engine.disk.writing import strict_json
from velocirl.engine.targets.cores import available_cores
from velocirl.engine.targets.device_names import kind_of
from velocirl.monitor.heartbeat_file import DamagedHeartbeatError, read_heartbeat
from velocirl.monitor.words import plural, printable
from velocirl.runs.config_file import CONFIG, write_config
from velocirl.runs.directory import RunExistsError, is_held
from velocirl.runs.groups import Group, create_group, is_group, open_group
from velocirl.runs.placement import COMMAND, is_taken, place_run, tell_next
from velocirl.runs.seeds import Summary
from velocirl.runs.signals import StopSignals
from velocirl.training.agent import Agent
from velocirl.training.settings.config import as_plain
from velocirl.training.together import cannot_share

if TYPE_CHECKING:
    from velocirl.cli.train.seeds_display import SeedsDisplay

FAILED = 1  # exit code


def train_seeds(request: Request) -> Group:
    """Train agents of one configuration and many seeds in a new group, and return the group."""
    assert request.seeds is not None  # noqa: S101 - asked for
    if request.given is None:
        chosen = choose(request.environment, named_by=request.named_by, trust=request.trust, quiet=request.quiet)
    else:
        chosen = Chosen(request.given, request.environment)
    # One thread each, unless specified: many agents use the cores better than many threads of one agent.
    single = {"threads": 1} if "threads" in {one.name for one in dataclasses.fields(request.algorithm.Config)} else {}
    agent = build(request.algorithm, chosen, {**single, **request.values})
    given = b"" if request.given is None else sent(agent.source)
    chosen = dataclasses.replace(chosen, id=agent.source.id)
    plan, config = plan_of(request, agent, chosen), as_plain(agent.config)
    first = config.get("seed") or 0
    seeds = range(first, first + request.seeds)
    if request.run_dir is not None and request.exist == "resume" and is_taken(request.run_dir.expanduser()):
        return _resume_as_asked(request, chosen, agent, seeds, given)
    told = (lambda *_: None) if request.quiet else partial(tell_next, spelled=COMMAND)
    place = None if request.run_dir is None else place_run(request.run_dir, request.exist, told)
    group = create_group(place, chosen.id, agent.name, seeds, config, plan)
    write_config(group, chosen.spelled)
    commands = {seed: _begin(group, seed, chosen.spelled) for seed in seeds}
    processes = [SeedProcess(seed, command, plan.total_steps, given=given) for seed, command in commands.items()]
    with group.hold():
        if cannot_share(agent) is None:
            _train_in_one_batch(request, group, chosen, processes)
        else:
            conduct_seeds(group, processes, as_json=request.json, quiet=request.quiet)
    return group


def _resume_as_asked(request: Request, chosen: Chosen, agent: Agent, seeds: Sequence[int], given: bytes) -> Group:
    """Continue the group in the directory of a request, if its training matches."""
    assert request.run_dir is not None  # noqa: S101 - asked for
    path = request.run_dir.expanduser()
    if not is_group(path):
        raise RunExistsError(f"{path} is a run of one seed: leave out --seeds, or give another --run-dir")
    group = open_group(path)
    known, config = group.description, parse_json(strict_json(as_plain(agent.config)))
    asked = list(seeds) if "seed" in request.values else [*known.seeds[: len(seeds)], *seeds[len(known.seeds) :]]
    theirs = {"algorithm": known.algorithm, "environment": known.environment, "seeds": known.seeds, **known.config}
    ours = {**config, "algorithm": agent.name, "environment": chosen.id, "seeds": asked}
    other = next((name for name in theirs if ours.get(name) != theirs[name]), None)
    if other is not None:
        raise RunExistsError(
            f"{path} was trained with {other}={theirs[other]!r}, and {other}={ours.get(other)!r} is asked for: give"
            " that, or another --run-dir"
        )
    total = request.total_steps
    more = total if total is not None and total > known.plan.total_steps else None
    shown = {"as_json": request.json, "quiet": request.quiet}
    resume_seeds(group, total_steps=more, env=None, trust=request.trust, given=given, **shown)
    return group


def _train_in_one_batch(request: Request, group: Group, chosen: Chosen, lines: list[SeedProcess]) -> None:
    display = None if request.json or request.quiet else _open_display(group, lines, "in one batch")
    try:
        seconds = conduct_together(group, chosen, request.algorithm, request.values, lines, display, request.json)
    finally:
        if display is not None:
            display.close()
    _conclude(group, group.publish(seconds, {}), stopped=False, as_json=request.json, quiet=request.quiet)


def resume_seeds(
    group: Group,
    *,
    total_steps: int | None,
    env: str | None,
    trust: bool,
    as_json: bool,
    quiet: bool,
    given: bytes = b"",
) -> None:
    """Continue the unfinished seeds of a group; with a higher total, all that have not reached it."""
    with group.hold():
        plan = group.description.plan
        environment = group.description.environment
        if not (given or env or plan.environment_file or is_named(environment)):
            raise ValueError(
                f"{group.name} was trained from Python, in an environment given as an object, {environment}: go on with"
                f' velocirl.train_seeds(..., run_dir={str(group.path)!r}, exist="resume") and that environment'
            )
        spelled = env or (environment if plan.environment_file is None else f"{plan.environment_file}:{environment}")
        # Ask the user here, as the processes cannot; they find the answer stored.
        vouch(spelled, named_by=None if env else str(group.path), trust=trust, quiet=quiet)
        results = group.results()
        if total_steps is not None:
            fewest = min(one.steps for one in results)
            if total_steps <= fewest:
                taken = f"all seeds of {group.name} have taken {fewest} steps already"
                raise ValueError(f"{taken}; --total-steps counts from their beginning")
            plan = msgspec.structs.replace(plan, total_steps=total_steps, target_return=None)
            group.set_plan(plan)
            write_config(group, spelled)
        processes = []
        for one in results:
            more = total_steps is not None and one.steps < total_steps
            if one.status == "finished" and not more:
                continue
            if _has_checkpoint(group, one.seed):
                extended = ["--total-steps", str(total_steps)] if more else []
                moved, agreed = [] if env is None else ["--env", env], ["--trust"] if trust else []
                command = ["resume", str(group.run_path(one.seed)), *extended, *moved, *agreed, "--json", "--quiet"]
            else:
                _clear(group.run_path(one.seed))
                command = _begin(group, one.seed, env)
            processes.append(SeedProcess(one.seed, command, plan.total_steps, one.steps, given=given))
        if processes:
            conduct_seeds(group, processes, as_json=as_json, quiet=quiet)
            return
    print(
        f"all {len(group.description.seeds)} seeds of {group.name} are finished:"
        f" go further with `velocirl resume {group.name} --total-steps N`"
    )


def conduct_seeds(group: Group, processes: Sequence[SeedProcess], *, as_json: bool, quiet: bool) -> None:
    """Run the processes of a group, display progress, and write the summary. The caller must hold the group."""
    config = group.description.config
    threads = max(config.get("threads") or 1, config.get("workers") or 1)
    at_once, manner = _side_by_side(config, threads)
    known = group.summary()
    began = time.monotonic()
    display = None if as_json or quiet else _open_display(group, processes, manner)
    relay = _Relay(quiet)

    def on_event(one: SeedProcess, event: dict[str, Any]) -> None:
        if as_json:
            _print_json({"event": event.pop("event"), "seed": one.seed, **event})

    def on_end(one: SeedProcess) -> None:
        relay(one, one.stderr)
        if display is not None:
            display.end(one)

    def on_look() -> None:
        if display is not None:
            _note_compiling(group, processes)
            display.refresh()

    runner = SeedProcesses(
        processes, at_once, threads, on_event=on_event, on_text=relay, on_end=on_end, on_look=on_look
    )
    with StopSignals() as signals:
        try:
            with runner:
                runner.run(signals)
        finally:
            if display is not None:
                display.close()
    errors = {one.seed: one.error for one in processes if one.state == "failed"}
    summary = group.publish(time.monotonic() - began + (known.seconds if known else 0.0), errors)
    _conclude(group, summary, stopped=signals.received is not None, as_json=as_json, quiet=quiet)
    _complain(errors)
    signals.raise_received()
    if errors:
        sys.exit(FAILED)


def _note_compiling(group: Group, processes: Sequence[SeedProcess]) -> None:
    """Mark processes that are compiling: until they run, only their heartbeats show it."""
    for one in processes:
        if one.state == "starting":
            with contextlib.suppress(DamagedHeartbeatError):
                heartbeat = read_heartbeat(group.run_path(one.seed))
                one.state = "compiling" if heartbeat is not None and heartbeat.compiling else one.state


def _side_by_side(config: dict[str, Any], threads: int) -> tuple[int, str]:
    """Return the number of processes to run at once, given their threads, and its description."""
    if kind_of(config.get("device", "auto")) == "cuda":  # they would share its time, and each needs memory of its own
        return 1, "one after the other on the GPU"
    at_once = max(available_cores() // threads, 1)
    return at_once, f"{at_once} at a time"


def _conclude(group: Group, summary: Summary, *, stopped: bool, as_json: bool, quiet: bool) -> None:
    """Print the result of a group."""
    if as_json:
        _print_json({"event": "summary", "path": str(group.path), **msgspec.to_builtins(summary)})
    elif not quiet:
        _show_ending(group, summary, stopped=stopped)


def _begin(group: Group, seed: int, environment: str | None) -> list[str]:
    """Return the command that trains a seed from the start; without an environment, the configuration file names it."""
    named = [] if environment is None else [environment]
    place = ["--run-dir", str(group.run_path(seed)), "--exist", "error"]
    with open_plain(group.files / CONFIG):  # raises for a link, as the process opens the file by its path
        pass
    mapped = group.description.config.get("buffer_file")
    memory = [] if mapped is None else ["--buffer-file", str(_of_seed(Path(mapped), seed))]
    return [
        "train",
        *named,
        "--config",
        str(group.path / CONFIG),
        "--seed",
        str(seed),
        *memory,
        *place,
        "--json",
        "--quiet",
    ]


def _of_seed(path: Path, seed: int) -> Path:
    """Return the path of a seed's own file: memory.ring becomes memory-3.ring for seed 3."""
    return path.with_name(f"{path.stem}-{seed}{path.suffix}")


def _has_checkpoint(group: Group, seed: int) -> bool:
    run = group.run(seed)
    return run is not None and not run.checkpoints().untouched


def _clear(path: Path) -> None:
    """Remove the directory of a seed that ended before its first checkpoint, as it starts again."""
    if path.is_dir() and not is_held(path):
        shutil.rmtree(path)


class _Relay:
    """Forwards other output of the processes, each line once: a warning of one seed applies to all."""

    def __init__(self, quiet: bool) -> None:
        self._said: set[str] = set()
        self._quiet = quiet

    def __call__(self, one: SeedProcess, text: str) -> None:
        for line in text.splitlines():
            if line not in self._said and not self._quiet:
                self._said.add(line)
                print(printable(f"seed {one.seed}: {line}"), file=sys.stderr)


def _open_display(group: Group, processes: Sequence[SeedProcess], manner: str) -> SeedsDisplay:
    from velocirl.cli.train.seeds_display import SeedsDisplay
    from velocirl.monitor.console import make_console  # rendering is imported only when needed

    description = group.description
    title = f"{description.environment}  {description.algorithm}  {plural(len(processes), 'seed')}, {manner}"
    display = SeedsDisplay(make_console(), processes, title)
    display.start()
    return display


def _show_ending(group: Group, summary: Summary, *, stopped: bool) -> None:
    from rich.markup import escape

    from velocirl.cli.train.seeds_display import show_summary
    from velocirl.monitor.console import make_console

    console = make_console()
    show_summary(console, summary)
    best = max(summary.seeds, key=lambda one: -float("inf") if one.final_return is None else one.final_return)
    unfinished = stopped or any(one.status != "finished" for one in summary.seeds)
    after = f"resume {group.name}" if unfinished else f"evaluate {group.name}/{group.run_path(best.seed).name}"
    console.print(f"[dim]group[/] {escape(str(group.path))}", soft_wrap=True)
    if group.curve_path.exists():
        console.print(f"[dim]curve[/] {escape(str(group.curve_path))}", soft_wrap=True)
    console.print(f"[dim]next [/] velocirl {escape(after)}", soft_wrap=True)


def _complain(errors: dict[int, str]) -> None:
    if errors:
        from velocirl.monitor.console import make_console

        for seed, error in errors.items():
            line = f"error: seed {seed}: {' '.join(error.split())}"
            make_console(stderr=True).print(line, style="red", markup=False, soft_wrap=True)


def _print_json(event: dict[str, Any]) -> None:
    print(json.dumps(event, allow_nan=False), flush=True)
