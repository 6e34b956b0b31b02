"""What a saved agent names and does not bring: its environment, and the file of its memory."""

from __future__ import annotations

from velocirl.engine import registry
from velocirl.runs.directory import Run
from velocirl.runs.memory_files import ROWS
from velocirl.runs.state_file import State
from velocirl.vector.given import GIVEN

RECORDED = "data:"  # how the name of an environment begins of which only recorded data is known


def named_environment(environment: str, file: str) -> str:
    """The environment that a file names, unless finding it would import a module: what is loaded executes nothing."""
    if str(environment).startswith(GIVEN):
        raise ValueError(
            f"{file} was trained in an environment that was given as an object, {environment.removeprefix(GIVEN)!r}:"
            " give it again as env="
        )
    if str(environment).count(":") > 1:
        raise ValueError(
            f"{file} names {environment!r}, and making that would import a module; if you trust it, give env="
        )
    return environment


def require_known(environment: str, model: str, run: Run | None) -> None:
    """Refuse what was trained in an environment that nobody has defined here: no file holds code."""
    if ":" in environment or environment in registry.list_envs():
        return
    plan = None if run is None else run.description.plan
    file = "the file that defines it" if plan is None or plan.environment_file is None else plan.environment_file
    raise ValueError(
        f"{model} was trained in {environment!r}, which is no environment that is known here: import {file} first, or"
        " give the environment as env="
    )


def unasked_file(buffer_file: str | None, state: State, name: str) -> None:
    """The file of a memory that nobody asked for: none, as a path that stands in a file is not opened for that."""
    if buffer_file is not None and len(state.arrays.get(ROWS, ())):
        raise ValueError(
            f"{name} wants its memory in the file {buffer_file}: give buffer_file={buffer_file!r} if it may be made or"
            " written there, or buffer_file=None to have it in memory"
        )
