"""Registry of environments: defining an environment registers it; the built-in ones are loaded on demand."""

from __future__ import annotations

import importlib
import pkgutil
import warnings
from typing import TYPE_CHECKING

import gymnasium

from velocirl.engine.naming import nearest_id

if TYPE_CHECKING:
    from velocirl.engine.environment import Environment

BUILT_IN = "velocirl.environments"
_environments: dict[str, Environment] = {}
_loaded = False


def register(environment: Environment) -> None:
    """Register an environment by its id, here and with Gymnasium; the latest definition wins, as in a notebook."""
    earlier = _environments.get(environment.id)
    if earlier is not None and _built_in(earlier) and not _built_in(environment):
        warnings.warn(f"{environment.id} now means the one defined in {environment.source}", stacklevel=4)
    if earlier is None or not (_built_in(environment) and not _built_in(earlier)):
        _environments[environment.id] = environment
        gymnasium.registry.pop(f"velocirl/{environment.id}", None)
        gymnasium.register(
            f"velocirl/{environment.id}",
            entry_point="velocirl.vector.making:make_registered",
            vector_entry_point="velocirl.vector.making:make_vec_registered",
            kwargs={"environment": environment.id},
            max_episode_steps=environment.max_steps,
        )


def adopt(environment: Environment) -> None:
    """Register an environment from another process by its id, unless that id is registered already."""
    if environment.id not in _environments:
        register(environment)


def list_envs() -> list[str]:
    """Return the ids of all known environments, sorted: the built-in ones and those defined so far."""
    load_built_in()
    return sorted(_environments)


def find(environment: str | Environment) -> Environment:
    """Return the environment with an id; an Environment is returned unchanged."""
    if not isinstance(environment, str):
        return environment
    if environment not in _environments:
        load_built_in()
    if environment not in _environments:
        raise ValueError(f"there is no environment {environment!r}: {_instead(environment)}")
    return _environments[environment]


def load_built_in() -> None:
    """Import all modules of built-in environments, once; each registers the environments it defines."""
    global _loaded
    if not _loaded:
        _loaded = True
        for module in pkgutil.walk_packages(importlib.import_module(BUILT_IN).__path__, f"{BUILT_IN}."):
            importlib.import_module(module.name)


def _instead(name: str) -> str:
    """Suggest a replacement for an unknown environment name."""
    if (near := nearest_id(name, list_envs())) is not None:
        return f"did you mean {near!r}?" + (f" Gymnasium's is 'gym:{name}'" if name in gymnasium.registry else "")
    if (theirs := nearest_id(name, gymnasium.registry)) is not None:
        return f"Gymnasium's is 'gym:{name if name in gymnasium.registry else theirs}'"
    return "velocirl.list_envs() shows those there are, and gym:ID is one of Gymnasium's"


def found_anywhere(environment: Environment) -> bool:
    """Return whether the id finds this environment in every process: it is built in, and its id was not redefined."""
    return _built_in(environment) and _environments.get(environment.id) is environment


def _built_in(environment: Environment) -> bool:
    return environment.source.startswith(f"{BUILT_IN}.")
