"""The demo's race: steps per second of a fleet beside Gymnasium's, as bars that move."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

import gymnasium
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from velocirl.bench.measuring import Settings, Timed
from velocirl.bench.samplers import vector_steps
from velocirl.bench.units import STEPS, TIMES
from velocirl.vector.native import FleetVectorEnv

SAMPLING = Settings(warm_up_seconds=0.2, sample_seconds=0.1)
FUSED_STEPS = 64
BAR_COLUMNS = 28
PEER = "Gymnasium, vectorised"


def race(console: Console, environment: str, fleet: FleetVectorEnv, seconds: float) -> None:
    """Let Gymnasium's fleet, ours through `step` and ours in a fused loop take turns, and show who does how much."""
    copies = fleet.num_envs
    contestants = {
        PEER: vector_steps(
            lambda: gymnasium.make_vec(environment, num_envs=copies, vectorization_mode="vector_entry_point")
        )(),
        "velocirl, step by step": vector_steps(lambda: fleet)(),
        "velocirl, fused loop": Timed(lambda: fleet.run_randomly(FUSED_STEPS), amount=copies * FUSED_STEPS),
    }
    with console.status("   warming up"):
        for contestant in contestants.values():
            contestant.prepare(SAMPLING)
    samples: dict[str, list[float]] = {name: [] for name in contestants}
    with Live(console=console, auto_refresh=False, transient=True) as live:
        for _ in range(max(1, round(seconds / SAMPLING.sample_seconds))):
            for name, contestant in contestants.items():
                samples[name].append(contestant.sample())
                if console.is_terminal:
                    live.update(_bars(console, samples), refresh=True)
    console.print(_bars(console, samples))
    contestants[PEER].close()


def _bars(console: Console, samples: Mapping[str, list[float]]) -> Table:
    rates = {name: median(taken) for name, taken in samples.items() if taken}
    longest = max(rates.values())
    block, color = ("#", "") if console.options.ascii_only else ("█", "cyan")
    table = Table.grid(padding=(0, 1, 0, 0))
    for name in samples:
        rate = rates.get(name, 0.0)
        times = TIMES.say(rate / rates[PEER]) if name != PEER and rate else ""
        bar = block * max(1, round(BAR_COLUMNS * rate / longest)) if rate else ""
        style = "dim" if name == PEER else color
        table.add_row("  ", name, Text(bar.ljust(BAR_COLUMNS), style), STEPS.say(rate), Text(times, "bold"))
    return table
