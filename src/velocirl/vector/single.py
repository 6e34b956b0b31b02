"""One copy of a native environment behind Gymnasium's interface."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete

from velocirl.engine.actions import ActionGate
from velocirl.engine.environment import Environment
from velocirl.engine.fleet import make_target, seed_copies
from velocirl.vector.rendering import Renderer


class SingleEnv(gymnasium.Env):
    """A fleet of one, without automatic resets. With the same seed it lives through what copy 0 of a fleet does."""

    def __init__(
        self,
        environment: Environment,
        *,
        device: str = "cpu",
        render_mode: str | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        self.environment = environment
        self.target = make_target(environment, 1, device=device, params=params)
        self.copies = self.target.copies
        self.renderer = Renderer(environment, render_mode)
        self.metadata = self.renderer.metadata
        self.render_mode = render_mode
        self.observation_space = environment.observation
        self.action_space = environment.action
        self._everyone = np.ones(1, np.bool_)
        self._gate = ActionGate(environment, self.copies.action)
        self._running = False
        self._seeded = False
        self._scalar_observation = isinstance(environment.observation, Discrete)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start a new episode, with the stream of a seed or going on with the present one."""
        super().reset(seed=seed, options=options)
        # Where an episode has ended, the engine has begun the next one already; to begin again would skip it.
        begun = self._seeded and not self._running and seed is None
        if seed is not None or not self._seeded:
            seed_copies(self.copies.rng, seed, self._everyone)
            self._seeded = True
        if not begun:
            self.target.begin(self._everyone)
        self._running = True
        self._show_window()
        return self._seen(self.copies.observation), self._infos()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take one step; after the end of an episode, reset first."""
        if not self._running:
            raise RuntimeError(f"{self.environment.id}: the episode is over; call reset() before step()")
        copies = self.copies
        self._gate.take(np.asarray(action)[None])
        self.target.advance()
        terminated, truncated = bool(copies.terminated[0]), bool(copies.truncated[0])
        infos = self._infos()
        seen = copies.observation
        if terminated or truncated:
            self._running = False
            seen = copies.final_observation
            # No "episode" here: Gymnasium's RecordEpisodeStatistics, which people wrap around one environment, adds it.
            infos |= {field: copies.final_state[field][0].item() for field in self.environment.report}
        self._show_window()
        return self._seen(seen), float(copies.reward[0]), terminated, truncated, infos

    def render(self) -> Any:
        """A picture of the environment, as the render mode says."""
        return self.renderer.render(self.copies, 0, ended=not self._running)

    def close(self) -> None:
        """Close the window, where there is one."""
        self.renderer.close()

    def _seen(self, observation: Any) -> Any:
        return np.int64(observation[0, 0]) if self._scalar_observation else observation[0].copy()

    def _infos(self) -> dict[str, Any]:
        return {"action_mask": self.copies.mask[0].copy()} if self.environment.legal else {}

    def _show_window(self) -> None:
        if self.render_mode == "human":
            self.render()
