"""Networks as text, `cnn(16, 32) mlp(256) lstm(128)`, for configs and the command line; never evaluated.

The stages follow each other from left to right; networks known from papers have names (`NAMED`). An observation of
several parts (Dict and Tuple) may have an encoder for each, by name. The stages under "then" follow all encoders:
`{"camera": "nature", "then": "mlp(128)"}`. A part without an encoder passes unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from velocirl.engine.calls import Call, parse
from velocirl.engine.naming import nearest
from velocirl.networks.encoding import Part

THEN = "then"
MOST_LAYERS = 256
KERNEL = 3  # default of a convolution


@dataclass(frozen=True)
class Dense:
    """`mlp(64, 64, norm=layer)`: layers of these widths, each with an optional norm, and an activation."""

    widths: tuple[int, ...]
    norm: str | None = None

    def __str__(self) -> str:
        return f"mlp({', '.join([*map(str, self.widths), *_norm_text(self.norm)])})"


@dataclass(frozen=True)
class Convolution:
    """One layer: `32` channels padded by half a kernel, or `32x8s4p0` with each number explicit.

    The numbers are channels, kernel, stride (default 1) and padding (default 0).
    """

    channels: int
    kernel: int
    stride: int
    padding: int

    def __str__(self) -> str:
        return f"{self.channels}x{self.kernel}s{self.stride}{f'p{self.padding}' if self.padding else ''}"

    def side(self, before: int) -> int:
        """Return the side of an image after the layer."""
        return (before + 2 * self.padding - self.kernel) // self.stride + 1


@dataclass(frozen=True)
class Convolutional:
    """`cnn(16, 32, kernel=3, stride=1, pool=false)`, `cnn(32x8s4, 64x4s2)`: convolutions, then flattening.

    Each has an optional norm (`norm=batch` or `layer`) and an activation; `pool` then takes the maximum of each 2 by 2.
    In an image of three dimensions, the channels are the smaller of the first and the last, the first if they are
    equal. An image of two dimensions has one channel. Four dimensions are a stack of such images, whose channels are
    concatenated.
    """

    layers: tuple[Convolution, ...]
    pool: bool = False
    norm: str | None = None

    def __str__(self) -> str:
        kernel, stride = self.layers[0].kernel, self.layers[0].stride
        alike = all((one.kernel, one.stride, one.padding) == (kernel, stride, kernel // 2) for one in self.layers)
        shown = [str(one.channels if alike else one) for one in self.layers]
        shown += [f"kernel={kernel}"] * (alike and kernel != KERNEL) + [f"stride={stride}"] * (alike and stride != 1)
        return f"cnn({', '.join([*shown, *['pool=true'] * self.pool, *_norm_text(self.norm)])})"


@dataclass(frozen=True)
class Recurrent:
    """`lstm(128)` or `gru(128, layers=2)`: recurrent layers."""

    kind: str
    size: int
    layers: int = 1

    def __str__(self) -> str:
        return f"{self.kind}({self.size}{f', layers={self.layers}' if self.layers > 1 else ''})"


Stage = Dense | Convolutional | Recurrent
ARGUMENTS = {"mlp": ("norm",), "cnn": ("kernel", "stride", "pool", "norm"), "lstm": ("layers",), "gru": ("layers",)}
NORMS = ("batch", "layer")
NAMED = {
    "nature": "cnn(32x8s4, 64x4s2, 64x3s1) mlp(512)",  # Mnih et al., 2015
    "minatar": "cnn(16x3s1) mlp(128)",  # Young and Tian, 2019
}


@dataclass(frozen=True)
class NetworkSpec:
    """Stages between the observation and the last layers."""

    stages: tuple[Stage, ...]
    encoders: tuple[tuple[str, tuple[Stage, ...]], ...] | None = None  # by part; None without parts

    @property
    def recurrent(self) -> Recurrent | None:
        """Recurrent stage, if there is one."""
        last = self.stages[-1] if self.stages else None
        return last if isinstance(last, Recurrent) else None

    def describe(self) -> str | dict[str, str]:
        """Return a description from which `parse_network` builds an equal network."""
        if self.encoders is None:
            return _text(self.stages)
        then = {THEN: _text(self.stages)} if self.stages else {}
        return {name: _text(stages) for name, stages in self.encoders} | then

    def check(self, parts: Sequence[Part]) -> None:
        """Raise if the network cannot read an observation of these parts."""
        names = [part.name for part in parts]
        structured = names != [""]
        if THEN in names:
            raise ValueError(
                f'a part of the observation is called "{THEN}", the word for what follows all parts; rename it'
            )
        if self.encoders is None and structured:
            if any(isinstance(stage, Convolutional) for stage in self.stages):
                raise ValueError(
                    f"the observation has the parts {', '.join(names)}: say which one a cnn reads, as in"
                    f' {{"{names[0]}": "cnn(16, 32)", "{THEN}": "mlp(64)"}}'
                )
            return
        if self.encoders is not None and not structured:
            raise ValueError(
                "the observation has no parts that encoders could be for: write a text, such as 'mlp(64, 64)'"
            )
        shapes = {part.name: part.shape for part in parts}
        for name, stages in self.encoders if self.encoders is not None else (("", self.stages),):
            if name not in shapes:
                raise ValueError(f"the observation has no part {name!r}{nearest(name, names)}")
            if stages and isinstance(stages[0], Convolutional) and len(shapes[name]) not in (2, 3, 4):
                of = f" {name!r}" if name else ""
                raise ValueError(
                    f"a cnn reads images of two or three dimensions and stacks of them, and the observation{of} has the"
                    f" shape {shapes[name]}: use mlp"
                )


def parse_network(spec: str | Mapping[str, str]) -> NetworkSpec:
    """Parse a network from a text, or from a dict of texts by the parts of the observation."""
    if isinstance(spec, str):
        return NetworkSpec(_stages(spec))
    if not isinstance(spec, Mapping) or not all(isinstance(text, str) for pair in spec.items() for text in pair):
        raise TypeError(f"a network is a text such as 'mlp(64, 64)' or a dict of such texts, got {spec!r}")
    encoders = {name: _stages(text) for name, text in spec.items()}
    then = encoders.pop(THEN, ())
    for name, stages in encoders.items():
        if any(isinstance(stage, Recurrent) for stage in stages):
            raise ValueError(f'{name}: {stages[-1]} remembers, and that comes last of all: put it into "{THEN}"')
    if any(isinstance(stage, Convolutional) for stage in then):
        raise ValueError(f'{THEN}: a cnn reads an image, and after the encoders there is none: put it before "{THEN}"')
    return NetworkSpec(then, tuple(encoders.items()))


def _stages(text: str) -> tuple[Stage, ...]:
    calls = [
        part for call in parse(text, "network", "stages such as mlp(64, 64) or lstm(128)") for part in _known(call)
    ]
    stages = [_stage(call) for call in calls]
    layers = [one.layers if isinstance(one, Recurrent) else len(_layers(one)) for one in stages]
    if sum(layers) > MOST_LAYERS:
        raise ValueError(f"a network has at most {MOST_LAYERS} layers, got {sum(layers)}")
    for place, stage in enumerate(stages):
        if isinstance(stage, Convolutional) and place > 0:
            raise ValueError(f"{text!r}: a cnn reads an image and must come first")
        if isinstance(stage, Recurrent) and place < len(stages) - 1:
            raise ValueError(f"{text!r}: at most one of lstm and gru, as the last stage")
    return tuple(stages)


def _known(call: Call) -> list[Call]:
    """Expand the name of a known network; return a stage itself."""
    if call.name not in NAMED:
        return [call]
    if call.arguments:
        raise ValueError(f"{call.name} is {NAMED[call.name]}, and takes no arguments: write that with your own numbers")
    return parse(NAMED[call.name], "network")


def _layers(stage: Dense | Convolutional) -> tuple[Any, ...]:
    return stage.widths if isinstance(stage, Dense) else stage.layers


def _stage(call: Call) -> Stage:
    name = call.name
    if name not in ARGUMENTS:
        raise ValueError(f"there is no stage {name!r} of a network{nearest(name, (*ARGUMENTS, *NAMED))}")
    sizes = [value for keyword, value in call.arguments if keyword is None]
    if not sizes:
        raise ValueError(f"{name} needs a size, such as {name}(64)")
    named = _named(call)
    if name == "mlp":
        return Dense(tuple(_whole(size, name) for size in sizes), **named)
    if name == "cnn":
        kernel, stride = named.pop("kernel", KERNEL), named.pop("stride", 1)
        return Convolutional(tuple(_convolution(size, kernel, stride) for size in sizes), **named)
    if len(sizes) > 1:
        raise ValueError(
            f"{name} takes one size, got {', '.join(sizes)}: for several layers write {name}({sizes[0]}, layers=2)"
        )
    return Recurrent(name, _whole(sizes[0], name), **named)


def _named(call: Call) -> dict[str, Any]:
    """Return the keyword arguments of a stage."""
    name, known, named = call.name, ARGUMENTS[call.name], {}
    for keyword, value in call.arguments:
        if keyword is None:
            continue
        if keyword not in known:
            raise ValueError(f"{name} has no argument {keyword!r}{nearest(keyword, known)}")
        if keyword in named:
            raise ValueError(f"{name}: {keyword} is given twice")
        if keyword == "norm":
            if value not in NORMS:
                raise ValueError(f"{name}: norm must be {' or '.join(NORMS)}, not {value!r}")
            named[keyword] = value
        else:
            read = _boolean if keyword == "pool" else _whole
            named[keyword] = read(value, f"{name}: {keyword}")
    return named


def _convolution(text: str, kernel: int, stride: int) -> Convolution:
    """Parse a layer of a cnn: channels alone, or with its own numbers."""
    found = re.fullmatch(r"(\d+)x(\d+)(?:s(\d+))?(?:p(\d+))?", text)
    if found is None:
        return Convolution(_whole(text, "cnn", " or a layer such as 32x8s4"), kernel, stride, kernel // 2)
    channels, own, step = (_whole(one or "1", f"cnn: {text}") for one in found.groups()[:3])
    padding = int(found[4] or 0)
    if padding >= own:
        raise ValueError(f"cnn: {text} pads by {padding}, of which a kernel of {own} would see nothing else")
    return Convolution(channels, own, step, padding)


def _whole(text: str, where: str, otherwise: str = "") -> int:
    if not re.fullmatch(r"\d+", text) or int(text) < 1:
        raise ValueError(f"{where} must be a whole number of at least 1{otherwise}, not {text!r}")
    return int(text)


def _boolean(text: str, where: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{where} must be true or false, not {text!r}")
    return text.lower() == "true"


def _text(stages: tuple[Stage, ...]) -> str:
    return " ".join(map(str, stages))


def _norm_text(norm: str | None) -> list[str]:
    return [] if norm is None else [f"norm={norm}"]
