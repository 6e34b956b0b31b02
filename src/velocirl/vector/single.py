"""Single native environment behind Gymnasium's interface."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete
from numpy.typing import NDArray

from velocirl.engine.environment import Environment
from velocirl.engine.fleets.fleet import NO_LIMIT, seed_copies
from velocirl.vector.native_copies import NativeCopies, own


class SingleEnv(NativeCopies, gymnasium.Env):
    """Single environment without autoreset. With the same seed it has the same episodes as environment 0 of a fleet."""

    def __init__(
        self,
        environment: Environment,
        *,
        device: str = "cpu",
        render_mode: str | None = None,
        params: Mapping[str, Any] | None = None,
        max_episode_steps: int | None = None,
    ) -> None:
        super().__init__(
            environment, 1, params=params, render_mode=render_mode, device=device, max_episode_steps=max_episode_steps
        )
        self.metadata = self.renderer.metadata
        self.observation_space = own(environment.observation)
        self.action_space = own(environment.action)
        self._everyone = np.ones(1, np.bool_)
        self._running = False
        self._seeded = False
        self._params: Any = None  # parameters of the last step
        self._scalar_observation = isinstance(environment.observation, Discrete)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start a new episode, with a seed's stream or the continued current one."""
        given = self.known(options)
        super().reset(seed=seed, options=options)
        # After an episode's end, the engine has already begun the next one; beginning again would skip it.
        begun = self._seeded and not self._running and seed is None and not given
        if seed is not None or not self._seeded:
            seed_copies(self.copies.rng, seed, self._everyone)
            self._seeded = True
        if not begun:
            self.begin(self._everyone, given)
        self._running = True
        self._show_window()
        return self._seen(self.copies.observation), self._infos()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take one step; after the end of an episode, reset first."""
        if not self._running:
            raise RuntimeError(f"{self.environment.id}: the episode is over; call reset() before step()")
        copies = self.copies
        self._params = copies.params.copy() if self.environment.drawn else copies.params
        self._gate.take_one(action)
        self.target.advance()
        terminated, truncated = bool(copies.terminated[0]), bool(copies.truncated[0])
        infos = self._infos() | self._costs()
        seen, state = copies.observation, copies.state
        ended = terminated or truncated
        if ended:
            self._running = False
            infos |= {"action_mask": copies.final_mask[0].copy()} if self.environment.legal else {}
            seen, state = copies.final_observation, copies.final_state
        report = self.environment.report
        if report and (ended or copies.limit == NO_LIMIT):  # without a limit, a wrapper may end the episode unnoticed
            # No "episode" here: Gymnasium's RecordEpisodeStatistics, often wrapped around single environments, adds it.
            infos |= {field: state[field][0].item() for field in report}
        self._show_window()
        return self._seen(seen), float(copies.reward[0]), terminated, truncated, infos

    def render(self) -> Any:
        """Render the environment in the render mode."""
        ended = not self._running and self._params is not None
        copies = self.copies._replace(params=self._params) if ended else self.copies  # the next episode has its own
        return self.renderer.render(copies, 0, ended=not self._running)

    def close(self) -> None:
        """Close the window if one is open."""
        self.renderer.close()

    def has_wrapper_attr(self, name: str) -> bool:
        """Return whether an attribute or parameter of that name exists."""
        return name in self.environment.params.fields or super().has_wrapper_attr(name)

    def get_wrapper_attr(self, name: str) -> Any:
        """Return a parameter or an attribute, like a fleet's `get_attr`."""
        if name in self.environment.params.fields:
            return self.read(("params",))["params"][name][0].tolist()
        return super().get_wrapper_attr(name)

    def set_wrapper_attr(self, name: str, value: Any, *, force: bool = True) -> bool:
        """Set a parameter from now on, or an attribute, like a fleet's `set_attr`."""
        if name in self.environment.params.fields:
            self.set_params({name: value})
            return True
        return super().set_wrapper_attr(name, value, force=force)

    def _legal(self) -> NDArray[np.bool_]:
        return super()._legal()[0]

    def _seen(self, observation: Any) -> Any:
        return np.int64(observation[0, 0]) if self._scalar_observation else observation[0].copy()

    def _infos(self) -> dict[str, Any]:
        return {"action_mask": self.copies.mask[0].copy()} if self.environment.legal else {}

    def _costs(self) -> dict[str, Any]:
        """Return the constraint costs of the last step; empty without constraints."""
        if not self.environment.constraints:
            return {}
        costs = self.copies.costs[0]
        return {"cost": float(costs.sum()), "costs": costs.copy()}

    def _show_window(self) -> None:
        if self.render_mode == "human":
            self.render()
