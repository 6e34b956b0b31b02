"""Checkpoints of one run: the newest few, the best one, and recovery from damaged ones."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from velocirl.buffers.segments import Segment, remove_others
from velocirl.engine.disk.confined import ConfinedPath
from velocirl.engine.disk.writing import remove_unfinished
from velocirl.runs.memory_files import DIRECTORY, forget, read_checkpoint, segments_of, whole, write_checkpoint
from velocirl.runs.model_score import ModelScore
from velocirl.runs.state_file import DamagedStateError, State, read_state, write_state

BEST = "best.safetensors"
DAMAGED = ".damaged"
NAME = re.compile(r"step_(\d{12,})\.safetensors")


SCORE = "best"  # key in the document of the best state: {"metric": ..., "score": ...}


class NoCheckpointError(FileNotFoundError):
    """Error for a run without a usable checkpoint; the message lists what was tried."""


@dataclass(frozen=True)
class Checkpoint:
    """A loaded checkpoint, with the problems of newer ones."""

    path: Path
    step: int
    state: State
    problems: tuple[str, ...] = ()  # one line per newer checkpoint that was damaged and set aside


class Checkpoints:
    """Directory of checkpoints: keeps the newest `keep` and removes an old one once its successor is on disk.

    A large replay buffer (see `memory_files`) is stored next to them, in memory/. Each checkpoint appends only its new
    rows. Links below the directory are not followed; nor is the directory itself where its path is confined.
    """

    def __init__(self, directory: str | Path | ConfinedPath, keep: int = 3) -> None:
        if keep < 1:
            raise ValueError(f"keep must be at least 1 checkpoint, got {keep}")
        self._place = ConfinedPath.of(directory)
        self.directory = self._place.path
        self.keep = keep
        self._segments: dict[Path, list[Segment]] = {}  # segments of the replay buffer, by checkpoint
        remove_unfinished(self._place)

    @property
    def untouched(self) -> bool:
        """True if nothing has been saved yet, not even a file that is now damaged."""
        return not self._place.names()

    def any(self) -> bool:
        """Return whether there is a checkpoint of a step, or the best state."""
        return bool(self.steps()) or (self._place / BEST).is_file()

    def steps(self) -> dict[int, Path]:
        """Return the files of all saved steps, oldest first."""
        found = filter(None, map(NAME.fullmatch, self._place.names()))
        return dict(sorted((int(match[1]), self.directory / match[0]) for match in found))

    def save(self, step: int, arrays: Mapping[str, Any], document: Mapping[str, Any]) -> Path:
        """Save a step, then remove the oldest checkpoints beyond `keep`. Steps must not decrease."""
        newest = max(self.steps(), default=0)
        if step < 0:
            raise ValueError(f"a step is a count from 0, got {step}")
        if step < newest:
            raise ValueError(
                f"{self.directory} has a checkpoint of step {newest}, later than {step}: "
                "to go another way from an earlier step, start a new run"
            )
        path = self.directory / f"step_{step:012d}.safetensors"
        self._place.make_directory()
        self._segments = {one: self._needed_by(one) for one in self.steps().values()}
        known = next((some for some in reversed(self._segments.values()) if some), [])
        self._segments[path] = write_checkpoint(self._place / path.name, arrays, document, known)
        for old in list(self.steps().values())[: -self.keep]:
            (self._place / old.name).remove()
            self._segments.pop(old, None)
        remove_others(self._place / DIRECTORY, (one for some in self._segments.values() for one in some))
        return path

    def save_best(self, arrays: Mapping[str, Any], document: Mapping[str, Any]) -> Path:
        """Save the best state so far, without its replay buffer; it stays until a better one replaces it."""
        self._place.make_directory()
        write_state(self._place / BEST, whole(forget(arrays)), document)
        return self.directory / BEST

    def newest(self) -> tuple[int, dict[str, Any]] | None:
        """Return the newest saved step and its document: empty if it is damaged, None without a checkpoint."""
        steps = self.steps()
        if not steps:
            return None
        step = max(steps)
        try:
            return step, read_state(self._place / steps[step].name).document
        except (DamagedStateError, FileNotFoundError):
            return step, {}

    def best_document(self) -> dict[str, Any] | None:
        """Return the document of the best state: empty if it is damaged, None without such a state."""
        try:
            return self.best().document
        except NoCheckpointError:
            return None
        except DamagedStateError:
            return {}

    def clear_best(self) -> None:
        """Remove the best state."""
        (self._place / BEST).remove()

    def clear(self) -> None:
        """Remove the checkpoints, the best model and the replay buffer; other files in the directory stay."""
        for name in self._place.names():
            if name == BEST or NAME.fullmatch(name.removesuffix(DAMAGED)):
                (self._place / name).remove()
        remove_others(self._place / DIRECTORY, ())

    def latest(self, *, memory: bool = True) -> Checkpoint:
        """Return the newest intact checkpoint. Damaged ones are set aside with a warning and never used.

        Without `memory`, the replay buffer is not read, so it may be damaged: enough to watch the agent act.
        """
        problems: list[str] = []
        tried: set[Path] = set()
        while left := {step: path for step, path in self.steps().items() if path not in tried}:
            step = max(left)
            path = left[step]
            tried.add(path)
            try:
                return Checkpoint(path, step, read_checkpoint(self._place / path.name, memory=memory), tuple(problems))
            except FileNotFoundError:  # removed a moment ago by a running process, which has newer ones
                continue
            except DamagedStateError as error:
                if not (self._place / path.name).exists():  # removed a moment ago, with its replay buffer
                    continue
                with contextlib.suppress(OSError):  # where renaming fails, skipping the file is enough
                    (self._place / path.name).rename(f"{path.name}{DAMAGED}")
                problems.append(f"{error}; it is set aside as {path.name}{DAMAGED}")
                warnings.warn(problems[-1], stacklevel=2)
        tail = "".join(f"\n  {problem}" for problem in problems)
        raise NoCheckpointError(f"there is no usable checkpoint in {self.directory}{tail}")

    def best(self) -> State:
        """Return the best saved state."""
        path = self._place / BEST
        if not path.exists():
            raise NoCheckpointError(f"no best state was saved in {self.directory}")
        return read_state(path)

    def best_score(self, metric: str) -> ModelScore | None:
        """Return the score of the best state; None without such a state, or if it was scored by another metric."""
        found = ModelScore.read((self.best_document() or {}).get(SCORE))
        return found if found is not None and found.metric == metric else None

    def _needed_by(self, path: Path) -> list[Segment]:
        return self._segments[path] if path in self._segments else segments_of(self._place / path.name)
