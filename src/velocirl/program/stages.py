"""Stages: the words in which an algorithm says what an update is, from top to bottom as its paper's pseudo-code does.

    update = (
        forward("target_values", "next_observation"),
        forward("values", "observation"),
        each(loss_gradient),
        backward("values"),
        step("values"),
        every("target_every", follow("target_values", "values", "tau")),
    )

Rows of the batch go through `forward`, `each` and `backward` independently of each other. They meet where something is
to be known of all of them: at a `step` of an optimiser, a `mean`, a `once` or a `stop`. A scalar function says by the
names of its arguments what it wants:

    head           how the algorithm reads an output as an action; always the first argument
    values, ...    the output row of a network, by the name of its `forward`
    row            the sample itself: what is stored of it, and what earlier stages wrote into it
    gradient       d loss / d output, to be written for the `backward` that follows; or by name, `values_gradient`
    new_action_slope   d loss / d new_action, from an earlier `backward(..., into="new_action")`
    metrics        what is added to a field of it is averaged over the batch and shown
    means          those averages, from the next meeting on
    numbers        learnt and saved numbers, such as a temperature
    settings       the configuration
    episodes       those that ended in a rollout, or since the last time: their `count`, and the mean of their `costs`
                   by constraint; for a `once` of `estimate` or `decide`
    rng            a stream of random numbers of its own
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Forward:
    """Let a network read fields of each row; its output is known by `name`."""

    network: str
    reads: tuple[str, ...]
    name: str
    rows: int | str = 1  # rows of each sample: a number, or the setting that says it

    def __str__(self) -> str:
        return f"forward({', '.join(map(repr, (self.network, *self.reads)))})"


@dataclass(frozen=True)
class Each:
    """Call a scalar function for each row."""

    function: Callable[..., Any]

    def __str__(self) -> str:
        return f"each({self.function.__name__})"


@dataclass(frozen=True)
class Backward:
    """The gradient of a network's parameters, from that of its output; or that of a field that it read, `into`."""

    name: str
    into: str | None = None

    def __str__(self) -> str:
        return f"backward({self.name!r}{f', into={self.into!r}' if self.into else ''})"


@dataclass(frozen=True)
class Mean:
    """All rows meet: what was added to metrics so far is known as means; `then(means)` derives more from them."""

    then: Callable[..., Any] | None = None

    def __str__(self) -> str:
        return "mean"


@dataclass(frozen=True)
class Step:
    """A step of the optimiser along the mean gradient of a network."""

    network: str

    def __str__(self) -> str:
        return f"step({self.network!r})"


@dataclass(frozen=True)
class Once:
    """Call a scalar function of means, numbers and settings once; what it gives is the gradient of a number."""

    function: Callable[..., Any]
    steps: str | None = None

    def __str__(self) -> str:
        return f"once({self.function.__name__})"


@dataclass(frozen=True)
class Stop:
    """End the update where a scalar function of means and settings says so; the step that follows is not taken."""

    function: Callable[..., Any]

    def __str__(self) -> str:
        return f"stop({self.function.__name__})"


@dataclass(frozen=True)
class Follow:
    """Let a target network come closer to its network, by the share that a setting says."""

    target: str
    source: str
    share: str

    def __str__(self) -> str:
        return f"follow({self.target!r}, {self.source!r}, {self.share!r})"


@dataclass(frozen=True)
class Every:
    """Stages of every so many updates only; a setting says how many."""

    setting: str
    stages: tuple[Stage, ...]

    def __str__(self) -> str:
        return f"every({self.setting!r}, ...)"


@dataclass(frozen=True)
class When:
    """Stages that are there only where a setting is true, and others where it is not."""

    setting: str
    stages: tuple[Stage, ...]
    otherwise: tuple[Stage, ...] = ()

    def __str__(self) -> str:
        return f"when({self.setting!r}, ...)"


@dataclass(frozen=True)
class Column:
    """Call a scalar function for each copy's column in time; `names` says where its arguments are other fields."""

    function: Callable[..., Any]
    names: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"column({self.function.__name__})"


Stage = Forward | Each | Backward | Mean | Step | Once | Stop | Follow | Every | When | Column


def forward(network: str, *reads: str, name: str | None = None, rows: int | str = 1) -> Forward:
    """Let a network read fields of each row. With `rows`, each sample has so many: the fields have as many rows."""
    return Forward(network, reads, name or network, rows)


def each(function: Callable[..., Any]) -> Each:
    """Call a scalar function for each row."""
    return Each(function)


def backward(name: str, into: str | None = None) -> Backward:
    """Go back through a forward pass: to the parameters, or `into` a field that it read."""
    return Backward(name, into)


def mean(function: Callable[..., Any], then: Callable[..., Any] | None = None) -> tuple[Stage, ...]:
    """Call a function for each row whose metrics are needed as means from here on; `then(means)` derives from them."""
    return Each(function), Mean(then)


def step(network: str) -> Step:
    """A step of a network's optimiser."""
    return Step(network)


def once(function: Callable[..., Any], steps: str | None = None) -> Once:
    """Call a function once for all rows; with `steps`, it gives the gradient of that number, which takes a step."""
    return Once(function, steps)


def stop(function: Callable[..., Any]) -> Stop:
    """End the update where the function says so."""
    return Stop(function)


def follow(target: str, source: str, share: str) -> Follow:
    """Let a target network come closer to its network."""
    return Follow(target, source, share)


def every(setting: str, *stages: Any) -> Every:
    """Stages of every so many updates only."""
    return Every(setting, flat(stages))


def when(setting: str, *stages: Any, otherwise: tuple[Any, ...] = ()) -> When:
    """Stages that are there only where a setting is true."""
    return When(setting, flat(stages), flat(otherwise))


def column(function: Callable[..., Any], **names: str) -> Column:
    """Call a function for each copy's column in time: its arguments are fields, arrays over the steps of a rollout."""
    return Column(function, names)


def flat(stages: tuple[Any, ...]) -> tuple[Stage, ...]:
    """Stages one after the other; some words give several."""
    return tuple(one for stage in stages for one in (flat(stage) if isinstance(stage, tuple) else (stage,)))
