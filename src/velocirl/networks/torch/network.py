"""Torch module for a learner: all its parameters in one vector, all their gradients in another.

Contract of a module, built-in or user-defined: `forward(observation)` takes a float32 tensor (rows, *shape), or for
Dict and Tuple spaces a dict of tensors by the names of the parts. A critic's `forward(observation, action)` also takes
the action, (rows, numbers) within [-1, 1].

It returns a tensor (rows, outputs):

- PPO: the policy's columns and then the value, or a tuple of both, (rows, head.outputs) and (rows,) or (rows, 1);
  the policy's columns are the logits of all choices, then means and log standard deviations of all numbers;
- DQN: a column for each action, with dueling the value too;
- two critics: their values, which should share no parameters.

A recurrent module has an integer `state_size`, and its `forward(observation, state)` returns (outputs, next state). A
state is (rows, state_size), zeros where an episode begins. It may have `unroll(observation, starts, state)` for (steps,
rows, ...) at once, which returns (steps, rows, outputs). There `starts` (steps, rows) marks the steps at which episodes
begin.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from velocirl.networks.encoding import Encoding

try:
    import torch
    from torch import Tensor, nn
    from torch.nn.modules.batchnorm import _BatchNorm
except ImportError as error:
    raise ImportError('velocirl.networks.torch.network needs torch: pip install "velocirl[torch]"') from error


class FlatVectors:
    """Parameters and their gradient as two vectors, or as matrices with a row for each of several agents."""

    takes_statistics = False

    def __init__(self, shape: tuple[int, ...], device: torch.device) -> None:
        self.device = device
        self.parameters = torch.zeros(shape, device=device)
        self.gradient = torch.zeros(shape, device=device)
        self._slot: str | None = None  # name under which a pass keeps what `backward` needs; None keeps nothing
        self._reads_back = False  # whether a pass keeps what `input_gradient` needs

    @property
    def num_parameters(self) -> int:
        """Number of parameters of one agent."""
        return self.parameters.shape[-1]

    @contextmanager
    def learning(self, slot: str = "") -> Iterator[None]:
        """Keep what `backward` needs of passes within this context; several are kept if each has its own `slot`."""
        before, self._slot = self._slot, slot
        try:
            yield
        finally:
            self._slot = before

    @contextmanager
    def reading_back(self, slot: str = "") -> Iterator[None]:
        """Keep what `input_gradient` needs of passes within this context, too."""
        before, self._reads_back = self._reads_back, True
        try:
            with self.learning(slot):
                yield
        finally:
            self._reads_back = before

    def clear(self) -> None:
        """Set the gradient to zero."""
        self.gradient.zero_()

    def parameters_from(self, values: NDArray[np.float32]) -> None:
        """Set the parameters from a host array."""
        if values.shape != tuple(self.parameters.shape) or values.dtype != np.float32:
            wanted = tuple(self.parameters.shape)
            raise ValueError(f"parameters must be float32 {wanted}, got {values.dtype} {values.shape}")
        self.parameters.copy_(torch.from_numpy(np.array(values)))

    def to_host(self) -> NDArray[np.float32]:
        """Return a copy of the parameters on the host."""
        return self.parameters.detach().cpu().numpy().copy()


class TorchNetwork(FlatVectors):
    """Module whose parameters and gradients are views of two vectors; frozen parameters are kept as buffers."""

    def __init__(
        self,
        module: nn.Module,
        encoding: Encoding,
        columns: tuple[int, ...],  # of its outputs, in groups that it may return separately
        device: str | torch.device = "cpu",
        autocast: torch.dtype | None = None,
        *,
        extra: int = 0,  # number of inputs besides the observation
    ) -> None:
        if autocast not in (None, torch.bfloat16, torch.float16):
            raise ValueError(f"autocast must be None, torch.bfloat16 or torch.float16, got {autocast}")
        _require_real(module)
        self.module = module.float().to(device)
        self.name = type(module).__name__
        self._trained = {name: one for name, one in module.named_parameters() if one.requires_grad}
        super().__init__((sum(one.numel() for one in self._trained.values()),), torch.device(device))
        self.encoding, self.columns, self.autocast, self.extra = encoding, columns, autocast, extra
        self.outputs = sum(columns)
        self.state_size = _state_size(module)
        self._call: Any = module
        self._unroll: Any = getattr(module, "unroll", None)
        self._compiled: dict[str, Any] | None = None
        self._kept: dict[str, Tensor] = {}  # the outputs of passes under learning()
        self._read: dict[str, Tensor] = {}  # the inputs of passes under reading_back()
        # Batch statistics update only where gradients are computed; acting and target networks use the current ones.
        self._norms = {
            name: one for name, one in module.named_modules() if isinstance(one, _BatchNorm) and one.training
        }
        for one in self._norms.values():
            one.eval()
        self._adopt()

    def forward(self, inputs: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Return the outputs (rows, outputs) for inputs (rows, encoding.inputs), and the next recurrent state."""
        if self._reads_back and self._slot is not None:
            self._read[self._slot] = inputs = inputs.detach().requires_grad_()
        with torch.set_grad_enabled(self._slot is not None), self._precision(), self._statistics():
            outputs, next_state = self._step(inputs, state)
        return self._keep(outputs), None if next_state is None else next_state.detach()

    def unroll(self, inputs: Tensor, starts: Tensor, state: Tensor | None = None) -> Tensor:
        """Return the outputs (steps, rows, outputs) for inputs (steps, rows, inputs), from the initial `state`.

        Where `starts` (steps, rows) is true an episode begins, and the state is zero before that step.
        """
        steps, rows = inputs.shape[:2]
        with torch.set_grad_enabled(self._slot is not None), self._precision(), self._statistics():
            if not self.state_size:
                outputs, _ = self._step(inputs.flatten(0, 1), None)
                outputs = outputs.unflatten(0, (steps, rows))
            elif self._unroll is not None:
                result = self._unroll(self._split(inputs), starts, self._state(state, rows))
                outputs = self._join(result, (steps, rows))
            else:
                outputs = self._unroll_stepwise(inputs, starts, self._state(state, rows))
        return self._keep(outputs)

    def backward(self, output_gradient: Tensor, accumulate: bool = False, slot: str = "") -> None:
        """Write the gradient of the parameters, or add to it, for the last pass made under `learning(slot)`."""
        if slot not in self._kept:
            raise RuntimeError("backward needs a pass before it, made within `with network.learning():`")
        if not accumulate:
            self.clear()
        # Each parameter already has a gradient, so that autograd adds to it in place and rebinds nothing.
        self._kept.pop(slot).backward(output_gradient)

    def input_gradient(self, output_gradient: Tensor, slot: str = "") -> Tensor:
        """Return the gradient of the inputs alone, for the last pass made under `reading_back(slot)`."""
        if slot not in self._kept or slot not in self._read:
            raise RuntimeError("input_gradient needs a pass before it, made within `with network.reading_back():`")
        return torch.autograd.grad(self._kept.pop(slot), self._read.pop(slot), output_gradient)[0]

    @property
    def depends_on_parameters(self) -> bool:
        """True if the outputs of the last pass under `learning()` depend on a parameter, according to autograd."""
        return "" in self._kept and self._kept[""].requires_grad

    def compile(self, **options: Any) -> None:
        """Compile the module's calls by torch.compile, with its options."""
        self._compiled = options
        self._call = torch.compile(self.module, **options)
        if hasattr(self.module, "unroll"):
            unroll: Any = self.module.unroll
            self._unroll = torch.compile(unroll, **options)

    def buffers(self) -> dict[str, NDArray[Any]]:
        """Return the module's buffers and frozen parameters; copies on the host."""
        return {name: buffer.detach().cpu().numpy().copy() for name, buffer in self._kept_apart().items()}

    def load_buffers(self, buffers: Mapping[str, NDArray[Any]]) -> None:
        """Load buffers from the result of `buffers`."""
        own = self._kept_apart()
        if buffers.keys() != own.keys():
            raise ValueError(f"the module's buffers are {sorted(own)}, got {sorted(buffers)}")
        for name, buffer in own.items():
            if buffers[name].shape != tuple(buffer.shape):
                raise ValueError(f"buffer {name} has shape {tuple(buffer.shape)}, got {buffers[name].shape}")
            buffer.detach().copy_(torch.from_numpy(np.array(buffers[name])))

    @property
    def takes_statistics(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """True if learning changes buffers: the statistics of batch norms."""
        return bool(self._norms)

    def buffers_from(self, other: TorchNetwork) -> None:
        """Copy the buffers of another network of the same module, on the device."""
        theirs = other._kept_apart()
        for name, buffer in self._kept_apart().items():
            buffer.detach().copy_(theirs[name])

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """Suspend the updates of batch statistics within this context."""
        norms, self._norms = self._norms, {}
        try:
            yield
        finally:
            self._norms = norms

    def layout(self) -> list[tuple[str, tuple[int, ...]]]:
        """Return names and shapes of the arrays in the vector, in order."""
        return [(name, tuple(one.shape)) for name, one in self._trained.items()]

    def copied_module(self) -> nn.Module:
        """Return an independent copy of the module, in its original state of training."""
        module = copy.deepcopy(self.module)
        for name in self._norms:
            module.get_submodule(name).train()
        return module

    def twin(self) -> Self:
        """Return an independent copy."""
        twin = type(self)(
            self.copied_module(), self.encoding, self.columns, self.device, self.autocast, extra=self.extra
        )
        if self._compiled is not None:
            twin.compile(**self._compiled)
        return twin

    def _adopt(self) -> None:
        """Move the parameters and gradients into the vectors, and make them views of these."""
        start = 0
        for one in self._trained.values():
            place = slice(start, start + one.numel())
            start = place.stop
            self.parameters[place].copy_(one.detach().reshape(-1))
            one.data = self.parameters[place].view(one.shape)
            one.grad = self.gradient[place].view(one.shape)

    def _step(self, inputs: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor | None]:
        rows, width = len(inputs), self.encoding.inputs
        observation = self._split(inputs[..., :width])
        if not self.state_size:
            more = (inputs[..., width:],) if self.extra else ()
            return self._join(self._call(observation, *more), (rows,)), None
        result = self._call(observation, self._state(state, rows))
        if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], Tensor):
            raise ValueError(f"{self.name} has a state_size, so its forward must give a tuple (outputs, next_state)")
        if result[1].shape != (rows, self.state_size):
            raise ValueError(
                f"the next state of {self.name} must have the shape (rows, state_size) = {(rows, self.state_size)}, got"
                f" {tuple(result[1].shape)}"
            )
        return self._join(result[0], (rows,)), result[1].float()

    def _join(self, result: Any, leading: tuple[int, ...]) -> Tensor:
        return join_outputs(result, leading, self.columns, self.name)

    def _unroll_stepwise(self, inputs: Tensor, starts: Tensor, state: Tensor) -> Tensor:
        outputs: list[Tensor] = []
        for seen, begins in zip(inputs, starts, strict=True):
            output, following = self._step(seen, state * (1.0 - begins.float()).unsqueeze(-1))
            outputs.append(output)
            assert following is not None  # noqa: S101 - it is recurrent
            state = following
        return torch.stack(outputs)

    def _split(self, inputs: Tensor) -> Tensor | dict[str, Tensor]:
        parts = self.encoding.parts
        if len(parts) == 1 and not parts[0].name:
            return inputs.unflatten(-1, parts[0].shape)
        leading = inputs.shape[:-1]
        return {
            part.name: inputs[..., part.start : part.start + part.size].reshape(*leading, *part.shape) for part in parts
        }

    def _state(self, state: Tensor | None, rows: int) -> Tensor:
        return torch.zeros((rows, self.state_size), device=self.device) if state is None else state

    def _precision(self) -> torch.autocast:
        return torch.autocast(self.device.type, self.autocast or torch.bfloat16, enabled=self.autocast is not None)

    def _statistics(self) -> AbstractContextManager[None]:
        """Return a context in which batch norms update their statistics, if parameters get gradients."""
        learns = self._slot is not None and not self._reads_back
        return self._taking_statistics() if learns and self._norms else nullcontext()

    @contextmanager
    def _taking_statistics(self) -> Iterator[None]:
        for one in self._norms.values():
            one.train()
        try:
            yield
        finally:
            for one in self._norms.values():
                one.eval()

    def _keep(self, outputs: Tensor) -> Tensor:
        if self._slot is not None:
            self._kept[self._slot] = outputs
        return outputs.detach()

    def _kept_apart(self) -> dict[str, Tensor]:
        lasting = self.module.state_dict().keys()
        frozen = {name: one for name, one in self.module.named_parameters() if name not in self._trained}
        return {name: one for name, one in self.module.named_buffers() if name in lasting} | frozen


def join_outputs(result: Any, leading: tuple[int, ...], columns: tuple[int, ...], name: str) -> Tensor:
    """Return a module's result as rows (*leading, outputs) in single precision: one tensor, or one for each group."""
    outputs = sum(columns)
    if isinstance(result, Tensor) and result.shape == (*leading, outputs):
        return result.float()
    if isinstance(result, tuple) and len(result) == len(columns) and all(isinstance(one, Tensor) for one in result):
        parts = [
            one.unsqueeze(-1) if size == 1 and one.shape == leading else one
            for one, size in zip(result, columns, strict=True)
        ]
        if all(one.shape == (*leading, size) for one, size in zip(parts, columns, strict=True)):
            return torch.cat([one.float() for one in parts], dim=-1)
    groups = ", ".join(str((*leading, size)) for size in columns)
    several = f", or a tuple of tensors {groups}" if len(columns) > 1 else ""
    raise ValueError(f"{name} must give a tensor {(*leading, outputs)}{several}; got {_spell(result)}")


def _spell(result: Any) -> str:
    if isinstance(result, Tensor):
        return f"a tensor {tuple(result.shape)}"
    if isinstance(result, tuple):
        return f"a tuple of {', '.join(_spell(one) for one in result)}"
    return f"a {type(result).__name__}"


def _require_real(module: nn.Module) -> None:
    for name, one in module.named_parameters():
        if nn.parameter.is_lazy(one):
            raise ValueError(f"parameter {name} has no size yet: give the module an observation before training it")
        if not one.is_floating_point():
            raise ValueError(f"parameter {name} is {one.dtype}: only real numbers can be learnt; make it a buffer")


def _state_size(module: nn.Module) -> int:
    size = getattr(module, "state_size", 0)
    if not isinstance(size, int) or size < 0:
        raise ValueError(f"state_size must be a whole number of at least 0, got {size!r}")
    return size
