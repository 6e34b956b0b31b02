"""Stages: the vocabulary of an algorithm's update, written from top to bottom like a paper's pseudocode.

    update = (
        forward("target_values", "next_observation"),
        forward("values", "observation"),
        each(loss_gradient),
        backward("values"),
        step("values"),
        every("target_every", follow("target_values", "values", "tau")),
    )

Rows of the batch pass through `forward`, `each` and `backward` independently of each other. A reduction over all rows
takes place at a `step` of an optimizer, a `mean`, a `once` or a `stop`. The argument names of a scalar function select
its inputs:

    head           action head: maps the policy's output to an action; always the first argument
    values, ...    output row of a network, by the name of its `forward`
    row            the sample itself: its stored fields, and the fields written by earlier stages
    gradient       d loss / d output, written for the `backward` that follows; or by name, `values_gradient`
    new_action_slope   d loss / d new_action, from an earlier `backward(..., into="new_action")`
    metrics        values added to its fields are averaged over the batch and reported
    means          these averages, available from the next reduction on
    numbers        learned and saved scalars, such as a temperature
    settings       the configuration
    episodes       episodes that ended in a rollout, or since the last call: their `count`, and the mean of their
                   `costs` by constraint; for a `once` of `estimate` or `decide`
    rng            a separate random stream
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Forward:
    """Forward pass of a network that reads fields of each row; `name` identifies its output."""

    network: str
    reads: tuple[str, ...]
    name: str
    rows: int | str = 1  # rows per sample: a number, or the name of a setting

    def __str__(self) -> str:
        return f"forward({', '.join(map(repr, (self.network, *self.reads)))})"


@dataclass(frozen=True)
class Each:
    """Call of a scalar function for each row."""

    function: Callable[..., Any]

    def __str__(self) -> str:
        return f"each({self.function.__name__})"


@dataclass(frozen=True)
class Backward:
    """Backward pass: gradient of a network's parameters, or with `into` of a field that the network read."""

    name: str
    into: str | None = None

    def __str__(self) -> str:
        return f"backward({self.name!r}{f', into={self.into!r}' if self.into else ''})"


@dataclass(frozen=True)
class Mean:
    """Reduction over all rows: metrics added so far become means; `then(means)` derives more from them."""

    then: Callable[..., Any] | None = None

    def __str__(self) -> str:
        return "mean"


@dataclass(frozen=True)
class Step:
    """Optimizer step along the mean gradient of a network."""

    network: str

    def __str__(self) -> str:
        return f"step({self.network!r})"


@dataclass(frozen=True)
class Once:
    """One call of a scalar function of means, numbers and settings; with `steps`, it returns that number's gradient."""

    function: Callable[..., Any]
    steps: str | None = None

    def __str__(self) -> str:
        return f"once({self.function.__name__})"


@dataclass(frozen=True)
class Stop:
    """Early end of the update if a scalar function of means and settings returns true; the next step is not taken."""

    function: Callable[..., Any]

    def __str__(self) -> str:
        return f"stop({self.function.__name__})"


@dataclass(frozen=True)
class Follow:
    """Polyak averaging: moves a target network toward its network by a fraction; the setting `share` holds it."""

    target: str
    source: str
    share: str

    def __str__(self) -> str:
        return f"follow({self.target!r}, {self.source!r}, {self.share!r})"


@dataclass(frozen=True)
class Every:
    """Stages that run in every N-th update only; a setting holds N."""

    setting: str
    stages: tuple[Stage, ...]

    def __str__(self) -> str:
        return f"every({self.setting!r}, ...)"


@dataclass(frozen=True)
class When:
    """Stages included only if a setting is true; `otherwise` is included if it is false."""

    setting: str
    stages: tuple[Stage, ...]
    otherwise: tuple[Stage, ...] = ()

    def __str__(self) -> str:
        return f"when({self.setting!r}, ...)"


@dataclass(frozen=True)
class Column:
    """Call of a scalar function for each environment's time column; `names` maps arguments to other fields."""

    function: Callable[..., Any]
    names: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"column({self.function.__name__})"


Stage = Forward | Each | Backward | Mean | Step | Once | Stop | Follow | Every | When | Column


def forward(network: str, *reads: str, name: str | None = None, rows: int | str = 1) -> Forward:
    """Run a network on fields of each row. With `rows`, each sample has that many rows, and so have its fields."""
    return Forward(network, reads, name or network, rows)


def each(function: Callable[..., Any]) -> Each:
    """Call a scalar function for each row."""
    return Each(function)


def backward(name: str, into: str | None = None) -> Backward:
    """Backpropagate through a forward pass: to the parameters, or `into` a field that the network read."""
    return Backward(name, into)


def mean(function: Callable[..., Any], then: Callable[..., Any] | None = None) -> tuple[Stage, ...]:
    """Call a function for each row, then average its metrics over all rows; `then(means)` derives more means."""
    return Each(function), Mean(then)


def step(network: str) -> Step:
    """Take a step of a network's optimizer."""
    return Step(network)


def once(function: Callable[..., Any], steps: str | None = None) -> Once:
    """Call a function once for all rows; with `steps`, it returns the gradient of that number, which takes a step."""
    return Once(function, steps)


def stop(function: Callable[..., Any]) -> Stop:
    """End the update if the function returns true."""
    return Stop(function)


def follow(target: str, source: str, share: str) -> Follow:
    """Move a target network toward its network (Polyak averaging)."""
    return Follow(target, source, share)


def every(setting: str, *stages: Any) -> Every:
    """Run stages in every N-th update only, with N from a setting."""
    return Every(setting, flat(stages))


def when(setting: str, *stages: Any, otherwise: tuple[Any, ...] = ()) -> When:
    """Include stages only if a setting is true."""
    return When(setting, flat(stages), flat(otherwise))


def column(function: Callable[..., Any], **names: str) -> Column:
    """Call a function for each environment's time column; its arguments are fields, arrays over a rollout's steps."""
    return Column(function, names)


def flat(stages: tuple[Any, ...]) -> tuple[Stage, ...]:
    """Flatten nested tuples of stages; some constructors return several."""
    return tuple(one for stage in stages for one in (flat(stage) if isinstance(stage, tuple) else (stage,)))
