"""Optimizers and schedules from calls, `adamw(weight_decay=0.01)`, for configs and the command line, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar, get_type_hints

from velocirl.engine.calls import Call
from velocirl.engine.naming import nearest

Kind = TypeVar("Kind")

_BOOLEANS = {"true": True, "false": False}


def build(call: Call, kinds: Mapping[str, type[Kind]], what: str, **given: Any) -> Kind:
    """Create the dataclass that a call describes, one of `kinds`; `given` are fields that text cannot hold."""
    if call.name not in kinds:
        raise ValueError(f"there is no {what} {call.name!r}{nearest(call.name, kinds)}")
    kind = kinds[call.name]
    types = _text_types(kind)
    names = list(types)
    values: dict[str, Any] = {}
    for place, (keyword, argument) in enumerate(call.arguments):
        if keyword is None and place >= len(names):
            raise ValueError(f"{call.name} takes at most {len(names)} arguments: {argument!r} is one too many")
        name = names[place] if keyword is None else keyword
        if name not in types:
            raise ValueError(f"{call.name} has no argument {name!r}{nearest(name, names)}")
        if name in values:
            raise ValueError(f"{call.name}: {name} is given twice")
        values[name] = _value(argument, types[name], f"{call.name}: {name}")
    for field in dataclasses.fields(kind):  # pyright: ignore[reportArgumentType] - kinds are dataclasses
        if field.name in types and field.default is dataclasses.MISSING and field.name not in values:
            raise ValueError(f"{call.name} needs its argument {field.name!r}: write {call.name}({field.name}=...)")
    return kind(**values, **given)


def describe(instance: Any, name: str) -> str:
    """Return the text from which `build` makes an equal object: required fields, then non-default ones."""
    types = _text_types(type(instance))
    shown: list[str] = []
    for field in dataclasses.fields(instance):
        if field.name not in types:
            continue
        value = types[field.name](getattr(instance, field.name))
        text = str(value).lower() if isinstance(value, bool) else repr(value)
        if field.default is dataclasses.MISSING:
            shown.append(text)
        elif value != field.default:
            shown.append(f"{field.name}={text}")
    return f"{name}({', '.join(shown)})" if shown else name


def require(instance: Any, name: str, valid: bool, expected: str) -> None:
    """Raise ValueError if a field is not `valid`."""
    if not valid:
        value = getattr(instance, name)
        raise ValueError(f"{type(instance).__name__}: {name} must be {expected}, not {value!r}")


def _text_types(kind: type[Any]) -> dict[str, type[Any]]:
    """Return the fields that text can set, with their types."""
    types = get_type_hints(kind)
    fields = dataclasses.fields(kind)
    return {field.name: types[field.name] for field in fields if types[field.name] in (bool, int, float)}


def _value(text: str, kind: type[Any], where: str) -> Any:
    try:
        return _BOOLEANS[text.lower()] if kind is bool else kind(text)
    except (KeyError, ValueError):
        expected = {bool: "true or false", int: "a whole number", float: "a number"}[kind]
        raise ValueError(f"{where} must be {expected}, not {text!r}") from None
