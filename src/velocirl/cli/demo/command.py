"""`velocirl demo`: an agent learns to balance a pole in less than a minute."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from rich.console import Console

import velocirl
from velocirl.cli.demo.strip import show_copies
from velocirl.cli.parsing import Parser, number
from velocirl.engine import registry
from velocirl.monitor.console import make_console
from velocirl.monitor.display import Display
from velocirl.monitor.words import say_count, say_figure, say_seconds
from velocirl.training.outcome import solved_at

ENVIRONMENT = "CartPole-v1"
SEED = 0
EPISODES = 100
NEXT = """\
  velocirl envs               the environments there are; each is one short file
  velocirl train Acrobot-v1   train one, and keep what was learnt
  velocirl train my_env.py    train yours
  velocirl bench              all that is claimed about speed, measured here

  [dim]>>>[/dim] import velocirl
  [dim]>>>[/dim] agent = velocirl.PPO("CartPole-v1").learn(100_000)
  [dim]>>>[/dim] agent.save("cartpole"); print(velocirl.evaluate(agent))
"""


def demo(arguments: Sequence[str]) -> None:
    """Train an agent on CartPole until it is solved, evaluate it, and show it balancing."""
    parser = Parser("demo", "Train an agent on CartPole until it is solved, evaluate it, and show it balancing.")
    parser.add_argument("--seconds", type=number, metavar="SECONDS", help="Seconds of animation (default: 3)")
    seconds = parser.parse(arguments).get("seconds", 3.0)
    if not 0.0 < seconds <= 600.0:
        raise ValueError(f"--seconds must be above 0 and at most 600, got {seconds:g}")
    console = make_console()
    console.print(f"[bold]velocirl {velocirl.__version__}[/bold]  write scalars, run fleets\n")
    console.print(f"[bold]1[/bold]  CartPole, {_lines()} lines of plain Python, learnt by PPO until it is solved")
    agent = _train(console)
    console.print(f"\n[bold]2[/bold]  {EPISODES} episodes with the policy that was learnt")
    console.print(f"   return [bold]{velocirl.evaluate(agent, episodes=EPISODES, seed=0)}[/bold]")
    console.print("\n[bold]3[/bold]  The same policy on three carts with poles that it has never seen")
    show_copies(console, agent, seconds)
    console.print("\n[bold]4[/bold]  Your turn\n")
    console.print(NEXT, soft_wrap=True)


def _lines() -> int:
    """Return the number of lines that define the environment."""
    environment = registry.find(ENVIRONMENT)
    lines = sum(len(inspect.getsource(function).splitlines()) for function in environment.functions.values())
    return lines + len(environment.state.fields) + len(environment.params.fields)


def _train(console: Console) -> velocirl.PPO:
    agent = velocirl.PPO(ENVIRONMENT, seed=SEED)
    display = Display(console, indent="   ")
    threshold = solved_at(ENVIRONMENT)
    try:
        total = agent.preset()["total_steps"]
        agent.learn(total, [velocirl.StopOnReward(float("inf") if threshold is None else threshold), display])
    finally:
        display.end()
    if not console.is_terminal:  # the panel of a terminal has shown it already
        console.print("\n".join(f"   {line}" for line in display.curve(72, 9)), markup=False)
    word = "solved" if agent.stopping else "not solved"
    took, mean = float(agent.metrics["time/time_elapsed"] or 0.0), float(agent.metrics["rollout/ep_rew_mean"] or 0.0)
    console.print(
        f"   [bold]{word} in {say_seconds(took)}[/bold], {say_count(agent.steps)} steps:"
        f" the pole stands for {say_figure(mean)} of 500 steps"
    )
    return agent
