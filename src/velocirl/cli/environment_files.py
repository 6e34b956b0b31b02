"""Environments that a person names: by id, as gym:ID, or by the Python file that defines them.

Environments are code, and runs, models and configurations are data: code that only they name is imported if this user
has named it in a command before, and otherwise refused.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

import gymnasium
import msgspec

from velocirl.engine import registry
from velocirl.engine.directories import data_directory
from velocirl.engine.environment import Environment
from velocirl.engine.naming import nearest
from velocirl.training.importing import import_file
from velocirl.vector.making import GYMNASIUM

NAMED = "environment_files.jsonl"  # in the data directory: the code that this user has named
ENDING = ".py"


@dataclass(frozen=True)
class Chosen:
    """An environment for an agent, and the file that defines it, where there is one."""

    environment: str | Environment
    id: str
    file: Path | None = None

    @property
    def spelled(self) -> str:
        """How it is written on a command line, from anywhere."""
        return self.id if self.file is None else f"{self.file}:{self.id}"


def choose(name: str, *, named_by: str | None = None) -> Chosen:
    """The environment of `ID`, `gym:ID`, `file.py` or `file.py:ID`.

    `named_by` says which file named it, where that was not the person at the command line.
    """
    file, inside = _split(name)
    if file is not None:
        path = file.expanduser().resolve()
        if not path.is_file():
            raise ValueError(f"there is no file {path}, in which the environment should be defined")
        _check_trust(str(path), named_by)
        environment = _pick(path, _import(path), inside)
        return Chosen(environment, environment.id, path)
    if not name.startswith(GYMNASIUM):
        found = registry.find(name)
        return Chosen(found, found.id)
    own = name.removeprefix(GYMNASIUM)
    if ":" in own:  # module:ID, for which Gymnasium imports the module
        _check_trust(name, named_by)
    try:
        gymnasium.spec(own)
    except (gymnasium.error.Error, ModuleNotFoundError) as error:
        raise ValueError(f"Gymnasium has no environment {own!r}: {error}") from None
    return Chosen(name, name)


def _split(name: str) -> tuple[Path | None, str]:
    """The file and the id of `file.py:ID`; no file where none is meant."""
    before, colon, after = name.rpartition(":")
    if name.endswith(ENDING):
        return Path(name), ""
    return (Path(before), after) if colon and before.endswith(ENDING) else (None, name)


def _import(path: Path) -> list[Environment]:
    """Import a file and give back the environments that it defines."""
    before = [registry.find(name) for name in registry.list_envs()]
    import_file(path)
    after = [registry.find(name) for name in registry.list_envs()]
    return [environment for environment in after if environment not in before]


def _pick(path: Path, defined: list[Environment], wanted: str) -> Environment:
    ids = [environment.id for environment in defined]
    if not ids:
        raise ValueError(f"{path} defines no environment: a velocirl.Environment(...) at its top level is missing")
    if wanted and wanted not in ids:
        raise ValueError(f"{path} defines no {wanted!r}{nearest(wanted, ids)}")
    if not wanted and len(ids) > 1:
        raise ValueError(f"{path} defines {len(ids)} environments: choose one, such as {path.name}:{ids[0]}")
    return defined[ids.index(wanted)] if wanted else defined[0]


def _check_trust(code: str, named_by: str | None) -> None:
    """Remember code that the person named; refuse what only a file names, unless it is remembered."""
    index = data_directory() / NAMED
    remembered = set()
    for line in index.read_bytes().splitlines() if index.exists() else ():
        with contextlib.suppress(msgspec.MsgspecError):  # torn by a kill
            remembered.add(msgspec.json.decode(line, type=str))
    if code in remembered:
        return
    if named_by is not None:
        raise ValueError(f"{named_by} wants {code} imported, which is code: if you trust it, name it in the command")
    with contextlib.suppress(OSError):  # then it has to be named again where a run of it is resumed
        index.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(index, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(handle, msgspec.json.encode(code) + b"\n")
        finally:
            os.close(handle)
