"""Torch modules built from a network's description, with this package's initial weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from velocirl.networks.activations import activation_from
from velocirl.networks.declared import Columns, Groups
from velocirl.networks.encoding import Encoding
from velocirl.networks.initialisers import initialiser_from
from velocirl.networks.specs import Convolution, Convolutional, Dense, NetworkSpec, Recurrent, Stage
from velocirl.networks.torch.activations import activation_module
from velocirl.networks.torch.memory import GRU, LSTM, Memory

try:
    import torch
    from torch import Tensor, nn
except ImportError as error:
    raise ImportError('velocirl.networks.torch.modules needs torch: pip install "velocirl[torch]"') from error

MEMORIES: dict[str, type[Memory]] = {"lstm": LSTM, "gru": GRU}
DENSE_NORMS: dict[str, Callable[[int], nn.Module]] = {"batch": nn.BatchNorm1d, "layer": nn.LayerNorm}
IMAGE_NORMS: dict[str, Callable[[int], nn.Module]] = {
    "batch": nn.BatchNorm2d,
    "layer": lambda channels: nn.GroupNorm(1, channels),  # over all of an image
}
MOST_COLOURS = 4  # a dimension this small, between two larger ones, is taken for the channels
Observation = Tensor | dict[str, Tensor]
Layer = TypeVar("Layer", nn.Linear, nn.Conv2d)


class Style(NamedTuple):
    """Activation and initialization of layers."""

    activation: str
    initialiser: str
    generator: np.random.Generator

    def weights(self, inputs: int, outputs: int, gain: float | None = None) -> Tensor:
        """Return initial weights (outputs, inputs), as in torch; the default gain is the activation's."""
        gain = activation_from(self.activation).gain if gain is None else gain
        return torch.from_numpy(initialiser_from(self.initialiser)(self.generator, inputs, outputs, gain)).T

    def linear(self, inputs: int, outputs: int, gain: float | None = None, *, bias: bool = True) -> nn.Linear:
        """Create a dense layer."""
        return _begun(nn.Linear(inputs, outputs, bias, device="meta"), self.weights(inputs, outputs, gain))

    def convolution(self, inputs: int, one: Convolution, *, bias: bool) -> nn.Conv2d:
        """Create a convolution, initialized as a dense layer from a kernel's receptive field to the channels."""
        outputs, kernel = one.channels, one.kernel
        layer = nn.Conv2d(inputs, outputs, kernel, one.stride, one.padding, bias=bias, device="meta")
        return _begun(layer, self.weights(inputs * kernel**2, outputs).reshape(outputs, inputs, kernel, kernel))

    def dense(self, inputs: int, stage: Dense) -> list[nn.Module]:
        """Create the layers of a stage; before a norm a layer has no bias, as the norm has one."""
        layers: list[nn.Module] = []
        for width in stage.widths:
            layers.append(self.linear(inputs, width, bias=stage.norm is None))
            layers += [] if stage.norm is None else [DENSE_NORMS[stage.norm](width)]
            layers.append(activation_module(self.activation))
            inputs = width
        return layers


class Image(nn.Module):
    """Observations (rows, *shape) as images (rows, channels, height, width); see `Convolutional`."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.stacked = len(shape) == 4
        stack, frame = (shape[0], shape[1:]) if self.stacked else (1, shape)
        if len(frame) == 3 and frame[1] <= MOST_COLOURS < min(frame[0], frame[2]):
            raise ValueError(
                f"an image of {frame} has its channels in the middle: give (height, width, channels) or (channels,"
                " height, width)"
            )
        self.last = len(frame) == 3 and frame[2] < frame[0]
        channels, *sides = (frame[2], *frame[:2]) if self.last else (frame if len(frame) == 3 else (1, *frame))
        self.shape: tuple[int, int, int] = stack * channels, *sides  # pyright: ignore[reportAttributeAccessIssue]

    def forward(self, observation: Tensor) -> Tensor:
        """Return the images, in the fastest memory format for convolutions."""
        if not self.last:
            images = observation.reshape(-1, *self.shape)
        else:
            images = observation.movedim(-1, 2).flatten(1, 2) if self.stacked else observation.movedim(-1, 1)
        return images.contiguous(memory_format=torch.channels_last) if _on_tensor_cores(images) else images


class Pool(nn.Module):
    """Max pooling of each 2 by 2, including the remainder at the edges.

    Written out, since torch's own pooling adds up gradients in no fixed order on CUDA.
    """

    def forward(self, image: Tensor) -> Tensor:
        """Return images of half the height and width, rounded up."""
        height, width = image.shape[-2:]
        image = nn.functional.pad(image, (0, width % 2, 0, height % 2), value=-torch.inf)
        return image.unflatten(-1, (-1, 2)).unflatten(-3, (-1, 2)).amax((-3, -1))


class Row(nn.Module):
    """Flattening of an observation to one row."""

    def forward(self, observation: Tensor) -> Tensor:
        """Return rows (rows, numbers)."""
        # Independent of the number of rows, which a tracer would take for a constant.
        return observation.flatten(1) if observation.dim() > 1 else observation[:, None]


class Body(nn.Module):
    """Stages before recurrent and last layers: an encoder for each part, and the stages after all of them."""

    def __init__(self, names: Sequence[str], encoders: Sequence[nn.Module], then: nn.Module) -> None:
        super().__init__()
        self.names = tuple(names)
        self.encoders = nn.ModuleList(encoders)
        self.then = then

    def forward(self, observation: Observation) -> Tensor:
        """Return the features (rows, size)."""
        if isinstance(observation, Tensor):
            return self.then(self.encoders[0](observation))
        pairs = zip(self.names, self.encoders, strict=True)
        return self.then(torch.cat([encoder(observation[name]) for name, encoder in pairs], dim=-1))


class Ends(nn.Module):
    """Parallel last layers, one for each group of columns; free columns are separate parameters."""

    def __init__(self, features: int, columns: Sequence[Columns], style: Style) -> None:
        super().__init__()
        self.layers = nn.ModuleList()
        self.free = nn.ParameterList()
        self.order: list[tuple[bool, int]] = []  # whether it is free, and its index among those
        for one in columns:
            if one.free is None:
                self.order.append((False, len(self.layers)))
                self.layers.append(style.linear(features, one.size, one.gain))
            else:
                self.order.append((True, len(self.free)))
                self.free.append(nn.Parameter(torch.full((one.size,), one.free)))

    def forward(self, features: Tensor) -> Tensor:
        """Return the output rows (..., outputs)."""
        made = [
            self.free[place].expand(*features.shape[:-1], -1) if free else self.layers[place](features)
            for free, place in self.order
        ]
        return torch.cat(made, dim=-1)


class Policy(nn.Module):
    """Network without recurrent layers."""

    def __init__(self, body: Body, ends: Ends) -> None:
        super().__init__()
        self.body, self.ends = body, ends

    def forward(self, observation: Observation) -> Tensor:
        """Return the output rows (rows, outputs)."""
        return self.ends(self.body(observation))


class RecurrentPolicy(nn.Module):
    """Network with recurrent layers."""

    def __init__(self, body: Body, memory: Memory, ends: Ends) -> None:
        super().__init__()
        self.body, self.memory, self.ends = body, memory, ends
        self.state_size = memory.state_size

    def forward(self, observation: Observation, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return the output rows (rows, outputs) and the next state (rows, state_size)."""
        remembered, state = self.memory(self.body(observation).unsqueeze(0), None, state)
        return self.ends(remembered[0]), state

    def unroll(self, observation: Observation, starts: Tensor, state: Tensor) -> Tensor:
        """Return the output rows (steps, rows, outputs) of a whole sequence; `starts` marks where episodes begin."""
        if isinstance(observation, Tensor):
            flat: Observation = observation.flatten(0, 1)
        else:
            flat = {name: part.flatten(0, 1) for name, part in observation.items()}
        features = self.body(flat).unflatten(0, starts.shape)
        return self.ends(self.memory(features, starts, state)[0])


class Joined(nn.Module):
    """Features of an observation, then dense layers that also read extra numbers, then the columns."""

    def __init__(self, features: nn.Module, layers: Sequence[nn.Module]) -> None:
        super().__init__()
        self.features, self.layers = features, nn.Sequential(*layers)

    def forward(self, observation: Observation, *more: Tensor) -> Tensor:
        """Return the output rows (rows, outputs)."""
        return self.layers(torch.cat([self.features(observation), *more], dim=-1))


class Several(nn.Module):
    """Separate networks of the same kind, with concatenated columns."""

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, observation: Observation, *more: Tensor) -> Tensor:
        """Return the output rows (rows, outputs)."""
        return torch.cat([network(observation, *more) for network in self.networks], dim=-1)


def build_module(
    spec: NetworkSpec,
    encoding: Encoding,
    groups: Groups,
    *,
    extra: int = 0,
    together: bool = True,
    activation: str,
    initialiser: str,
    generator: np.random.Generator,
) -> nn.Module:
    """Build the module of a description: its stages, and then the columns of all groups.

    With `extra` numbers besides the observation, these are concatenated before its dense part. Groups that are not
    `together` have separate networks.
    """
    style = Style(activation, initialiser, generator)
    if extra or not (together or len(groups) == 1):
        return Several([_joined(spec, encoding, group, extra, style) for group in groups])
    columns = [one for group in groups for one in group]
    body, features = _body(spec, encoding, style)
    remembers = spec.recurrent
    if remembers is None:
        return Policy(body, Ends(features, columns, style))
    memory = MEMORIES[remembers.kind](features, remembers.size, remembers.layers, generator)
    return RecurrentPolicy(body, memory, Ends(remembers.size, columns, style))


def _joined(spec: NetworkSpec, encoding: Encoding, columns: Sequence[Columns], extra: int, style: Style) -> Joined:
    spec.check(encoding.parts)
    before = tuple(stage for stage in spec.stages if not isinstance(stage, Dense))
    body, size = _body(dataclasses.replace(spec, stages=before), encoding, style)
    layers, size = _dense(spec.stages, size + extra, style)
    return Joined(body, [*layers, Ends(size, columns, style)])


def _body(spec: NetworkSpec, encoding: Encoding, style: Style) -> tuple[Body, int]:
    """Build all stages of a description except recurrent ones. Returns them with the size of their output."""
    spec.check(encoding.parts)
    stages = tuple(stage for stage in spec.stages if not isinstance(stage, Recurrent))
    names = [part.name for part in encoding.parts]
    described = {"": stages} if names == [""] else dict(spec.encoders or ())
    encoded = [_encoder(described.get(part.name, ()), part.shape, style) for part in encoding.parts]
    then, features = [], sum(size for _, size in encoded)
    if names != [""]:
        then, features = _dense(stages, features, style)
    return Body(names, [encoder for encoder, _ in encoded], nn.Sequential(*then)), features


def _encoder(stages: Sequence[Stage], shape: tuple[int, ...], style: Style) -> tuple[nn.Module, int]:
    """Build an encoder of one part. Returns it with the size of its output."""
    layers: list[nn.Module] = []
    if stages and isinstance(stages[0], Convolutional):
        layers, shape = _convolutions(stages[0], shape, style)
    dense, size = _dense(stages, int(np.prod(shape)), style)
    return nn.Sequential(*layers, Row(), *dense), size


def _convolutions(
    stage: Convolutional, shape: tuple[int, ...], style: Style
) -> tuple[list[nn.Module], tuple[int, ...]]:
    image = Image(shape)
    layers: list[nn.Module] = [image]
    channels, *sides = image.shape
    for one in stage.layers:
        if min(sides) + 2 * one.padding < one.kernel:
            before = "" if one is stage.layers[0] else f", {sides[0]} by {sides[1]} before {one}"
            raise ValueError(
                f"{stage}: the image of {image.shape[1]} by {image.shape[2]}{before} is smaller than a kernel of"
                f" {one.kernel}: use smaller kernels or strides"
            )
        layers.append(style.convolution(channels, one, bias=stage.norm is None))
        layers += [] if stage.norm is None else [IMAGE_NORMS[stage.norm](one.channels)]
        layers.append(activation_module(style.activation))
        channels, sides = one.channels, [one.side(side) for side in sides]
        if stage.pool:
            layers.append(Pool())
            sides = [-(-side // 2) for side in sides]
    return layers, (channels, *sides)


def _dense(stages: Sequence[Stage], features: int, style: Style) -> tuple[list[nn.Module], int]:
    layers: list[nn.Module] = []
    for stage in stages:
        if isinstance(stage, Dense):
            layers += style.dense(features, stage)
            features = stage.widths[-1]
    return layers, features


def _on_tensor_cores(images: Tensor) -> bool:
    """Return whether products use tensor cores, which are fastest with channels-last memory."""
    return images.is_cuda and (torch.is_autocast_enabled("cuda") or torch.backends.cudnn.allow_tf32)


def _begun(layer: Layer, weights: Tensor) -> Layer:
    """Allocate a layer from the meta device, which draws no weights from torch's generator, and set its weights."""
    layer = layer.to_empty(device="cpu")
    with torch.no_grad():
        layer.weight.copy_(weights)
        if layer.bias is not None:
            layer.bias.zero_()
    return layer
