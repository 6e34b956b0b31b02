"""Native fleet behind Gymnasium's vector interface."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from gymnasium.error import ClosedEnvironmentError
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from velocirl.engine.environment import Environment
from velocirl.engine.fleets.fleet import LendingTarget, saved, seed_copies
from velocirl.engine.fleets.fleet_state import check_fleet
from velocirl.engine.naming import nearest
from velocirl.vector.native_copies import NativeCopies, own
from velocirl.vector.recycling import LARGE, Recycler, has_wide_rows
from velocirl.vector.reset_mask import split_mask

Infos = dict[str, Any]
BY_COPY = ("action_masks", "render")  # methods that return one result per environment


class FleetVectorEnv(NativeCopies, VectorEnv):
    """Vector environment of native environments, stepped together by compiled code.

    A finished environment starts its next episode within the same step (SAME_STEP). Its row of `observations` is then
    the new episode's first, its row of `infos["final_obs"]` the old episode's last. The old episode's return and length
    are in `infos["final_info"]["episode"]`; rows of other environments are undefined there. Constraint costs of a step
    are in `infos["costs"]`, one column per constraint, and their sum in `infos["cost"]`. With `copy=False`, `step`
    returns the engine's own arrays, which the next step overwrites.
    """

    _lent = False  # the last observations belong to the caller, and the fleet's own are older

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
        max_episode_steps: int | None = None,
        first_copy: int = 0,
    ) -> None:
        """Build the fleet; `first_copy` is the index of its first environment in a larger fleet."""
        super().__init__(
            environment, num_envs, params=params, render_mode=render_mode,
            device=device, threads=threads, check=check, max_episode_steps=max_episode_steps,
        )  # fmt: skip
        self.autoreset_mode = AutoresetMode.SAME_STEP
        self.metadata = {**self.renderer.metadata, "autoreset_mode": self.autoreset_mode}
        self.num_envs = num_envs
        self.device = device
        self.copy = copy
        self.single_observation_space = own(environment.observation)
        self.single_action_space = own(environment.action)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.scalar_observation = isinstance(environment.observation, Discrete)
        self._everyone = np.ones(num_envs, np.bool_)
        self._recycler = Recycler()
        whole = isinstance(environment.observation, Box) and environment.stack == 1  # a stack needs the frames before
        self.lends = copy and whole and not check and isinstance(self.target, LendingTarget)
        self._first_seed, self._first_copy = seed, first_copy
        self._seeded = False
        self._ready = False  # seeded, and not closed

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Any, Infos]:
        """Start new episodes in all environments, or in those of `options["reset_mask"]`.

        A seed gives every environment its own stream; without one the streams continue. The first time without one, the
        constructor's seed is used, or system entropy.
        """
        self.start(seed, *self.split(options))
        return self.given(self.seen(self._copies.observation)), self.mask_info()

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, Infos]:
        """Step every environment. `terminated` and `truncated` are never merged."""
        self.check_ready()
        copies = self._copies
        self._gate.take(actions)
        observations = self._advance()
        costs = self.cost_info(copies.costs)
        infos = self.mask_info() | costs
        ended = copies.terminated | copies.truncated
        if np.count_nonzero(ended):
            infos |= self.ends(ended, costs)
        return (
            observations,
            self.given(copies.reward),
            self.given(copies.terminated),
            self.given(copies.truncated),
            infos,
        )

    def _advance(self) -> Any:
        """Step every environment and return the observations, which belong to the caller.

        Large observations are written directly into the caller's array instead of being copied.
        """
        own = self._copies.observation
        if not self.lends or own.nbytes < LARGE or not has_wide_rows(own):
            self.target.advance()
            return self.given(self.seen(own))
        observations = self._recycler.like(own)
        cast("LendingTarget", self.target).advance_into(observations)
        self._lent = True
        return observations

    def read(self, names: Iterable[str]) -> dict[str, NDArray[Any]]:
        """Copy the named arrays to the host."""
        if "observation" in (names := tuple(names)):
            self._see_again()
        return super().read(names)

    def _see_again(self) -> None:
        """Update the fleet's own observations if the last ones were written into the caller's array only."""
        if self._lent:
            cast("LendingTarget", self.target).show()
            self._lent = False

    @property
    def copies(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Arrays of the fleet."""
        self._see_again()
        return self._copies

    @copies.setter
    def copies(self, copies: Any) -> None:
        self._copies = copies

    def run_randomly(self, steps: int) -> None:
        """Take `steps` random legal actions in one compiled loop, sampled from each environment's own stream."""
        if not self._seeded:
            self.reset()
        self.check_ready()
        self.target.run_randomly(steps)
        self._lent = False

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Return the fleet's complete state as arrays, to save, inspect or restore."""
        return self.read(saved(self.environment))

    def set_state(self, state: Mapping[str, NDArray[Any]]) -> Any:
        """Restore a state from `get_state` of this fleet or of a similar one; returns the observations."""
        state = {name: np.asarray(array) for name, array in state.items()}
        check_fleet(self.environment, state, self.num_envs, self._copies.limit)
        self.check_open()
        self.write(state)
        self._seeded, self._ready, self._lent = True, True, False
        return self.given(self.seen(self._copies.observation))

    def render(self) -> tuple[Any, ...] | None:
        """Render every environment in the render mode."""
        return tuple(self.renderer.render(self._copies, copy) for copy in range(self.num_envs))

    def close_extras(self, **kwargs: Any) -> None:  # noqa: ARG002
        """Close the window if one is open."""
        self.renderer.close()
        self._ready = False

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Return each environment's parameter, state field, attribute or method result of that name."""
        for array, record in (("params", self.environment.params), ("state", self.environment.state)):
            if name in record.fields:
                column = self.read((array,))[array][name]
                return tuple(column.tolist() if column.ndim == 1 else column)
        if name in BY_COPY and hasattr(self, name):
            return tuple(getattr(self, name)(*args, **kwargs))
        shared = f"single_{name}" if name.endswith("_space") else name
        if not hasattr(self, shared) or callable(getattr(self, shared)):
            known = (*self.environment.params.fields, *self.environment.state.fields, *BY_COPY)
            raise AttributeError(f"{self.environment.id}: its copies have no {name!r}{nearest(name, known)}")
        return (getattr(self, shared),) * self.num_envs

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Return each environment's parameter, state field or attribute of that name, see `call`."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Set a parameter from now on: one value for all environments or, with a list or tuple, one for each."""
        if name not in self.environment.params.fields:
            advice = nearest(name, self.environment.params.fields)
            raise AttributeError(f"{self.environment.id}: its copies have no parameter {name!r}{advice}")
        self.set_params({name: values})

    def check_ready(self) -> None:
        """Raise an error before the first reset, and after `close`."""
        if not self._ready:
            self.check_open()
            raise RuntimeError(f"{self.environment.id}: call reset() before step()")

    def check_open(self) -> None:
        """Raise ClosedEnvironmentError after `close`."""
        if self.closed:
            raise ClosedEnvironmentError(f"{self.environment.id}: this fleet was closed; make another")

    def split(self, options: Mapping[str, Any] | None) -> tuple[NDArray[np.bool_], Mapping[str, Any]]:
        """Split the options of a reset into the mask of environments and the parameters."""
        chosen, others = split_mask(options, self.num_envs)
        return self._everyone if chosen is None else chosen, self.known(others)

    def start(
        self, seed: int | Sequence[int | None] | None, chosen: NDArray[np.bool_], options: Mapping[str, Any]
    ) -> None:
        """Start new episodes in the chosen environments; the first time, in all of them."""
        self.check_open()
        if not self._seeded:
            chosen, seed = self._everyone, self._first_seed if seed is None else seed
        if seed is not None or not self._seeded:
            self.seed(seed, chosen)
        if not chosen.all():
            self._see_again()
        self.begin(chosen, options)
        self._lent = False
        self._seeded = self._ready = True

    def seed(self, seed: int | Sequence[int | None] | None, chosen: NDArray[np.bool_]) -> None:
        """Give the chosen environments the streams of a seed."""
        rng = self.read(("rng",))["rng"]
        self._np_random_seed = seed_copies(rng, seed, chosen, self._first_copy)
        self.write({"rng": rng})

    def ends(self, ended: Any, costs: Infos) -> Infos:
        """Return infos about the ended episodes in Gymnasium's format; `costs` are of their last step."""
        copies = self._copies
        episode = {"r": self.given(copies.episode_return), "l": self.given(copies.episode_length)}
        episode |= {field: self.reported(field) for field in self.environment.report}
        final: Infos = {"episode": episode, "_episode": ended}
        if costs:
            episode |= self.cost_info(copies.episode_costs)
            final |= {**costs, "_cost": ended, "_costs": ended}
        if self.environment.legal:  # in a terminal state nothing is legal
            final |= {"action_mask": self.given(copies.final_mask), "_action_mask": ended}
        return {
            "final_obs": self.given(self.seen(copies.final_observation), ended),
            "_final_obs": ended,
            "final_info": final,
            "_final_info": ended,
        }

    def reported(self, field: str) -> Any:
        """Return a field of the states in which episodes ended."""
        return self.given(self._copies.final_state[field])

    def seen(self, observation: Any) -> Any:
        """Return the engine's observations in the shape of the observation space."""
        return observation[:, 0] if self.scalar_observation else observation

    def given(self, array: Any, rows: Any = None) -> Any:
        """Return the caller's array: a copy (of all rows or of some), or with `copy=False` the engine's own array."""
        return self._recycler.copy(array, rows) if self.copy else array

    def cost_info(self, costs: Any) -> Infos:
        """Return the cost of each constraint and their sum, of a step or of episodes; empty without constraints.

        In every autoreset mode, a step's costs are of the step taken, whether or not an episode ended with it.
        """
        if not self.environment.constraints:
            return {}
        return {"cost": self.summed(costs), "costs": self.given(costs)}

    def summed(self, costs: Any) -> Any:
        """Return the sum of each environment's costs; for few columns a product is several times as fast as a sum."""
        return costs @ np.ones(costs.shape[1], np.float32)

    def mask_info(self) -> Infos:
        """Return the legal actions, or nothing if the environment has no action mask."""
        return {"action_mask": self.given(self._copies.mask)} if self.environment.legal else {}
