"""A fleet of one environment behind Gymnasium's vector interface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from velocirl.engine.actions import ActionGate
from velocirl.engine.environment import Environment
from velocirl.engine.fleet import SAVED, make_target, seed_copies
from velocirl.engine.fleet_state import check_fleet
from velocirl.vector.rendering import Renderer

Infos = dict[str, Any]


class FleetVectorEnv(VectorEnv):
    """Copies of a native environment, stepped together by compiled code.

    A finished copy starts its next episode within the same step (SAME_STEP): its row of `observations` is the first of
    the new episode, its row of `infos["final_obs"]` the last of the old one. With `copy=False`, `step` gives the
    engine's own arrays, which the next step overwrites.
    """

    def __init__(
        self,
        environment: Environment,
        num_envs: int,
        *,
        seed: int | Sequence[int] | None = None,
        device: str = "cpu",
        threads: int | None = None,
        params: Mapping[str, Any] | None = None,
        copy: bool = True,
        render_mode: str | None = None,
        check: bool = False,
    ) -> None:
        self.environment = environment
        self.renderer = Renderer(environment, render_mode)
        self.target = make_target(environment, num_envs, device=device, threads=threads, params=params, check=check)
        self.copies = self.target.copies
        self.metadata = {**self.renderer.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
        self.num_envs = num_envs
        self.device = device
        self.copy = copy
        self.render_mode = render_mode
        self.single_observation_space = environment.observation
        self.single_action_space = environment.action
        self.observation_space = batch_space(environment.observation, num_envs)
        self.action_space = batch_space(environment.action, num_envs)
        self.scalar_observation = isinstance(environment.observation, Discrete)
        self._everyone = np.ones(num_envs, np.bool_)
        self._gate = ActionGate(environment, self.copies.action)
        self._first_seed = seed
        self._seeded = False

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Any, Infos]:
        """Start new episodes in all copies, or in those of `options["reset_mask"]`.

        A seed gives every copy a stream of its own; without one the streams go on (the first time, the constructor's
        seed is used, or entropy of the system).
        """
        chosen = self.chosen(options) if self._seeded else self._everyone  # the first reset begins every copy
        if seed is not None or not self._seeded:
            first: Any = self._first_seed if seed is None else seed
            self.seed(first, chosen)
            self._seeded = True
        self.target.begin(chosen)
        return self.given(self.seen(self.copies.observation)), self.mask_info()

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, Infos]:
        """Every copy takes one step. `terminated` and `truncated` are never merged."""
        self.check_ready()
        copies = self.copies
        self._gate.take(actions)
        self.target.advance()
        infos = self.mask_info()
        ended = copies.terminated | copies.truncated
        if np.count_nonzero(ended):
            infos["final_obs"] = self.given(self.seen(copies.final_observation))
            infos["episode"] = {"r": self.given(copies.episode_return), "l": self.given(copies.episode_length)}
            for field in self.environment.report:
                infos["episode"][field] = self.given(copies.final_state[field])
            infos["_final_obs"] = infos["_episode"] = ended
        return (
            self.given(self.seen(copies.observation)),
            self.given(copies.reward),
            self.given(copies.terminated),
            self.given(copies.truncated),
            infos,
        )

    def run_randomly(self, steps: int) -> None:
        """Take `steps` steps with random legal actions in one compiled loop, drawn from each copy's own stream."""
        if not self._seeded:
            self.reset()
        self.target.run_randomly(steps)

    def get_state(self) -> dict[str, NDArray[Any]]:
        """All that decides the future of the fleet, as arrays: to save, to look at, or to go back to."""
        return {name: np.array(getattr(self.copies, name)) for name in SAVED}

    def set_state(self, state: Mapping[str, NDArray[Any]]) -> Any:
        """Go back to what `get_state` gave, of this fleet or of one like it; returns the observations."""
        state = {name: np.asarray(array) for name, array in state.items()}
        check_fleet(self.environment, state, self.num_envs)
        self.write(state)
        self._seeded = True
        return self.given(self.seen(self.copies.observation))

    def render(self) -> tuple[Any, ...] | None:
        """A picture of every copy, as the render mode says."""
        return tuple(self.renderer.render(self.copies, copy) for copy in range(self.num_envs))

    def close_extras(self, **kwargs: Any) -> None:  # noqa: ARG002
        """Close the window, where there is one."""
        self.renderer.close()

    def check_ready(self) -> None:
        """Refuse to step before the first reset."""
        if not self._seeded:
            raise RuntimeError(f"{self.environment.id}: call reset() before step()")

    def chosen(self, options: Mapping[str, Any] | None) -> NDArray[np.bool_]:
        """The copies that the options of a reset name: those of "reset_mask", or all."""
        if options is None or "reset_mask" not in options:
            return self._everyone
        chosen = np.asarray(options["reset_mask"])
        if chosen.shape != (self.num_envs,) or chosen.dtype != np.bool_:
            raise ValueError(f"reset_mask must be {self.num_envs} booleans, got {chosen.dtype} {chosen.shape}")
        return chosen

    def seed(self, seed: int | Sequence[int | None] | None, chosen: NDArray[np.bool_]) -> None:
        """Give the chosen copies the streams of a seed."""
        self._np_random_seed = seed_copies(self.copies.rng, seed, chosen)

    def seen(self, observation: Any) -> Any:
        """The engine's observations in the shape of the observation space."""
        return observation[:, 0] if self.scalar_observation else observation

    def given(self, array: Any) -> Any:
        """What the caller gets: a copy, or with `copy=False` the engine's own array."""
        return array.copy() if self.copy else array

    def write(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Replace what decides the future."""
        for name in SAVED:
            getattr(self.copies, name)[...] = state[name]

    def mask_info(self) -> Infos:
        """The legal actions, where the environment has a mask."""
        return {"action_mask": self.given(self.copies.mask)} if self.environment.legal else {}
