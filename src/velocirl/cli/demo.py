"""`velocirl demo`: what it is good for, in less than half a minute."""

from __future__ import annotations

import inspect
import time
from typing import Annotated

import tyro
from rich.console import Console

import velocirl
from velocirl.cli.console import make_console
from velocirl.cli.demo_race import race
from velocirl.cli.demo_strip import show_copies
from velocirl.engine import registry
from velocirl.engine.directories import cache_directory
from velocirl.engine.environment import COMPILED
from velocirl.vector.native import FleetVectorEnv

ENVIRONMENT = "CartPole-v1"
COPIES = 4096
NEXT = """\
  velocirl envs      the environments there are; each is one short file
  velocirl bench     all that is claimed about speed, measured on this machine

  [dim]>>>[/dim] import velocirl
  [dim]>>>[/dim] env = velocirl.make_vec("CartPole-v1", 4096, params={"gravity": 3.7})
  [dim]>>>[/dim] observations, infos = env.reset(seed=0)
  [dim]>>>[/dim] env.step(env.action_space.sample())    [dim]# a Gymnasium VectorEnv[/dim]
"""


def demo(seconds: Annotated[float, tyro.conf.arg(metavar="SECONDS")] = 3.0) -> None:
    """Compile an environment, race it against Gymnasium's, and look at it.

    Args:
        seconds: How long each contestant steps, and how long the picture moves.
    """
    if not 0.0 < seconds <= 600.0:
        raise ValueError(f"--seconds must be above 0 and at most 600, got {seconds:g}")
    console = make_console()
    console.print(f"[bold]velocirl {velocirl.__version__}[/bold]  write scalars, run fleets\n")
    fleet = _compile(console)
    console.print(f"\n[bold]2[/bold]  {COPIES} copies on one core, in turns with Gymnasium's vectorised CartPole")
    race(console, ENVIRONMENT, fleet, seconds)
    console.print("\n[bold]3[/bold]  Three copies, each with a pole of its own, balanced by a line of Python")
    show_copies(console, ENVIRONMENT, seconds)
    console.print("\n[bold]4[/bold]  Your turn\n")
    console.print(NEXT, soft_wrap=True)


def _compile(console: Console) -> FleetVectorEnv:
    """A fleet that has taken its first steps, and how long that took."""
    environment = registry.find(ENVIRONMENT)
    functions = [getattr(environment, name) for name in COMPILED if getattr(environment, name) is not None]
    lines = sum(len(inspect.getsource(function).splitlines()) for function in functions)
    lines += len(environment.state.fields) + len(environment.params.fields)
    console.print(f"[bold]1[/bold]  CartPole, {lines} lines of plain Python ({environment.source})")
    before = set(cache_directory().iterdir())
    with console.status("   compiling them for this processor"):
        start = time.perf_counter()
        fleet = velocirl.make_vec(environment, COPIES, seed=0, threads=1)
        assert isinstance(fleet, FleetVectorEnv)  # noqa: S101 - for the type checker: a native environment is a fleet
        fleet.reset()
        fleet.step(fleet.action_space.sample())
        fleet.run_randomly(1)
        seconds = time.perf_counter() - start
    if set(cache_directory().iterdir()) - before:
        console.print(f"   compiled for this processor in [bold]{seconds:.1f} s[/bold]; next time they are loaded")
    else:
        console.print(f"   loaded in [bold]{seconds:.1f} s[/bold], compiled for this processor at an earlier time")
    return fleet
