"""Gymnasium environment ids: lookup, with one-line errors that name the remedy."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from contextlib import contextmanager

import gymnasium
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import DependencyNotInstalled, Error

from velocirl.engine.naming import nearest_id

OURS = "velocirl/"
ID = re.compile(r"([\w-]+/)?[\w:.-]+-v\d+")
# The modules that define the environments of a namespace, and the commands that install them.
MODULES = {
    "ALE": ("ale_py", 'pip install "velocirl[atari]"'),
    "NES": ("velocirl.vector.adapters.super_mario", "pip install gym-super-mario-bros"),
}


def find_spec(name: str) -> EnvSpec:
    """Return the specification of `ID`, or of `MODULE:ID` after importing the module."""
    with explained(name):
        return gymnasium.spec(import_for(name))


def import_for(name: str) -> str:
    """Return the id in `MODULE:ID` after importing its module; some namespaces have a default module."""
    module, _, own = name.rpartition(":")
    known, installing = MODULES.get(own.partition("/")[0], ("", ""))
    if not (module or known):
        return own
    try:
        importlib.import_module(module or known)
    except ModuleNotFoundError as error:
        if not module:
            raise ValueError(f"gym:{name} needs {error.name!r}, which is not installed: {installing}") from error
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise ValueError(f"gym:{name}: {module} cannot be imported: {error}") from error
        raise ValueError(
            f"gym:{name}: Python finds no module {error.name!r}; install it or, where it lies in this directory, set"
            " PYTHONPATH=."
        ) from error
    except Exception as error:
        raise ValueError(f"gym:{name}: {module} cannot be imported: {type(error).__name__}: {error}") from error
    return own


@contextmanager
def explained(name: str) -> Iterator[None]:
    """Convert Gymnasium's errors in this context to a ValueError that names the remedy."""
    try:
        yield
    except (Error, ImportError) as error:
        raise ValueError(_explain(name, error)) from error


def _explain(name: str, error: Exception) -> str:
    (module, _, own), said = name.rpartition(":"), " ".join(str(error).split())
    near = nearest_id(own, (one for one in gymnasium.registry if not one.startswith(OURS)))
    if isinstance(error, (DependencyNotInstalled, ModuleNotFoundError)):
        extra = _extra_of(own) if isinstance(error, ModuleNotFoundError) else None
        return f"gym:{name} needs more than is installed: {said}" + (
            f'; pip install "gymnasium[{extra}]"' if extra else ""
        )
    if isinstance(error, ImportError):
        newer = own in gymnasium.registry and near not in (None, own)
        return f"gym:{name} cannot be made: {said.rstrip('.')}" + (f"; use 'gym:{near}'" if newer else "")
    if near is not None:
        return f"Gymnasium has no environment {own!r}: did you mean 'gym:{near}'?"
    if not ID.fullmatch(own):
        return f"Gymnasium has no environment {own!r}: an id is of the form Name-v1 or namespace/Name-v1"
    if module:
        return f"Gymnasium has no environment {own!r}: {module} registers none of that name"
    return f"Gymnasium has no environment {own!r}: install what defines it, and name its module: gym:MODULE:{own}"


def _extra_of(name: str) -> str | None:
    """Return the Gymnasium extra that one of its own environments needs, from the environment's folder, or None."""
    spec = gymnasium.registry.get(name)
    found = re.match(r"gymnasium\.envs\.(box2d|mujoco|toy_text|classic_control)\b", str(spec and spec.entry_point))
    return None if found is None else found[1].replace("_", "-")
