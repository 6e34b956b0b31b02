"""Image preprocessing of Gymnasium environments: skip, resize, stack; by Gymnasium's wrappers and three of our own.

Imports nothing of velocirl, like `vector.host.copies`: a worker process receives this code and starts without numba.
"""

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import (
    AtariPreprocessing,
    FrameStackObservation,
    GrayscaleObservation,
    MaxAndSkipObservation,
    ReshapeObservation,
    ResizeObservation,
    TimeLimit,
    TransformReward,
)

COLOURS, ONE_CHANNEL = 3, 1


@dataclass(frozen=True)
class Atari:
    """Preprocessing of Mnih et al. (2015), each part an option of its own."""

    skip: int = 4
    """Frames for which an action is repeated; what is seen is the maximum of the last two. 1 turns it off."""
    stack: int = 4
    """Pictures in an observation, the oldest first; the first of an episode is repeated. 1 turns it off."""
    size: int = 84
    """Height and width to which pictures are shrunk, by area. 0 leaves them as they are."""
    gray: bool = True
    """Whether pictures are gray."""
    life_loss: bool = True
    """Whether an episode ends where a life is lost, in training; the game goes on with the next episode."""
    clip_rewards: bool = True
    """Whether a reward is its sign, in training."""
    noops: int = 30
    """The most frames at the beginning of a game in which nothing is done, a random number of them. 0 turns it off."""

    def __post_init__(self) -> None:
        for name, least in (("skip", 1), ("stack", 1), ("size", 0), ("noops", 0)):
            value = getattr(self, name)
            if not least <= value <= 1024:
                raise ValueError(f"preprocess: {name} must be a whole number from {least} to 1024, not {value!r}")


class MaxAndSkip(gymnasium.Wrapper):
    """Frame skip that repeats an action and returns the maximum of the last two frames.

    Like Gymnasium's MaxAndSkipObservation, except that an episode which ends early returns its actual last frames, not
    earlier ones.
    """

    def __init__(self, env: gymnasium.Env, skip: int) -> None:
        super().__init__(env)
        self._skip = skip

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Repeat the action until the episode ends; sums the rewards and, if infos have any, the costs."""
        total, costs, pictures = 0.0, [], []
        terminated, truncated, info = False, False, {}
        for _ in range(self._skip):
            observation, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            pictures.append(observation)
            costs += [float(info["cost"])] if "cost" in info else []
            if terminated or truncated:
                break
        if costs:
            info = {**info, "cost": sum(costs)}
        return np.maximum(*pictures[-2:]) if len(pictures) > 1 else pictures[0], total, terminated, truncated, info


class RandomNoops(gymnasium.Wrapper):
    """No-op start: games begin after a random number of idle frames, sampled as in AtariPreprocessing."""

    def __init__(self, env: gymnasium.Env, most: int) -> None:
        super().__init__(env)
        self._most = most

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin a game, and wait a random number of frames."""
        observation, info = self.env.reset(seed=seed, options=options)
        for _ in range(self.unwrapped.np_random.integers(1, self._most + 1)):
            observation, _, terminated, truncated, more = self.env.step(0)
            info.update(more)
            if terminated or truncated:
                observation, info = self.env.reset(options=options)
        return observation, info


class LifeLoss(gymnasium.Wrapper):
    """One episode per life of a game.

    The reset after a lost life continues the game; the game restarts only when it is over. Otherwise an agent would
    never see what follows its first life.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self._lives, self._goes_on = 0, False
        self._seen: tuple[Any, dict[str, Any]] = None, {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin the next life; with a seed, a new game."""
        if not self._goes_on or seed is not None:
            self._seen = self.env.reset(seed=seed, options=options)
        self._goes_on = False
        self._lives = self._seen[1]["lives"]
        return self._seen

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take a step; a lost life terminates the episode."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        # Some games show their last frames with no life left before they are over.
        self._goes_on = 0 < info["lives"] < self._lives and not (terminated or truncated)
        self._lives, self._seen = info["lives"], (observation, info)
        return observation, reward, bool(terminated) or self._goes_on, truncated, info


def preprocessed(env: gymnasium.Env, switches: Atari, limit: int | None = None) -> gymnasium.Env:
    """Wrap the environment in its preprocessing; `limit` is the maximum number of agent steps in a game, or None.

    Raises ValueError, with the alternative to write, for an option that does not apply to the environment.
    """
    name = type(env.unwrapped).__name__ if env.spec is None else env.spec.id
    _require_untouched(env, switches, name)
    _require_pictures(env.observation_space, name)
    _require_games(env, switches, name)
    if switches.noops:
        env = RandomNoops(env, switches.noops)
    if switches.skip > 1:
        env = MaxAndSkip(env, switches.skip)
    shape: Any = env.observation_space.shape
    if switches.gray and shape[2:] == (COLOURS,):
        env = GrayscaleObservation(env)
    elif switches.gray and shape[2:] == (ONE_CHANNEL,):
        env = ReshapeObservation(env, shape[:2])
    if switches.size and shape[:2] != (switches.size, switches.size):
        env = ResizeObservation(env, (switches.size, switches.size))
    if limit is not None:
        env = TimeLimit(env, limit)
    if switches.life_loss:
        env = LifeLoss(env)
    if switches.stack > 1:
        env = FrameStackObservation(env, switches.stack)
    if switches.clip_rewards:
        env = TransformReward(env, lambda reward: float(np.sign(float(reward))))
    return env


def _require_untouched(env: gymnasium.Env, switches: Atari, name: str) -> None:
    """Raise ValueError for preprocessing that the environment already does."""
    own = getattr(env.unwrapped, "_frameskip", 1)  # the attribute's name in ALE's environments
    if switches.skip > 1 and own != 1:
        raise ValueError(
            f"{name} skips frames already (frameskip={own}), and preprocess would skip {switches.skip} of those: make"
            " it with frameskip=1, or write atari(skip=1)"
        )
    layer = env
    while isinstance(layer, gymnasium.Wrapper):
        skips = isinstance(layer, (MaxAndSkipObservation, AtariPreprocessing, MaxAndSkip))
        if skips and switches.skip > 1:
            raise ValueError(
                f"{name} skips frames already, by {type(layer).__name__}: leave that out, or write atari(skip=1)"
            )
        if isinstance(layer, FrameStackObservation):
            raise ValueError(f"{name} stacks its pictures already, by {type(layer).__name__}: leave that out")
        layer = layer.env


def _require_pictures(space: gymnasium.Space, name: str) -> None:
    """Raise ValueError for observations that are not a single image."""
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8 or len(space.shape) < 2:
        raise ValueError(f"preprocess is for pictures of numbers from 0 to 255, and {name} observes {space}")
    shape = space.shape
    if len(shape) == 2 or (len(shape) == 3 and shape[2] in (ONE_CHANNEL, COLOURS)):
        if space.low.any() or (space.high != 255).any():
            raise ValueError(f"preprocess is for pictures of numbers from 0 to 255, and {name} observes {space}")
        return
    if len(shape) == 3 and shape[0] in (ONE_CHANNEL, COLOURS):
        raise ValueError(
            f"{name} observes pictures of shape {shape}, their channels first: preprocess reads (height, width,"
            f" {shape[0]}), which gymnasium.wrappers.TransformObservation can make of them"
        )
    raise ValueError(
        f"{name} observes {shape}, which is more than one picture of (height, width) or (height, width, {COLOURS}):"
        " preprocess stacks them itself, so give it an environment that does not"
    )


def _require_games(env: gymnasium.Env, switches: Atari, name: str) -> None:
    """Raise ValueError for the options on lives and no-ops if the environment has none."""
    without = []
    meanings = env.get_wrapper_attr("get_action_meanings")() if env.has_wrapper_attr("get_action_meanings") else [""]
    if switches.life_loss and not hasattr(env.unwrapped, "ale") and "lives" not in env.reset()[1]:
        without.append(("no lives", "life_loss=false"))
    if switches.noops and meanings[0] != "NOOP":
        without.append(("no action that is a NOOP", "noops=0"))
    if without:
        what, instead = zip(*without, strict=True)
        raise ValueError(f'{name} has {" and ".join(what)}: write preprocess="atari({", ".join(instead)})"')
