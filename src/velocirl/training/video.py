"""Video recording during training."""

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
    """Records a video every `every` steps and at the end, as DIRECTORY/step-000050000.gif (or .mp4).

    If the directory has videos of another training, the next free name is used and printed. If recording is impossible,
    an error is raised before the first step. A full disk later is only a warning.

    Args:
        directory: Directory of the videos.
        every: Steps between videos, counted over all environments.
        episodes: Episodes per video, in a separate environment.
        seed: Seed of the first episode of each video.
        deterministic: Whether the agent takes its deterministic action instead of sampling one.
        fps: Frames per second; by default the environment's own rate.
        max_frames: Maximum number of frames of a video.
        ending: File format: ".gif" or ".mp4".
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
        self.videos: list[Path] = []  # written videos, oldest first
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
        """Start counting at the agent's step; record one frame, so that errors show before the first step."""
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
        """Record a video if it is due."""
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
    """Return the first of DIRECTORY, DIRECTORY-2, ... without videos of later steps than the agent's."""
    place, number = directory, 1
    while any(int(path.stem.removeprefix("step-")) > steps for path in place.glob("step-[0-9]*.*")):
        number += 1
        place = directory.with_name(f"{directory.name}-{number}")
    return place
