"""Networks as text, `cnn(16, 32) mlp(256) lstm(128)`, for configs and the command line; never evaluated.

The stages follow each other from left to right. An observation of several parts (Dict and Tuple) may have an encoder
for each, by name, and under "then" what follows all of them: `{"camera": "cnn(16, 32)", "then": "mlp(128)"}`. A part
without an encoder passes as it is.
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


@dataclass(frozen=True)
class Dense:
    """`mlp(64, 64)`: layers of these widths, each activated."""

    widths: tuple[int, ...]

    def __str__(self) -> str:
        return f"mlp({', '.join(map(str, self.widths))})"


@dataclass(frozen=True)
class Convolutional:
    """`cnn(16, 32, kernel=3, stride=1, pool=false)`: convolutions, each activated, and then everything in one row.

    The image is padded by half a kernel, so that a stride of 1 keeps its size; `pool` takes the largest of each two by
    two after a convolution. Of an image of three dimensions the smaller of the first and the last is that of channels,
    the first where they are equal; one of two dimensions has one channel.
    """

    channels: tuple[int, ...]
    kernel: int = 3
    stride: int = 1
    pool: bool = False

    def __str__(self) -> str:
        shown = [str(count) for count in self.channels]
        shown += [f"{name}={getattr(self, name)}" for name in ("kernel", "stride") if self._differs(name)]
        return f"cnn({', '.join(shown + ['pool=true'] * self.pool)})"

    def _differs(self, name: str) -> bool:
        return getattr(self, name) != getattr(Convolutional, name)


@dataclass(frozen=True)
class Recurrent:
    """`lstm(128)` or `gru(128, layers=2)`: what remembers the steps before."""

    kind: str
    size: int
    layers: int = 1

    def __str__(self) -> str:
        return f"{self.kind}({self.size}{f', layers={self.layers}' if self.layers > 1 else ''})"


Stage = Dense | Convolutional | Recurrent
KINDS = ("mlp", "cnn", "lstm", "gru")


@dataclass(frozen=True)
class NetworkSpec:
    """What lies between the observation and the last layers."""

    stages: tuple[Stage, ...]
    encoders: tuple[tuple[str, tuple[Stage, ...]], ...] | None = None  # by part; None where there are no parts

    @property
    def recurrent(self) -> Recurrent | None:
        """The stage that remembers, if there is one."""
        last = self.stages[-1] if self.stages else None
        return last if isinstance(last, Recurrent) else None

    def describe(self) -> str | dict[str, str]:
        """What `parse_network` makes an equal network of."""
        if self.encoders is None:
            return _text(self.stages)
        then = {THEN: _text(self.stages)} if self.stages else {}
        return {name: _text(stages) for name, stages in self.encoders} | then

    def check(self, parts: Sequence[Part]) -> None:
        """Refuse an observation of these parts that the network cannot read."""
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
            if stages and isinstance(stages[0], Convolutional) and len(shapes[name]) not in (2, 3):
                of = f" {name!r}" if name else ""
                raise ValueError(
                    f"a cnn reads images of two or three dimensions, and the observation{of} has the shape"
                    f" {shapes[name]}: use mlp"
                )


def parse_network(spec: str | Mapping[str, str]) -> NetworkSpec:
    """The network that a text, or a dict of texts by the parts of the observation, describes."""
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
    calls = parse(text, "network", "stages such as mlp(64, 64) or lstm(128)")
    stages = [_stage(call) for call in calls]
    layers = [len(getattr(one, "widths", getattr(one, "channels", ()))) + getattr(one, "layers", 0) for one in stages]
    if sum(layers) > MOST_LAYERS:
        raise ValueError(f"a network has at most {MOST_LAYERS} layers, got {sum(layers)}")
    for place, stage in enumerate(stages):
        if isinstance(stage, Convolutional) and place > 0:
            raise ValueError(f"{text!r}: a cnn reads an image and must come first")
        if isinstance(stage, Recurrent) and place < len(stages) - 1:
            raise ValueError(f"{text!r}: at most one of lstm and gru, as the last stage")
    return tuple(stages)


def _stage(call: Call) -> Stage:
    name = call.name
    if name not in KINDS:
        raise ValueError(f"there is no stage {name!r} of a network{nearest(name, KINDS)}")
    known = {"cnn": ("kernel", "stride", "pool"), "lstm": ("layers",), "gru": ("layers",)}.get(name, ())
    numbers = [_whole(value, name) for keyword, value in call.arguments if keyword is None]
    named: dict[str, Any] = {}
    for keyword, value in call.arguments:
        if keyword is None:
            continue
        if keyword not in known:
            raise ValueError(f"{name} has no argument {keyword!r}{nearest(keyword, known)}")
        if keyword in named:
            raise ValueError(f"{name}: {keyword} is given twice")
        named[keyword] = _boolean(value, name, keyword) if keyword == "pool" else _whole(value, f"{name}: {keyword}")
    if not numbers:
        raise ValueError(f"{name} needs a size, such as {name}(64)")
    if name == "mlp":
        return Dense(tuple(numbers))
    if name == "cnn":
        return Convolutional(tuple(numbers), **named)
    if len(numbers) > 1:
        raise ValueError(
            f"{name} takes one size, got {numbers}: for several layers write {name}({numbers[0]}, layers=2)"
        )
    return Recurrent(name, numbers[0], **named)


def _whole(text: str, where: str) -> int:
    if not re.fullmatch(r"\d+", text) or int(text) < 1:
        raise ValueError(f"{where} must be a whole number of at least 1, not {text!r}")
    return int(text)


def _boolean(text: str, name: str, keyword: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{name}: {keyword} must be true or false, not {text!r}")
    return text.lower() == "true"


def _text(stages: tuple[Stage, ...]) -> str:
    return " ".join(map(str, stages))
