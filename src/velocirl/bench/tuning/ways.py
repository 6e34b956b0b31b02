"""Ways to run a training that are worth trying for speed and may affect learning: one line per setting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from velocirl.training.agent import Agent
from velocirl.training.settings.collecting import check_collectors, check_rings

LEAST_MEMORY = 16  # update batches in the smallest replay buffer
COLLECTORS = 2, 4, 8


@dataclass(frozen=True)
class Way:
    """Setting with values to try instead, the condition for trying them, and further settings they need."""

    setting: str
    values: Callable[[Any], list[Any]]  # given a configuration
    where: Callable[[Agent], bool]
    needs: Callable[[Any, Any], dict[str, Any]] = lambda _, __: {}  # given a configuration and a value


def on_gpu(agent: Agent) -> bool:
    """Return whether networks are on a GPU."""
    return getattr(agent.config, "device", None) == "cuda"


def with_torch(agent: Agent) -> bool:
    """Return whether networks run in torch."""
    return on_gpu(agent) or not getattr(agent, "is_native", True)


def can_overlap(agent: Agent) -> bool:
    """Return whether steps and updates may overlap: see `training.on_policy` and `training.off_policy`."""
    native = agent.source.native is not None
    if hasattr(agent.config, "horizon"):
        return on_gpu(agent) or not native
    return native and with_torch(agent)


WAYS = (
    Way("precision", lambda config: ["tf32", "bf16", "fp16"] if config.device == "cuda" else ["bf16"], with_torch),
    Way("compile", lambda _: [True], on_gpu),
    Way(
        "gradient_accumulation",
        lambda config: [2 * config.gradient_accumulation],
        lambda agent: with_torch(agent) and hasattr(agent.config, "batch_size"),
        lambda config, value: {"batch_size": config.effective_batch_size // value},
    ),
    Way(
        "buffer_size",
        lambda config: [config.buffer_size // 4, config.buffer_size // 2, 2 * config.buffer_size],
        lambda agent: hasattr(agent.config, "buffer_size"),
    ),
    Way(
        "overlap",
        lambda _: [True],
        can_overlap,
        lambda config, _: {"estimator": "vtrace"} if hasattr(config, "estimator") else {},
    ),
    Way(
        "collectors",
        lambda _: list(COLLECTORS),
        lambda agent: agent.source.native is None,
        # Collectors have equally many environments; V-trace corrects the policy lag of their rollouts.
        lambda config, value: {
            "num_envs": -(-config.num_envs // value) * value,
            **({"estimator": "vtrace"} if hasattr(config, "estimator") else {}),
        },
    ),
)


def ways_of(agent: Agent) -> Iterator[dict[str, Any]]:
    """Yield changes of an agent's settings, one way at a time."""
    config = agent.config
    for way in WAYS:
        if hasattr(config, way.setting) and way.where(agent):
            for value in way.values(config):
                changes = {way.setting: value, **way.needs(config, value)}
                if _holds_enough({**vars(config), **changes}) and _may_collect(agent, changes):
                    yield changes


def _holds_enough(settings: dict[str, Any]) -> bool:
    """Return whether the replay buffer holds more than a few batches."""
    if "buffer_size" not in settings:
        return True
    batch = settings["batch_size"] * settings["gradient_accumulation"]
    return settings["buffer_size"] >= LEAST_MEMORY * max(batch, settings["num_envs"])


def _may_collect(agent: Agent, changes: dict[str, Any]) -> bool:
    """Return whether the collectors are accepted: other processes may be unable to create the environment."""
    if "collectors" not in changes:
        return True
    try:
        config = replace(agent.config, **changes)
        check_collectors(config, agent.source)
        if hasattr(config, "ring_size"):
            check_rings(config)
    except ValueError:
        return False
    return True
