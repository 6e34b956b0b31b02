"""Parsing of the preprocessing setting: text such as `atari(stack=3, life_loss=false)`, or a dict of its options."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from velocirl.engine.calls import parse
from velocirl.engine.naming import nearest
from velocirl.optim.parsing import build, describe
from velocirl.vector.preprocessing.wrappers import Atari

NAME = "atari"
Preprocess = str | Mapping[str, Any] | Atari


def switches_from(preprocess: Preprocess) -> Atari:
    """Return the options set by a text or a dict; the others keep their defaults, the field's standard values."""
    if isinstance(preprocess, Atari):
        return preprocess
    if isinstance(preprocess, str):
        calls = parse(preprocess, "preprocess", 'one such as "atari" or "atari(stack=3, life_loss=false)"')
        if len(calls) > 1:
            raise ValueError(f"preprocess={preprocess!r} names {len(calls)} kinds, and there can be one: {NAME}")
        return build(calls[0], {NAME: Atari}, "preprocess")
    if not isinstance(preprocess, Mapping):
        raise TypeError(f'preprocess is a text such as "atari" or a dict of its switches, got {preprocess!r}')
    types = {field.name: type(field.default) for field in dataclasses.fields(Atari)}
    for name, value in preprocess.items():
        if name not in types:
            raise ValueError(f"preprocess has no switch {name!r}{nearest(name, types)}")
        if type(value) is not types[name]:
            wanted = "true or false" if types[name] is bool else "a whole number"
            raise ValueError(f"preprocess: {name} must be {wanted}, not {value!r}")
    return Atari(**preprocess)


def text_of(switches: Atari) -> str:
    """Format the options as text that `switches_from` parses back."""
    return describe(switches, NAME)


def whole_games(switches: Atari) -> Atari:
    """Return the options for evaluation: the same images, but whole games with unclipped rewards."""
    return dataclasses.replace(switches, life_loss=False, clip_rewards=False)
