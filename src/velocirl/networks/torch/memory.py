"""Recurrent layers that allow episodes to begin within a sequence.

The input projections of all steps are computed at once. Only the recurrent product runs step by step, written out, so
that a state can be set to zero before any step.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from velocirl.networks.initialisers import initialiser_from

try:
    import torch
    from torch import Tensor, nn
except ImportError as error:
    raise ImportError('velocirl.networks.torch.memory needs torch: pip install "velocirl[torch]"') from error


class Memory(nn.Module):
    """Stacked recurrent layers; a state is one row with the carried values of each layer."""

    gates: ClassVar[int]
    carried: ClassVar[int]  # vectors of `size` numbers that a layer carries on; the first is its output

    def __init__(self, inputs: int, size: int, layers: int, generator: np.random.Generator) -> None:
        super().__init__()
        self.size, self.state_size = size, layers * self.carried * size
        self.project = nn.ModuleList()
        self.recur = nn.ParameterList()
        for layer in range(layers):
            width = size if layer else inputs
            weights = self._gate_by_gate(generator, width)
            projection = nn.Linear(width, self.gates * size, device="meta").to_empty(device="cpu")
            with torch.no_grad():
                projection.weight.copy_(weights.T)
                projection.bias.zero_()
            self.project.append(projection)
            self.recur.append(nn.Parameter(self._gate_by_gate(generator, size)))

    def forward(self, features: Tensor, starts: Tensor | None, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return outputs (steps, rows, size) and the last state, given features (steps, rows, inputs) and a state."""
        keeps = None if starts is None else (1.0 - starts.float()).unsqueeze(-1)
        lasts: list[Tensor] = []
        states = state.split(self.carried * self.size, dim=1)
        for project, recurrent, begin in zip(self.project, self.recur, states, strict=True):
            carried = begin.split(self.size, dim=1)
            outputs: list[Tensor] = []
            for step, projected in enumerate(project(features).unbind()):
                if keeps is not None:
                    carried = tuple(one * keeps[step] for one in carried)
                carried = self.cell(projected, recurrent, *carried)
                outputs.append(carried[0])
            features = torch.stack(outputs)
            lasts.extend(carried)
        return features, torch.cat(lasts, dim=1)

    @abstractmethod
    def cell(self, projected: Tensor, recurrent: Tensor, *carried: Tensor) -> tuple[Tensor, ...]:
        """Compute one step: the carried values, from the projected input (rows, gates * size) and the previous ones."""

    def _gate_by_gate(self, generator: np.random.Generator, inputs: int) -> Tensor:
        initialise = initialiser_from("orthogonal")
        gates = [initialise(generator, inputs, self.size, 1.0) for _ in range(self.gates)]
        return torch.from_numpy(np.concatenate(gates, axis=1))


class LSTM(Memory):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997; Gers et al., 2000).

    With the gates i, f, o and the candidate g: cell' = f cell + i g and hidden' = o tanh(cell'). The initial bias of f
    is 1, so that a new network remembers.
    """

    gates, carried = 4, 2

    def __init__(self, inputs: int, size: int, layers: int, generator: np.random.Generator) -> None:
        super().__init__(inputs, size, layers, generator)
        for projection in self.project:
            assert isinstance(projection, nn.Linear)  # noqa: S101 - for the type checker
            nn.init.ones_(projection.bias[size : 2 * size])

    def cell(self, projected: Tensor, recurrent: Tensor, *carried: Tensor) -> tuple[Tensor, ...]:
        """Compute one step of (hidden, cell); the gates are in the order i, f, o, g."""
        hidden, cell = carried
        both = torch.addmm(projected, hidden, recurrent)
        enter, forget, leave = torch.sigmoid(both[:, : 3 * self.size]).chunk(3, dim=1)
        cell = forget * cell + enter * torch.tanh(both[:, 3 * self.size :])
        return leave * torch.tanh(cell), cell


class GRU(Memory):
    """Gated recurrent unit (Cho et al., 2014), with the reset after the product.

    With the gates r and z and the candidate n = tanh(W x + b + r (U hidden)): hidden' = n + z (hidden - n).
    """

    gates, carried = 3, 1

    def cell(self, projected: Tensor, recurrent: Tensor, *carried: Tensor) -> tuple[Tensor, ...]:
        """Compute one step of (hidden,); the gates are in the order r, z, n."""
        (hidden,) = carried
        remembered = hidden @ recurrent
        gates = 2 * self.size
        reset, update = torch.sigmoid(projected[:, :gates] + remembered[:, :gates]).chunk(2, dim=1)
        candidate = torch.tanh(projected[:, gates:] + reset * remembered[:, gates:])
        return (candidate + update * (hidden - candidate),)
