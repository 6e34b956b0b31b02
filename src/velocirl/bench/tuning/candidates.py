"""Candidates: every shape of learning with every way to run it on this machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from velocirl.bench.tuning.shapes import Changes, distance, doublings, shapes_of, without
from velocirl.training.agent import Agent
from velocirl.training.settings.device_choice import no_cuda

REFERENCE = "reference"
BOUND_TO_DEVICE = {
    "device",
    "precision",
    "compile",
    "overlap",
}  # settings that may be valid on one device only


@dataclass(frozen=True)
class Candidate:
    """Settings of a candidate, as differences from the reference."""

    learning: Mapping[str, Any] = field(default_factory=dict)  # differences that may affect learning
    running: Mapping[str, Any] = field(default_factory=dict)  # differences that cannot affect it: where training runs
    fixed: Mapping[str, Any] = field(default_factory=dict)  # where training runs, different or not
    distance: float = 0.0  # of `learning` from the reference

    @property
    def name(self) -> str:
        """Differences from the reference, as `name=value`."""
        changes = {**self.learning, **self.running}
        return " ".join(f"{name}={_word(value)}" for name, value in changes.items()) or REFERENCE

    @property
    def shape(self) -> str:
        """Differences that may affect learning, as `name=value`."""
        return Candidate(self.learning).name

    @property
    def is_reference(self) -> bool:
        """True if nothing differs."""
        return not self.learning and not self.running

    @property
    def is_neutral(self) -> bool:
        """True if no difference can affect learning."""
        return not self.learning

    @property
    def settings(self) -> dict[str, Any]:
        """Settings for an agent."""
        return {**self.fixed, **self.learning, **self.running}


def candidates_for(agent: Agent, fixed: Iterable[str], total_steps: int | None, cores: int) -> list[Candidate]:
    """Return the candidates: the reference first, then the others by distance from it.

    Settings in `fixed` are never changed. Without `total_steps`, no candidate may affect learning.
    """
    names = set(fixed)
    shapes: list[Changes] = [{}]
    if total_steps is not None:
        shapes += without(shapes_of(agent, total_steps, cores), names)
    now = _place(agent)
    found = []
    for shape, place in product(shapes, _places(agent, names, cores)):
        copies = shape.get("num_envs", getattr(agent.config, "num_envs", 1))
        # Threads or workers without an environment of their own would only duplicate another candidate.
        if max(place.get("threads") or 1, place.get("workers") or 1) > copies and place != now:
            continue
        if shape.get("collectors") and place.get("workers"):  # both are processes that step environments
            continue
        if place.get("device") != now.get("device") and not BOUND_TO_DEVICE.isdisjoint(shape):
            continue
        running = {name: value for name, value in place.items() if now[name] != value}
        found.append(Candidate(shape, running, place, distance(agent.config, shape)))
    return sorted(found, key=lambda one: (one.distance, len(one.running), len(one.learning)))


def _place(agent: Agent) -> Changes:
    """Return where an agent computes; empty for tabular agents, for which it is part of learning."""
    names = () if hasattr(agent.config, "storage") else ("threads", "device", "workers")
    return {name: getattr(agent.config, name) for name in names if hasattr(agent.config, name)}


def _places(agent: Agent, fixed: set[str], cores: int) -> list[Changes]:
    """Return the places where the agent could compute, its own first."""
    now = _place(agent)
    if not now:
        return [{}]
    native = agent.source.native is not None
    devices = [now["device"]]
    if BOUND_TO_DEVICE.isdisjoint(fixed):
        usable = native and no_cuda() is None
        devices += [other for other in ("cpu", "cuda") if other != now["device"] and (other == "cpu" or usable)]
    threads = [now["threads"]] if "threads" in fixed else doublings(cores)
    workers = [now["workers"]]
    if not native and "workers" not in fixed:
        workers += [0, *(count for count in doublings(cores) if count > 1)]
    found = [now]
    for device, count, processes in product(devices, threads, workers):
        # On a GPU, CPU threads have almost no effect.
        place = {"threads": now["threads"] if device == "cuda" else count, "device": device, "workers": processes}
        if place not in found:
            found.append(place)
    return found


def _word(value: Any) -> str:
    return "none" if value is None else str(value)
