"""Environments named by id, as gym:ID, or by the Python file that defines them.

Environments are code, while runs, models and configurations are data. Code named only by such data is refused, unless
the user named it in a command before with the same content (see `trust`). The bytes that are imported are the bytes
that were checked.
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
HANDED: dict[str, Any] = {}  # environments passed to this process as objects, by name; see `cli.train.given`


@dataclass(frozen=True)
class Chosen:
    """An environment for an agent, and the file that defines it, if any."""

    environment: Any  # as agents accept it
    id: str
    file: Path | None = None
    sha256: str | None = None  # of that file's content as it was imported

    @property
    def spelled(self) -> str:
        """The environment as written on a command line, valid in any directory."""
        return self.id if self.file is None else f"{self.file}:{self.id}"


def choose(name: str, *, named_by: str | None = None, trust: bool = False, quiet: bool = False) -> Chosen:
    """Find the environment of `ID`, `gym:ID`, `file.py` or `file.py:ID`.

    `named_by` is the file that named the environment, if it was not the user's command line. Its code must then be
    known, or trusted by `--trust`, and its import is reported.
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
    """Raise for an environment whose code is not trusted; returns the content of its defining file, read once."""
    file, _ = _split(name)
    if file is None:
        if name.startswith(GYMNASIUM) and ":" in name.removeprefix(GYMNASIUM):
            # module:ID, for which Gymnasium imports the module. Only Python can locate it, so its name is trusted.
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
    """Split `file.py:ID` into file and id; the file is None for other names."""
    before, colon, after = name.rpartition(":")
    if name.endswith(ENDING):
        return Path(name), ""
    return (Path(before), after) if colon and before.endswith(ENDING) else (None, name)


def _import(path: Path, source: bytes) -> list[Environment]:
    """Import a file with this content; returns the environments that it defines."""
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
