"""Layer norms on torch with explicit passes.

One agent uses torch's kernel with gains and shifts; several agents have separate ones, applied after it. What the
backward pass needs lies in memory that was allocated once, for CUDA graphs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from velocirl.networks.layer_norm import EPSILON

try:
    import torch
    from torch import Tensor
except ImportError as error:
    raise ImportError('velocirl.networks.torch.layer_norm needs torch: pip install "velocirl[torch]"') from error

_aten = torch.ops.aten


class Moments(NamedTuple):
    """Normalization statistics of rows (..., rows, width), kept for the backward pass."""

    linear: Tensor  # (..., rows, width) before normalization
    mean: Tensor  # (..., rows, 1)
    inverse: Tensor  # (..., rows, 1) inverse standard deviation


@dataclass(slots=True)
class LayerNorm:
    """One layer's norm as views of the flat vectors, which may have a leading dimension for agents."""

    gains: Tensor  # (..., width)
    shifts: Tensor  # (..., width)
    gain_gradient: Tensor  # (..., width)
    shift_gradient: Tensor  # (..., width)

    def room(self, linear: Tensor) -> Moments:
        """Allocate memory for rows of this shape, with statistics in torch's own dtype."""
        _, mean, inverse = self._native(linear)
        return Moments(linear, torch.empty_like(mean), torch.empty_like(inverse))

    def forward(self, kept: Moments, into: Tensor) -> None:
        """Normalize `kept.linear`."""
        weight, bias = (None, None) if self._several else (self.gains, self.shifts)
        out = {"out0": into, "out1": kept.mean, "out2": kept.inverse}
        _aten.native_layer_norm.out(kept.linear, into.shape[-1:], weight, bias, EPSILON, **out)
        if self._several:
            torch.addcmul(self.shifts.unsqueeze(1), into, self.gains.unsqueeze(1), out=into)

    def backward(self, delta: Tensor, kept: Moments, adds: bool) -> Tensor:
        """Return the gradient of the norm's input, given its output's; also write the gains' and shifts'."""
        if self._several:
            normal = (kept.linear - kept.mean).mul_(kept.inverse)
            made, of_gains, of_shifts = self.input_gradient(delta, kept), (delta * normal).sum(-2), delta.sum(-2)
        else:
            made, of_gains, of_shifts = self._descend(delta, kept, self.gains, self.shifts, [True, True, True])
        for gradient, share in ((self.gain_gradient, of_gains), (self.shift_gradient, of_shifts)):
            if adds:
                gradient.add_(share)
            else:
                gradient.copy_(share)
        return made

    def input_gradient(self, delta: Tensor, kept: Moments) -> Tensor:
        """Return the gradient of the norm's input alone."""
        if self._several:
            return self._descend(delta * self.gains.unsqueeze(1), kept, None, None, [True, False, False])[0]
        return self._descend(delta, kept, self.gains, self.shifts, [True, False, False])[0]

    def clear(self) -> None:
        """Set both gradients to zero."""
        self.gain_gradient.zero_()
        self.shift_gradient.zero_()

    @property
    def _several(self) -> bool:
        return self.gains.ndim > 1

    def _native(self, linear: Tensor) -> Any:
        return _aten.native_layer_norm(linear, linear.shape[-1:], None, None, EPSILON)

    def _descend(
        self, delta: Tensor, kept: Moments, weight: Tensor | None, bias: Tensor | None, mask: list[bool]
    ) -> Any:
        return _aten.native_layer_norm_backward(
            delta, kept.linear, delta.shape[-1:], kept.mean, kept.inverse, weight, bias, mask
        )
