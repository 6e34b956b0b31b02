"""`velocirl record`: a video of an agent, or its trajectory as a table, a plot or a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from velocirl.cli.named.controllers import add_controller
from velocirl.cli.named.models import add_model, add_playing
from velocirl.cli.named.policies import find_policy
from velocirl.cli.parsing import Parser, whole_number
from velocirl.monitor.words import plural
from velocirl.training.actors.playing import FORMATS, Moment, film_path, record_video
from velocirl.training.agent import Agent
from velocirl.training.source import Given
from velocirl.trajectories.policies import Policy
from velocirl.trajectories.rollout import rollout
from velocirl.trajectories.saving import WRITERS, trajectory_path

if TYPE_CHECKING:
    from rich.console import Console

MOST_FRAMES = 2000
FOR_FILMS, FOR_TRAJECTORIES = ("fps", "max_frames"), ("scenario", "controller")
EPISODES = 5  # returns that are printed, at most


def record(arguments: Sequence[str]) -> None:
    """Record a video of the agent of a run or a file, or its trajectory."""
    given = _parser().parse(arguments)
    if "out" not in given:
        raise ValueError("say where it is to be written: --out play.gif for a film, --out plant.csv for a trajectory")
    path = _path(given)
    policy, environment, _ = find_policy(given)
    options = {name: given[name] for name in ("episodes", "seed") if name in given}
    options["deterministic"] = "stochastic" not in given
    if "scenario" in given:
        options["scenario"] = given["scenario"]
    from velocirl.monitor.console import make_console

    if path.suffix.lower() in FORMATS:
        options |= {"fps": given.get("fps"), "max_frames": given.get("max_frames", MOST_FRAMES)}
        assert isinstance(policy, Agent)  # noqa: S101 - others are not filmed
        film(make_console(), policy, path, **options)
    else:
        write_down(make_console(), policy, environment, path, **options)


def film(console: Console, agent: Agent, path: Path, **options: Any) -> None:
    """Record a video of an agent; prints progress and result."""
    from rich.status import Status

    frames, last = 0, 0.0
    with Status("filming", console=console) as status:

        def watch(one: Moment) -> None:
            nonlocal frames, last
            frames, last = frames + 1, one.total
            status.update(f"filming: {plural(frames, 'frame')}, episode {one.episode + 1}, return {one.total:,.6g}")

        result = record_video(agent, path, watch=watch, **options)
    some = len(result.returns) > 0
    returns = f"return {_listed(result.returns)}" if some else f"return {last:,.6g} so far, where the film ends"
    console.print(f"{path}: {plural(frames, 'frame')}, {returns}", markup=False, soft_wrap=True)


def write_down(console: Console, policy: Policy, environment: Given | None, path: Path, **options: Any) -> None:
    """Write a trajectory of an agent or a controller; prints the result."""
    from rich.status import Status

    with Status("recording", console=console):
        found = rollout(policy, environment, **options)
        found.save(path)
    steps = f"{plural(int(found.lengths.sum()), 'step')} of {plural(len(found.columns()), 'column')}"
    console.print(f"{path}: {steps}, return {_listed(found.returns)}", markup=False, soft_wrap=True)


def _listed(returns: Any) -> str:
    return ", ".join(f"{one:,.6g}" for one in returns[:EPISODES]) + (", ..." if len(returns) > EPISODES else "")


def _path(given: dict[str, Any]) -> Path:
    """Validate the output path before the recording starts."""
    path, ending = given["out"], given["out"].suffix.lower()
    if ending not in (*FORMATS, *WRITERS):
        films, tables = ", ".join(FORMATS), ", ".join(WRITERS)
        raise ValueError(f"{path} must end in {films} for a film, or in {tables} for a trajectory")
    film = ending in FORMATS
    for name in FOR_TRAJECTORIES if film else FOR_FILMS:
        if name in given:
            what, endings = ("trajectories", WRITERS) if film else ("films", FORMATS)
            raise ValueError(f"--{name.replace('_', '-')} is for {what}, which end in {' or '.join(endings)}")
    return film_path(path) if film else trajectory_path(path)


def _parser() -> Parser:
    parser = Parser(
        "record [RUN|FILE|ENV] --out FILE",
        "Film an agent at play, as a GIF or MP4; or write down everything that happens, as a table, a plot or a page.",
    )
    add_model(parser)
    add_playing(parser)
    add_controller(parser)
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="A film where it ends in .gif or .mp4; a trajectory in .csv, .npz, .png (a plot) or .html (a page)",
    )
    parser.add_argument(
        "--scenario", metavar="NAME", help="Record a trajectory in one of the scenarios of the environment"
    )
    parser.add_argument(
        "--fps", type=whole_number, metavar="N", help="Steps per second of a film (default: the environment's)"
    )
    parser.add_argument(
        "--max-frames",
        type=whole_number,
        metavar="N",
        help=f"End the film after so many frames (default: {MOST_FRAMES:,})",
    )
    return parser
