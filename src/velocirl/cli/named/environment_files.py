"""Environments that a person names: by id, as gym:ID, or by the Python file that defines them.

Environments are code, and runs, models and configurations are data: code that only they name is imported if this user
has named it in a command before, as it is now, and otherwise refused (see `trust`). What is imported are the very
bytes that were looked at.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from velocirl.cli.named.trust import Trusted, require_trust
from velocirl.engine import registry
from velocirl.engine.disk.files import read_plain
from velocirl.engine.environment import Environment
from velocirl.engine.naming import nearest
from velocirl.training.importing import import_file
from velocirl.vector.gymnasium_ids import find_spec
from velocirl.vector.making import GYMNASIUM

ENDING = ".py"
HANDED: dict[str, Any] = {}  # environments that this process was given as objects, by name; see `cli.train.given`


@dataclass(frozen=True)
class Chosen:
    """An environment for an agent, and the file that defines it, where there is one."""

    environment: Any  # as agents take it
    id: str
    file: Path | None = None
    sha256: str | None = None  # of that file, as it was imported

    @property
    def spelled(self) -> str:
        """How it is written on a command line, from anywhere."""
        return self.id if self.file is None else f"{self.file}:{self.id}"


def choose(name: str, *, named_by: str | None = None, trust: bool = False, quiet: bool = False) -> Chosen:
    """The environment of `ID`, `gym:ID`, `file.py` or `file.py:ID`.

    `named_by` says which file named it, where that was not the person at the command line; then code has to be known,
    or to be trusted by `--trust`, and it is said that it runs.
    """
    if name in HANDED:
        return Chosen(HANDED[name], name)
    source = vouch(name, named_by=named_by, trust=trust, quiet=quiet)
    file, inside = _split(name)
    if file is not None:
        path = _full(file)
        environment = _pick(path, _import(path, source), inside)
        return Chosen(environment, environment.id, path, _digest(source))
    if not name.startswith(GYMNASIUM):
        found = registry.find(name)
        return Chosen(found, found.id)
    find_spec(name.removeprefix(GYMNASIUM))
    return Chosen(name, name)


def vouch(name: str, *, named_by: str | None, trust: bool, quiet: bool) -> bytes:
    """Refuse an environment whose code is not trusted; gives the content of the file that defines it, read once."""
    file, _ = _split(name)
    if file is None:
        if name.startswith(GYMNASIUM) and ":" in name.removeprefix(GYMNASIUM):
            # module:ID, for which Gymnasium imports the module. Where that lies only Python knows: its name is trusted.
            require_trust(Trusted(name, ""), named_by, trust=trust, quiet=quiet)
        return b""
    path = _full(file)
    try:
        source = read_plain(path)
    except FileNotFoundError:
        raise ValueError(f"there is no file {path}, in which the environment should be defined") from None
    require_trust(Trusted(str(path), _digest(source)), named_by, trust=trust, quiet=quiet)
    return source


def _full(file: Path) -> Path:
    return file.expanduser().resolve()


def _digest(source: bytes) -> str:
    return hashlib.sha256(source).hexdigest()


def _split(name: str) -> tuple[Path | None, str]:
    """The file and the id of `file.py:ID`; no file where none is meant."""
    before, colon, after = name.rpartition(":")
    if name.endswith(ENDING):
        return Path(name), ""
    return (Path(before), after) if colon and before.endswith(ENDING) else (None, name)


def _import(path: Path, source: bytes) -> list[Environment]:
    """Import a file of this content and give back the environments that it defines."""
    before = [registry.find(name) for name in registry.list_envs()]
    import_file(path, source)
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
