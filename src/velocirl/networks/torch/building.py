"""Trained networks as torch modules: from a description, or a user's own module."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from velocirl.networks.declared import Groups
from velocirl.networks.encoding import Encoding
from velocirl.networks.specs import NetworkSpec

try:
    import torch
except ImportError as missing:
    raise ImportError('a network of torch, or device="cuda", needs torch: pip install "velocirl[torch]"') from missing

from velocirl.networks.torch.checks import check_module, nondeterministic_operations
from velocirl.networks.torch.conversion import Chains
from velocirl.networks.torch.extractors import build_on_features
from velocirl.networks.torch.modules import Ends, Style, build_module
from velocirl.networks.torch.network import TorchNetwork


class TorchBuilt:
    """Module that learners copy to their device."""

    def __init__(
        self,
        module: Any,
        encoding: Encoding,
        groups: Groups,
        *,
        extra: int,
        name: str,  # for messages
        own: bool,  # whether it is a user's own
        compiled: bool,
    ) -> None:
        columns = tuple(sum(one.size for one in group) for group in groups)
        self.held = TorchNetwork(module, encoding, columns, "cpu", extra=extra)
        self._name, self._own, self._compiled = name, own, compiled
        check_module(self.held, name)

    @property
    def num_parameters(self) -> int:
        """Number of parameters."""
        return self.held.num_parameters

    @property
    def outputs(self) -> int:
        """Number of output columns."""
        return self.held.outputs

    @property
    def state_size(self) -> int:
        """Size of a recurrent module's state; 0 for other modules."""
        return self.held.state_size

    @property
    def undecayed(self) -> NDArray[np.int64]:
        """Ranges of the flat vector without weight decay, (ranges, 2), see `MLP.undecayed`.

        For a user's own module these are its one-dimensional parameters outside of torch's layers.
        """
        module, found, start = self.held.module, [], 0
        free = {id(one) for part in module.modules() if isinstance(part, (Chains, Ends)) for one in part.free}
        for name, shape in self.held.layout():
            stop = start + math.prod(shape)
            if id(module.get_parameter(name)) in free or (self._own and _stands_alone(module, name)):
                found.append((start, stop))
            start = stop
        return np.array(found, np.int64).reshape(-1, 2)

    def initial_parameters(self, generator: np.random.Generator) -> NDArray[np.float32]:  # noqa: ARG002 - as an MLP
        """Return the parameters the module was created with."""
        return self.held.to_host()

    def __call__(self, device: Any, products: torch.dtype | None) -> TorchNetwork:
        """Return a copy of the network on a device."""
        held = self.held
        network = TorchNetwork(
            held.copied_module(), held.encoding, held.columns, device.torch, products, extra=held.extra
        )
        if device.name == "cuda" and self._own:
            _tell_of_chance(network, self._name)
        if self._compiled:
            network.compile()
        return network


def describe_module(
    spec: NetworkSpec, encoding: Encoding, groups: Groups, *, compiled: bool, extra: int, name: str, **style: Any
) -> TorchBuilt:
    """Build the network of a description; `style` is passed to `build_module`."""
    module = build_module(spec, encoding, groups, extra=extra, **style)
    return TorchBuilt(module, encoding, groups, extra=extra, name=name, own=False, compiled=compiled)


def own_module(
    module: Any, encoding: Encoding, groups: Groups, *, compiled: bool, extra: int, setting: str
) -> TorchBuilt:
    """Wrap a user's own module."""
    if not isinstance(module, torch.nn.Module):
        kind = type(module).__name__
        raise TypeError(f"{setting} must be a description such as 'mlp(64, 64)' or a torch.nn.Module, not {kind}")
    name = type(module).__qualname__
    return TorchBuilt(module, encoding, groups, extra=extra, name=name, own=True, compiled=compiled)


def features_module(
    kind: type[Any],
    arguments: Mapping[str, Any],
    space: Space[Any],
    encoding: Encoding,
    groups: Groups,
    hidden: Sequence[Sequence[int]],
    *,
    compiled: bool,
    extra: int,
    **style: Any,
) -> TorchBuilt:
    """Build a user's features extractor, followed by separate hidden layers for each group of columns."""
    module = build_on_features(kind, arguments, space, groups, hidden, extra=extra, style=Style(**style))
    name = f"the network of {kind.__qualname__}"
    return TorchBuilt(module, encoding, groups, extra=extra, name=name, own=True, compiled=compiled)


def _stands_alone(module: Any, name: str) -> bool:
    """Return whether a parameter is a user's own, of one dimension at most, and not part of a torch layer."""
    place = name.rpartition(".")[0]
    owner = module.get_submodule(place)
    if isinstance(owner, (torch.nn.ParameterList, torch.nn.ParameterDict)):
        owner = module.get_submodule(place.rpartition(".")[0])
    return module.get_parameter(name).dim() <= 1 and not type(owner).__module__.startswith("torch.nn.")


def require_apart(modules: Mapping[str, Any]) -> None:
    """Raise if a user's own modules, by their settings, share a trained parameter.

    A network's parameters are one vector, which an optimizer, a target network and a checkpoint use as a whole. Frozen
    parameters may be shared: they never change.
    """
    owners: dict[int, tuple[str, str]] = {}
    for setting, module in modules.items():
        if not isinstance(module, torch.nn.Module):
            continue  # refused where it is built
        for name, one in module.named_parameters():
            if not one.requires_grad:
                continue
            other, its_name = owners.setdefault(id(one), (setting, name))
            if other != setting:
                raise ValueError(
                    f"{name!r} of {setting} is {its_name!r} of {other}, and each network learns parameters of its"
                    f" own: give {setting} a copy, as in copy.deepcopy(encoder)"
                )


def _tell_of_chance(network: TorchNetwork, name: str) -> None:
    """Warn of a user module's operations that are nondeterministic on a GPU; built-in networks have none."""
    chancy = [one for one in nondeterministic_operations(network) if one != "cuBLAS"]  # deterministic on one stream
    if chancy:
        warnings.warn(
            f"{name}: on a GPU {', '.join(chancy)} may round differently each time, so the same seed, or a resumed run,"
            " gives nearly the same parameters and not the very same",
            stacklevel=2,
        )
