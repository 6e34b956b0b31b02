"""Configurations: frozen dataclasses of plain values, from keyword arguments, presets, files and the command line."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
import numpy as np

from velocirl.engine.naming import nearest

Config = TypeVar("Config")
OWN_MODULE = "module "  # in a configuration, what stands before the name of a module that a user gave


def is_own_module(network: str | Mapping[str, str] | None) -> bool:
    """Whether a configuration says that the network was a user's own module."""
    return isinstance(network, str) and network.startswith(OWN_MODULE)


def build_config(kind: type[Config], values: Mapping[str, Any]) -> Config:
    """A configuration from named values; unknown names and values of the wrong kind are refused by name."""
    names = [field.name for field in dataclasses.fields(kind)]  # pyright: ignore[reportArgumentType]
    for name in values:
        if name not in names:
            raise ValueError(f"there is no setting {name!r}{nearest(name, names)}")
    plain = {name: _plain(value) for name, value in values.items()}
    try:
        return msgspec.convert(plain, kind)
    except msgspec.ValidationError as error:
        raise ValueError(str(error).replace("`", "").replace("$.", "")) from None


def as_plain(config: Any) -> dict[str, Any]:
    """The configuration as plain values, for JSON."""
    return msgspec.to_builtins(config)


def require(condition: bool, name: str, value: Any, wanted: str) -> None:
    """Refuse an impossible value by name."""
    if not condition:
        raise ValueError(f"{name} must be {wanted}, got {value!r}")


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    return [_plain(item) for item in value] if isinstance(value, (tuple, list, np.ndarray)) else value
