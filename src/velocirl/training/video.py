"""Videos of an agent while it learns."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from velocirl.engine.counts import require_count
from velocirl.runs.callback import Callback
from velocirl.runs.placement import tell
from velocirl.training.actors.playing import FORMATS, record_video
from velocirl.training.callbacks import Every

if TYPE_CHECKING:
    from velocirl.training.agent import Agent


class Video(Callback):
    """Films the agent every `every` steps and at the end, as DIRECTORY/step-000050000.gif (or .mp4, as `ending` says).

    Each video has `episodes` episodes in an environment of its own, from the same `seed` on, and at most `max_frames`
    frames. Where videos of another training are there, the next free name is taken and printed. What cannot be filmed
    is refused before the first step; a disk that is full later is a warning.
    """

    def __init__(
        self,
        directory: str | Path = "videos",
        every: int = 100_000,
        *,
        episodes: int = 1,
        seed: int | None = 0,
        deterministic: bool = True,
        fps: float | None = None,
        max_frames: int = 2000,
        ending: str = ".gif",
    ) -> None:
        self.directory = Path(directory)
        self.videos: list[Path] = []  # those that were written, oldest first
        self._every = Every(every)
        if ending not in FORMATS:
            raise ValueError(f"ending={ending!r} is unknown: use {' or '.join(FORMATS)}")
        self._ending = ending
        self._options = {
            "episodes": require_count("episodes", episodes),
            "seed": seed,
            "deterministic": deterministic,
            "fps": fps,
        }
        self._max_frames = require_count("max_frames", max_frames)

    def start(self, agent: Agent) -> None:
        """Count from where the agent is, and film one frame, so that what is missing shows before the first step."""
        self._every.start(agent.steps)
        free = _free(self.directory, agent.steps)
        if free != self.directory:
            tell(f"{self.directory} has videos of another training: those of this one are saved in {free}")
            self.directory = free
        self.directory.mkdir(parents=True, exist_ok=True)
        trial = self.directory / f".trial{self._ending}"
        try:
            record_video(agent, trial, **{**self._options, "max_frames": 1})
        finally:
            trial.unlink(missing_ok=True)

    def step(self, agent: Agent) -> bool | None:
        """Film where it is time."""
        if self._every.due(agent.steps) or agent.finished:
            path = self.directory / f"step-{agent.steps:09d}{self._ending}"
            try:
                self.directory.mkdir(parents=True, exist_ok=True)
                record_video(agent, path, **self._options, max_frames=self._max_frames)
            except OSError as error:
                warnings.warn(f"the video {path} could not be written: {error}", stacklevel=2)
            else:
                self.videos.append(path)
        return None


def _free(directory: Path, steps: int) -> Path:
    """The first of DIRECTORY, DIRECTORY-2, ... in which no video is of a later step than an agent has taken."""
    place, number = directory, 1
    while any(int(path.stem.removeprefix("step-")) > steps for path in place.glob("step-[0-9]*.*")):
        number += 1
        place = directory.with_name(f"{directory.name}-{number}")
    return place
