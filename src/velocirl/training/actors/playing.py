"""Episodes of an agent for viewing: time step by time step, or as a video."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

from velocirl.training.evaluation import Evaluation

if TYPE_CHECKING:
    from velocirl.training.agent import Agent

FORMATS = (".gif", ".mp4")
FRAMES_PER_SECOND = 30  # if the environment declares none
GIF_TICK = 10  # milliseconds: resolution of frame durations in a GIF


class Moment(NamedTuple):
    """Time step of a viewed episode: after a step, or at the start of an episode."""

    picture: Any  # text, array (height, width, 3) or canvas; None if a window shows it, or it is not wanted
    episode: int
    step: int
    total: float  # reward so far
    ended: bool
    fps: float  # time steps per second, as the environment declares it


def moments(
    agent: Agent,
    mode: str,
    *,
    episodes: int = 1,
    seed: int | None = 0,
    deterministic: bool = True,
    drawn: Callable[[], bool] = lambda: True,
) -> Iterator[Moment]:
    """Play whole episodes in the agent's training environment and yield each time step; `mode` is a render mode.

    Episode k starts with the seed `seed + k`. If `drawn` returns False, the next time step has no image, unless it ends
    an episode.
    """
    if episodes < 1:
        raise ValueError(f"episodes must be at least 1, got {episodes}")
    try:
        with closing(agent.source.make_shown(mode)) as env:
            for episode in range(episodes):
                yield from _episode(agent, env, episode, None if seed is None else seed + episode, deterministic, drawn)
    except (gymnasium.error.Error, RuntimeError) as error:  # no display, or a package that draws is missing
        raise ValueError(f"{agent.source.id} cannot be shown: {error}") from error


def _episode(
    agent: Agent,
    env: gymnasium.Env,
    episode: int,
    seed: int | None,
    deterministic: bool,
    drawn: Callable[[], bool],
) -> Iterator[Moment]:
    fps = rate_of(env)
    observation, infos = env.reset(seed=seed)
    state, step, total, ended = None, 0, 0.0, False
    yield Moment(env.render(), episode, step, total, ended, fps)
    while not ended:
        masks = infos.get("action_mask")
        action, state = agent.predict(observation, state, deterministic=deterministic, action_masks=masks)
        observation, reward, terminated, truncated, infos = env.step(action)
        step, total, ended = step + 1, total + float(reward), bool(terminated or truncated)
        yield Moment(env.render() if ended or drawn() else None, episode, step, total, ended, fps)


def rate_of(env: gymnasium.Env) -> float:
    """Return the steps per second at which an environment is viewed."""
    return float(env.metadata.get("render_fps") or FRAMES_PER_SECOND)


def record_video(
    agent: Agent,
    path: str | Path,
    *,
    episodes: int = 1,
    seed: int | None = 0,
    deterministic: bool = True,
    fps: float | None = None,
    max_frames: int | None = None,
    watch: Callable[[Moment], Any] | None = None,
) -> Evaluation:
    """Record a video of an agent, as a GIF or MP4 according to the suffix of `path`.

    A video has one frame for the start of each episode and one for each step. If recording is interrupted (Ctrl-C), the
    video recorded so far is kept.

    Args:
        agent: Agent to record, in the environment that it was trained in.
        path: File to write, ending in .gif or .mp4.
        episodes: Number of episodes.
        seed: Seed of the first episode; episode k starts with `seed + k`. None draws the seeds.
        deterministic: Whether the agent takes its deterministic action instead of sampling one.
        fps: Frames per second; by default the environment's own rate.
        max_frames: Stop after this many frames.
        watch: Called after each frame with its `Moment`.

    Returns:
        The evaluation of the episodes that were recorded to their end.

    Raises:
        ValueError: If the environment cannot be rendered, a package for videos is missing, or `path` cannot be written.
    """
    path = film_path(path)
    film: _Film | None = None
    returns, lengths = [], []
    played = moments(agent, "rgb_array", episodes=episodes, seed=seed, deterministic=deterministic)
    try:
        for count, one in enumerate(played, 1):
            if one.picture is None:
                raise ValueError(f"{agent.source.id} draws no pictures: give its Environment a draw=")
            film = film or _Film(path, fps or one.fps)
            film.add(one.picture)
            if one.ended:
                returns.append(one.total)
                lengths.append(one.step)
            if watch is not None:
                watch(one)
            if count == max_frames:
                break
    except BaseException as error:
        if film is not None:
            film.end(keep=isinstance(error, KeyboardInterrupt))
        raise
    if film is not None:
        film.end(keep=True)
    return Evaluation(np.array(returns), np.array(lengths, np.int64))


def film_path(path: str | Path) -> Path:
    """Return `path` as a Path; raises ValueError unless a video can be written there."""
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise ValueError(f"{path} must end in {' or '.join(FORMATS)}")
    if not path.parent.is_dir():
        raise ValueError(f"there is no directory {path.parent}")
    return path


class _Film:
    """Video file that is written under a temporary name and renamed when complete."""

    def __init__(self, path: Path, fps: float) -> None:
        self._path, self._partial = path, path.with_name(f".{path.stem}.{os.getpid()}{path.suffix.lower()}")
        try:
            self._frames = _GIF(self._partial, fps) if self._partial.suffix == ".gif" else _mp4(self._partial, fps)
        except ImportError as error:
            raise ValueError('films need Pillow and imageio: pip install "velocirl[render]"') from error

    def add(self, picture: NDArray[np.uint8]) -> None:
        self._frames.append_data(np.asarray(picture, np.uint8))

    def end(self, *, keep: bool) -> None:
        try:
            self._frames.close()
            if keep:
                self._partial.replace(self._path)
        finally:
            with suppress(FileNotFoundError):
                self._partial.unlink()


def _mp4(path: Path, fps: float) -> Any:
    import imageio.v2 as imageio

    return imageio.get_writer(path, fps=fps, macro_block_size=2, ffmpeg_log_level="error")  # sides must be even


class _GIF:
    """GIF writer: 256 colors per frame, by Pillow's fastest quantizer."""

    def __init__(self, path: Path, fps: float) -> None:
        from PIL import Image

        self._image, self._path, self._frames = Image, path, []
        self._lasts = max(1, round(1000 / fps / GIF_TICK)) * GIF_TICK

    def append_data(self, picture: NDArray[np.uint8]) -> None:
        whole, octree = self._image.fromarray(picture), self._image.Quantize.FASTOCTREE
        self._frames.append(whole.quantize(256, octree, dither=self._image.Dither.NONE))

    def close(self) -> None:
        first, *others = self._frames
        first.save(self._path, save_all=True, append_images=others, duration=self._lasts, loop=0)
