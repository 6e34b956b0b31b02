"""An agent that trains nothing: what displays look at, and no more."""

from collections import deque
from types import SimpleNamespace

from velocirl.training.persistence import Goal


def agent_at(steps=0, total=100_000, **metrics):
    return SimpleNamespace(
        steps=steps,
        iterations=steps // 100,
        goal=Goal(0, total),
        metrics=metrics,
        source=SimpleNamespace(id="CartPole-v1"),
        name="ppo",
        counted="steps",
        device_reason="",
        network_reason="",
        config=SimpleNamespace(seed=7),
        recent=SimpleNamespace(returns=deque(maxlen=100)),
    )


def advance(agent, **metrics):
    agent.steps += 100
    agent.iterations += 1
    agent.metrics = {"time/fps": 1_234_567.0, **metrics}
