"""`velocirl record`: an agent at play as a GIF or MP4."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from velocirl.cli.models import add_model, add_playing, find_model
from velocirl.cli.parsing import Parser, whole_number
from velocirl.training.agent import Agent
from velocirl.training.playing import Moment, record_video

if TYPE_CHECKING:
    from rich.console import Console

MOST_FRAMES = 2000


def record(arguments: Sequence[str]) -> None:
    """Film the agent of a run or of a file."""
    parser = Parser("record [RUN|FILE] --out FILE", "Film an agent at play, as a GIF or MP4.")
    add_model(parser)
    add_playing(parser)
    parser.add_argument("--out", type=Path, metavar="FILE", help="The film: a name that ends in .gif or .mp4")
    parser.add_argument("--fps", type=whole_number, metavar="N", help="Steps per second (default: the environment's)")
    parser.add_argument(
        "--max-frames",
        type=whole_number,
        metavar="N",
        help=f"End the film after so many frames (default: {MOST_FRAMES:,})",
    )
    given = parser.parse(arguments)
    if "out" not in given:
        raise ValueError("say where the film is to be written: --out play.gif, or --out play.mp4")
    state, chosen, source = find_model(given)
    agent = Agent.from_state(state, chosen.environment, source)
    options = {name: given[name] for name in ("episodes", "seed", "fps") if name in given}
    options |= {"max_frames": given.get("max_frames", MOST_FRAMES), "deterministic": "stochastic" not in given}
    from velocirl.monitor.console import make_console

    film(make_console(), agent, given["out"], **options)


def film(console: Console, agent: Agent, path: Path, **options: Any) -> None:
    """Film an agent, and say how far it is and what came of it."""
    from rich.status import Status

    frames, last = 0, 0.0
    with Status("filming", console=console) as status:

        def watch(one: Moment) -> None:
            nonlocal frames, last
            frames, last = frames + 1, one.total
            status.update(f"filming: {frames:,} frames, episode {one.episode + 1}, return {one.total:,.6g}")

        result = record_video(agent, path, watch=watch, **options)
    went = ", ".join(f"{one:,.6g}" for one in result.returns[:5]) + (", ..." if len(result.returns) > 5 else "")
    returns = f"return {went}" if went else f"return {last:,.6g} so far, where the film ends"
    console.print(f"{path}: {frames:,} frames, {returns}", markup=False, soft_wrap=True)
