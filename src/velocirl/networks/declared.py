"""Networks declared by an algorithm: inputs and outputs of each, target networks, and scalars.

    networks = {
        "actor": Network("observation", gives=policy),
        "critics": Network("observation", "action", gives=two_values, setting="critic"),
        "target_critics": TargetNetwork("critics"),
        "log_temperature": Number("initial_log_temperature"),
    }

Sizes are derived from configuration and spaces when the agent is created.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from velocirl.networks.mlp import MLP, Chain, Segment


@dataclass(frozen=True)
class Columns:
    """Adjacent columns of an output row.

    `free` ones depend on no input: they are parameters with that initial value.
    """

    size: int
    gain: float = 1.0  # gain of the initial weights
    free: float | None = None


Groups = Sequence[Sequence[Columns]]


@dataclass(frozen=True)
class Network:
    """Trained network: the fields it reads, concatenated, and the groups of columns it outputs.

    `gives(agent)` returns groups of columns. Each group has layers of its own, unless the setting named by `together`
    is true. `setting` names the setting that accepts a torch network instead. `layer_norm` is the default for layer
    norms on hidden layers; None: off, or as set for the acting network.
    """

    reads: tuple[str, ...]
    gives: Callable[[Any], Groups]
    together: str | None = None
    setting: str = "network"
    layer_norm: bool | None = None

    def __init__(
        self,
        *reads: str,
        gives: Callable[[Any], Groups],
        together: str | None = None,
        setting: str = "network",
        layer_norm: bool | None = None,
    ) -> None:
        given = {"gives": gives, "together": together, "setting": setting, "layer_norm": layer_norm}
        for name, value in {"reads": reads, **given}.items():
            object.__setattr__(self, name, value)

    @property
    def norm_setting(self) -> str:
        """Name of the setting for layer norms on its hidden layers."""
        return "layer_norm" if self.setting == "network" else f"{self.setting}_layer_norm"


@dataclass(frozen=True)
class TargetNetwork:
    """Target network: a slowly updated copy of a network, initially equal."""

    of: str


@dataclass(frozen=True)
class Number:
    """Learned or computed scalar, saved with the networks; the setting `start` is its initial value.

    With `each`, there is one for each label listed by that setting, and functions receive an array of them.
    """

    start: str
    each: str | None = None


Declared = Network | TargetNetwork | Number


def trained(networks: Mapping[str, Declared]) -> dict[str, Network]:
    """Return the trained networks, in their order."""
    return {name: one for name, one in networks.items() if isinstance(one, Network)}


def native_network(
    inputs: int,
    groups: Groups,
    hidden: tuple[int, ...],
    activation: str,
    initialiser: str,
    *,
    together: bool,
    layer_norm: bool,
    later: tuple[int, ...] | None = None,
) -> MLP:
    """Return a multilayer perceptron that outputs these groups of columns in order.

    Groups after the first have hidden layers of the widths `later`, if given.
    """
    column, dealt = 0, []
    for group in groups:
        segments = []
        for one in group:
            segments.append(Segment(column, one.size, one.gain, one.free))
            column += one.size
        dealt.append(tuple(segments))
    if together:
        dealt = [tuple(segment for segments in dealt for segment in segments)]
    widths = [hidden, *[hidden if later is None else later] * (len(dealt) - 1)]
    chains = tuple(Chain(one, segments) for one, segments in zip(widths, dealt, strict=True))
    return MLP(inputs, chains, activation, initialiser, layer_norm)
