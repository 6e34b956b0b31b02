"""The networks that an algorithm declares: what each reads and gives, target networks, and single numbers.

    networks = {
        "actor": Network("observation", gives=policy),
        "critics": Network("observation", "action", gives=two_values, setting="critic"),
        "target_critics": TargetNetwork("critics"),
        "log_temperature": Number("initial_log_temperature"),
    }

Of which size they are follows from the configuration and the spaces when an agent is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from velocirl.networks.mlp import MLP, Chain, Segment


@dataclass(frozen=True)
class Columns:
    """Neighbouring columns of an output row. `free` ones depend on no input: they begin at that value."""

    size: int
    gain: float = 1.0  # of the initial weights
    free: float | None = None


Groups = Sequence[Sequence[Columns]]


@dataclass(frozen=True)
class Network:
    """A network that learns: the fields that it reads side by side, and the groups of columns that it gives.

    `gives(agent)` are groups of columns. Each group has layers of its own, unless `together` names a setting that says
    otherwise. `setting` names the one by which a torch network can be given in its place. `layer_norm` is whether its
    hidden layers are normalised where no setting says so; None: no, or as the setting of the network that acts says.
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
        """The setting that says whether its hidden layers are normalised."""
        return "layer_norm" if self.setting == "network" else f"{self.setting}_layer_norm"


@dataclass(frozen=True)
class TargetNetwork:
    """A copy of a network that follows it slowly; it begins alike."""

    of: str


@dataclass(frozen=True)
class Number:
    """A number that is learnt or computed, saved with the rest; a setting says where it begins.

    With `each`, there is one for each of the labels that this setting lists, and functions see an array of them.
    """

    start: str
    each: str | None = None


Declared = Network | TargetNetwork | Number


def trained(networks: Mapping[str, Declared]) -> dict[str, Network]:
    """The networks that learn, in their order."""
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
    """A multilayer perceptron that gives these groups of columns one after the other.

    Groups after the first have hidden layers of the widths `later`, where these differ.
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
