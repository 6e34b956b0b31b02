"""Atari games in ALE's own vector environment: emulators and image processing in C++, on threads of this process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from velocirl.engine.targets.cores import available_cores
from velocirl.vector.host.copies import Arrays, Description, Records, Source
from velocirl.vector.host.interface import HostInterface, Seeds, any_of
from velocirl.vector.preprocessing.wrappers import Atari

SINGLE, VECTOR = "ale_py.env:AtariEnv", "ale_py.vector_env:AtariVectorEnv"
FRAME_LIMIT = "max_num_frames_per_episode"
# Arguments that both of ALE's environments accept, the single one and the vector.
SHARED = {
    "game",
    "repeat_action_probability",
    "full_action_space",
    "continuous",
    "continuous_action_threshold",
    FRAME_LIMIT,
}
SKIPPING = {"frameskip"}  # preprocessing skips frames itself


def is_game(source: Any) -> bool:
    """Return whether the source is an ALE game."""
    return isinstance(source, EnvSpec) and source.entry_point == SINGLE


def has_vector(source: Source, arguments: Mapping[str, Any]) -> bool:
    """Return whether ALE's vector environment supports this game with these arguments."""
    return (
        isinstance(source, EnvSpec)
        and source.vector_entry_point == VECTOR
        and not source.additional_wrappers
        and source.max_episode_steps is None
        and source.kwargs.keys() <= SHARED | SKIPPING
        and arguments.keys() <= SHARED
    )


def ale_seed(seed: int | None) -> int:
    """Return an emulator's seed, mixed as in ALE's single environment, in the 31 bits its vector accepts; -1: none."""
    if seed is None:
        return -1
    return int(np.random.SeedSequence(seed).generate_state(2)[1]) & 0x7FFFFFFF


class ALEVectorEnv(HostInterface, VectorEnv):
    """Vector environment of an ALE game, preprocessed as configured by `Atari` and stepped by ALE.

    It matches `wrappers` with two exceptions. The final frame of a terminated or truncated game is not part of the last
    observation, which shows the frames before it. And ALE samples the no-ops itself, from 0 on.
    """

    def __init__(
        self,
        source: EnvSpec,
        num_envs: int,
        switches: Atari,
        *,
        seed: Seeds = None,
        copy: bool = True,
        limit: int | None = None,
        threads: int | None = None,
        **arguments: Any,
    ) -> None:
        super().__init__(source, num_envs, seed, AutoresetMode.SAME_STEP, copy, infos=False, arguments=arguments)
        from ale_py.vector_env import AtariVectorEnv  # the extra `atari`

        self.preprocess, self._by_life = switches, switches.life_loss
        given = {name: value for name, value in source.kwargs.items() if name not in SKIPPING} | arguments
        if limit is not None:
            given[FRAME_LIMIT] = min(limit * switches.skip, given.get(FRAME_LIMIT, limit * switches.skip))
        # ALE writes its mode into the class's metadata, which all of Gymnasium's vector environments share.
        own = type(AtariVectorEnv.__name__, (AtariVectorEnv,), {"metadata": {}})
        self._ale = own(
            num_envs=self.num_envs,
            num_threads=min(self.num_envs, threads or available_cores()),
            autoreset_mode=AutoresetMode.SAME_STEP,
            img_height=switches.size,
            img_width=switches.size,
            grayscale=switches.gray,
            stack_num=switches.stack,
            frameskip=switches.skip,
            maxpool=switches.skip > 1,
            noop_max=switches.noops + 1 if switches.noops else 0,  # ALE samples below this number
            reward_clipping=switches.clip_rewards,
            use_fire_reset=False,
            **given,
        )
        space: Any = self._ale.single_observation_space
        if switches.stack == 1:
            space = Box(0, 255, space.shape[1:], np.uint8)
        description = Description(space, self._ale.single_action_space, {}, None)
        self._adopt(description)
        self._arrays = Arrays.allocate(description, self.num_envs)
        self._arrays.action_masks[:] = 1
        shape = self._ale.observation_space.shape
        self._seen, self._final = (
            array.reshape(shape) for array in (self._arrays.observations, self._arrays.final_observations)
        )
        self._young: dict[int, int] = {}  # images so far, for environments without a full stack yet
        self._lives: list[int] = []
        self._returns, self._lengths = np.zeros(self.num_envs), np.zeros(self.num_envs, np.int64)

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:  # noqa: ARG002
        """Raise AttributeError: environments in C++ have no attributes."""
        raise AttributeError(
            f"{self.name} steps in ALE's own vector environment, whose copies have no {name!r}: make one with"
            ' render_mode="rgb_array", which steps in Python'
        )

    def close_extras(self, **kwargs: Any) -> None:  # noqa: ARG002
        """End the threads of the emulators."""
        del self._ale

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self.name} steps on threads of ALE's own, and can be neither copied nor pickled: call make_vec where the"
            " fleet is needed"
        )

    def _set_attr(self, name: str, values: list[Any]) -> None:  # noqa: ARG002
        self.call(name)

    def _reset_copies(
        self,
        seeds: dict[int, int | None],
        options: dict[str, Any] | None,  # noqa: ARG002 - a game takes none
    ) -> tuple[Records, NDArray[Any] | None]:
        chosen = np.zeros(self.num_envs, np.bool_)
        chosen[list(seeds)] = True
        mask = None if chosen.all() else {"reset_mask": chosen}
        observations, infos = self._ale.reset(seed=np.array([ale_seed(seed) for seed in seeds.values()]), options=mask)
        self._arrays.terminated[chosen] = self._arrays.truncated[chosen] = False
        self._seen[chosen], self._lives = observations[chosen], infos["lives"].tolist()
        self._begin(seeds)
        return [], None

    def _step_copies(self) -> tuple[Records, NDArray[Any] | None]:
        arrays = self._arrays
        observations, rewards, terminated, truncated, infos = self._ale.step(arrays.actions)
        np.copyto(self._seen, observations)
        arrays.rewards[:], arrays.terminated[:], arrays.truncated[:] = rewards, terminated, truncated
        before, self._lives = self._lives, infos["lives"].tolist()
        self._returns += arrays.rewards
        self._lengths += 1
        over = any_of(terminated) or any_of(truncated)
        lost = self._by_life and self._lives != before
        if not (over or lost or self._young):
            return [], None
        ended = terminated | truncated
        if over:
            self._final[ended] = infos["final_obs"][ended]
        if lost:
            self._end_lives(before, ended)
        arrays.episode_returns[ended], arrays.episode_lengths[ended] = self._returns[ended], self._lengths[ended]
        self._age(ended)
        self._begin(np.flatnonzero(ended).tolist())
        return [], None

    def _end_lives(self, before: list[int], ended: NDArray[np.bool_]) -> None:
        """End the episodes of environments that lost a life; ALE alone would not, or would restart the game."""
        for copy, (earlier, lives) in enumerate(zip(before, self._lives, strict=True)):
            if 0 < lives < earlier and not ended[copy]:
                self._final[copy] = self._seen[copy]
                ended[copy] = self._arrays.terminated[copy] = True

    def _begin(self, copies: Iterable[int]) -> None:
        """Begin episodes with the current observation."""
        for copy in copies:
            self._seen[copy, :-1] = self._seen[copy, -1]
            self._young[copy] = 1
            self._returns[copy], self._lengths[copy] = 0.0, 0

    def _age(self, ended: NDArray[np.bool_]) -> None:
        """Repeat an episode's first image in the slots before it, where ALE has black or images of another life."""
        for copy, pictures in list(self._young.items()):
            older = self.stack - pictures - 1
            if older > 0:
                stacks = self._final if ended[copy] else self._seen
                stacks[copy, :older] = stacks[copy, older]
                self._young[copy] = pictures + 1
            else:
                del self._young[copy]
