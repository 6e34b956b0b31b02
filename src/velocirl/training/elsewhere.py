"""Transfer of saved agents to another environment whose observations and actions have the same shapes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from velocirl.engine.warning import warn_caller
from velocirl.training.source import Given, is_compiled
from velocirl.vector.given import GIVEN
from velocirl.vector.making import GYMNASIUM

if TYPE_CHECKING:
    from velocirl.training.persistence import Document, Saving

IN_PYTHON = (GYMNASIUM, GIVEN)  # name prefixes of environments in Python
OF_COMPILED = ("params", "scenario", "check", "skip", "stack")  # settings of one kind of environment
BOUNDS = re.compile(r"Box\([^()]*, (\([\d, ]*\)), (float\d+|\w+)\)")


def settings_elsewhere(
    environment: str, saved: Mapping[str, Any], env: Given, changes: Mapping[str, Any]
) -> dict[str, Any]:
    """Return new values of settings that do not apply in `env`; `environment` is the id of the saved environment."""
    settings: dict[str, Any] = {}
    if is_compiled(env) == environment.startswith(IN_PYTHON):
        settings = {name: False if name == "check" else None for name in OF_COMPILED if name in saved}
    count = getattr(env, "num_envs", len(env) if isinstance(env, (list, tuple)) else None)
    if count is not None and not is_compiled(env) and "num_envs" in saved:
        settings["num_envs"] = count
    return {name: value for name, value in settings.items() if name not in changes}


def begins_elsewhere(agent: Saving, document: Document, arrays: Mapping[str, Any], name: str) -> bool:
    """Return whether a saved agent must start new episodes; raises for an environment of other shapes.

    Learned arrays are kept in this case, and training warns about the new start.
    """
    saved = {key: getattr(document, key) for key in agent.source.signature()}
    own, scaled = agent.source.signature(), getattr(agent.config, "scale_observations", False)
    if saved != own and not _fits(saved, own, scaled=scaled):
        by = " (scale_observations=True scales by bounds)" if scaled else ""
        raise ValueError(f"{name} was trained with {saved}; {agent.source.id} has {own}{by}")
    native = agent.source.native is not None
    began = any(one.startswith("fleet.") for one in arrays)
    other_count = "num_envs" in document.config and document.config["num_envs"] != agent.config.num_envs
    counted = agent.source.num_envs is not None and not native
    from_python = document.environment.startswith(IN_PYTHON) and native and _has_learned(agent, arrays)
    return saved != own or (began and not native) or from_python or (other_count and counted)


def tell_of_beginning(agent: Saving) -> None:
    """Warn that training continues with new episodes and an empty replay buffer."""
    buffer = " and the replay buffer is empty" if hasattr(agent.config, "buffer_size") else ""
    warn_caller(f"{agent.label} goes on in {agent.source.id}, where its episodes begin anew{buffer}")


def _has_learned(agent: Saving, arrays: Mapping[str, Any]) -> bool:
    return bool(arrays.keys() - agent.specs({}).keys() - agent.recent.specs().keys())


def _fits(saved: Mapping[str, str], own: Mapping[str, str], *, scaled: bool) -> bool:
    """Return whether observations have equal shapes, if `scaled` also equal bounds, and action spaces are equal."""
    seen = [one["observation_space"] for one in (saved, own)]
    seen = seen if scaled else [BOUNDS.sub(_shape, text) for text in seen]
    return seen[0] == seen[1] and saved["action_space"] == own["action_space"]


def _shape(found: re.Match[str]) -> str:
    kind = "float" if found[2].startswith("float") else found[2]
    return f"Box({found[1]}, {kind})"
