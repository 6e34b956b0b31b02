"""Agent descriptions: configuration, progress and results as one line, several lines or HTML."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from velocirl.monitor.words import averaged

if TYPE_CHECKING:
    from velocirl.training.agent import Agent


def facts_of(agent: Agent) -> dict[str, str]:
    """Collect the facts about an agent, by name."""
    goal, returns = agent.goal, agent.recent.returns
    steps = f"{agent.steps:,}" if goal is None else f"{agent.steps:,} of {goal.stop:,}"
    facts = {
        "environment": agent.source.id,
        **agent.parts(),
        "seed": str(agent.seed),
        agent.counted: steps if agent.steps else "none yet",
    }
    if returns:
        facts["return"] = f"{np.mean(returns):,.4g}, {averaged(len(returns))}"
    return facts


def as_line(agent: Agent) -> str:
    """Format one line: <PPO on CartPole-v1, 64x64 tanh, cpu, 100,352 of 100,000 steps, return 481>."""
    facts = facts_of(agent)
    said = [f"{type(agent).__name__} on {facts['environment']}", *agent.parts().values()]
    said.append(f"no {agent.counted} yet" if not agent.steps else f"{facts[agent.counted]} {agent.counted}")
    if "return" in facts:
        said.append(f"return {facts['return'].partition(', ')[0]}")
    return f"<{', '.join(said)}>"


def as_lines(agent: Agent) -> str:
    """Format several lines, one fact on each."""
    facts = facts_of(agent)
    width = max(map(len, facts))
    return "\n".join([type(agent).__name__, *(f"  {name:<{width}}  {fact}" for name, fact in facts.items())])


def as_html(agent: Agent) -> str:
    """Format a small table; text from environments and files is escaped."""
    from velocirl.monitor.markup import facts_table  # needed in notebooks only

    return facts_table(type(agent).__name__, facts_of(agent))
