"""Documentation of an algorithm's settings: for help(PPO), its signature and the command line."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from abc import ABCMeta
from collections.abc import Mapping
from functools import cache
from inspect import Parameter, Signature
from typing import Any, TypeVar

from velocirl.training.settings.words import other_names, policy_first

Made = TypeVar("Made")


@cache
def descriptions(config: type[Any]) -> Mapping[str, str]:
    """Return the texts below the fields of a dataclass and of its bases, by field."""
    texts: dict[str, str] = {}
    for kind in reversed(config.__mro__):
        if not dataclasses.is_dataclass(kind):
            continue
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
        assert isinstance(definition, ast.ClassDef)  # noqa: S101 - the source of a class
        for before, after in zip(definition.body, definition.body[1:], strict=False):
            if (
                isinstance(before, ast.AnnAssign)
                and isinstance(before.target, ast.Name)
                and isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
            ):
                texts[before.target.id] = inspect.cleandoc(str(after.value.value)).replace("\n", " ")
    return texts


def shown(default: Any) -> str:
    """Format a default as a user would write it."""
    if isinstance(default, Mapping):
        return " ".join(f"{name}={value}" for name, value in default.items()) or "none"
    if isinstance(default, tuple):
        return " ".join(map(str, default))
    if default is None or isinstance(default, bool):
        return {None: "none", True: "on", False: "off"}[default]
    return str(default)


class Documented(ABCMeta):
    """Metaclass of algorithms: appends the settings to the class docstring when it is read."""

    def __call__(cls: type[Made], *given: Any, **settings: Any) -> Made:
        """Create an agent from an environment and settings; a policy may come before the environment, as in SB3."""
        if len(given) > 2:
            raise TypeError(f"the settings of {cls.__name__} are given by name, such as learning_rate=1e-3")
        given, settings = policy_first(given, settings)
        return type.__call__(cls, *given, **settings)

    @property
    def __doc__(cls) -> str | None:  # pyright: ignore[reportIncompatibleVariableOverride] - `help` reads it of the type
        text, config = cls.__dict__.get("__doc__"), getattr(cls, "Config", None)
        if config is None:
            return text
        texts, lines = descriptions(config), []
        for field in dataclasses.fields(config):
            told = texts.get(field.name, field.name.replace("_", " "))
            lines.append(f"    {field.name}: {field.type} = {default_of(field)!r}")
            lines += textwrap.wrap(told, 100, initial_indent=" " * 8, subsequent_indent=" " * 8)
        pairs = [f"{there} ({', '.join(here)})" for there, here in other_names(config).items()]
        names = f"Names of Stable-Baselines3 that are understood: {', '.join(pairs)}."
        lines += ["", *textwrap.wrap(names, 100)] if pairs else []
        return "\n".join([inspect.cleandoc(text or ""), "", "Settings:", *lines])


def signature_of(config: Any) -> Signature:
    """Return an algorithm's constructor signature: the environment, then settings by name."""
    first = Parameter("env", Parameter.POSITIONAL_OR_KEYWORD, annotation="str | Environment")
    settings = [
        Parameter(field.name, Parameter.KEYWORD_ONLY, default=default_of(field), annotation=field.type)
        for field in dataclasses.fields(config)
    ]
    return Signature([first, *settings])


def default_of(field: dataclasses.Field[Any]) -> Any:
    """Return the default of a field."""
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
