"""Animation of the demo: a strip of CartPoles in the terminal, balanced by the trained policy."""

from __future__ import annotations

import math
import time

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

import velocirl
from velocirl.engine.canvas import Canvas
from velocirl.engine.records import with_attributes
from velocirl.monitor.console import shows_pictures
from velocirl.training.agent import Agent
from velocirl.vector.native import FleetVectorEnv

POLES = (0.35, 0.6, 1.0)  # half length of each environment's pole, in meters; the policy was trained with 0.5
TIME_STEP = 0.02
FRAMES_PER_SECOND = 12
WIDEST_PICTURE = 40  # columns; in a terminal of 80 columns, images have 24


def show_copies(console: Console, agent: Agent, seconds: float) -> None:
    """Balance a few environments in real time, as an animation or, without colors, as lines of text."""
    fleet = velocirl.make_vec(
        agent.source.id, len(POLES), seed=0, params={"half_length": list(POLES)}, render_mode="ansi", copy=False
    )
    assert isinstance(fleet, FleetVectorEnv)  # noqa: S101 - for the type checker: a native environment is a fleet
    observations, _ = fleet.reset()
    steps = math.ceil(seconds / TIME_STEP)
    if not shows_pictures(console):
        for _ in range(steps):
            observations = fleet.step(agent.predict(observations, deterministic=True)[0])[0]
        for length, text in zip(POLES, fleet.render() or (), strict=True):
            console.print(f"   pole of {2 * length:g} m after {steps} steps: {text}", soft_wrap=True)
        return
    start, done = time.perf_counter(), 0
    with Live(console=console, auto_refresh=False) as live:
        while done < steps:
            live.update(_strip(fleet, console.width), refresh=True)
            due = min(steps, done + round(1.0 / (FRAMES_PER_SECOND * TIME_STEP)))
            while done < due:
                observations = fleet.step(agent.predict(observations, deterministic=True)[0])[0]
                done += 1
            time.sleep(max(0.0, start + done * TIME_STEP - time.perf_counter()))


def _strip(fleet: FleetVectorEnv, width: int) -> Table:
    columns = max(8, min(WIDEST_PICTURE, (width - 3) // len(POLES) - 1))
    states, params = with_attributes(fleet.copies.state), with_attributes(fleet.copies.params)
    canvas, pictures = Canvas(), []
    for copy in range(fleet.num_envs):
        fleet.environment.draw(states[copy], params[copy], canvas)  # pyright: ignore[reportOptionalCall]
        pictures.append(Text.from_ansi(canvas.ansi(columns=columns)))
    strip = Table.grid(padding=(0, 1, 0, 0))
    strip.add_row("  ", *pictures)
    return strip
