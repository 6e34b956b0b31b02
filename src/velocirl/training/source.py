"""Where an agent's experience comes from: an environment's name and spaces, and how to make copies of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv

from velocirl.engine import registry
from velocirl.engine.drawing import with_draws
from velocirl.engine.environment import Environment
from velocirl.training.params import Params, keyword_arguments, known_params, of_copies, spread
from velocirl.vector.host_interface import copy_seeds
from velocirl.vector.making import GYMNASIUM, make, make_vec
from velocirl.vector.native import FleetVectorEnv


class Source:
    """An environment that an agent is for: native, or one of Gymnasium's (`gym:ID`)."""

    def __init__(self, environment: str | Environment, params: Mapping[str, Any] | None = None) -> None:
        self.given = environment
        self.params = dict(params or {})
        self.check = False
        self.native: Environment | None = None
        if isinstance(environment, str) and environment.startswith(GYMNASIUM):
            self.id = environment
            self.params = keyword_arguments(self.id, self.params)
            probe = make(environment, **self.params)
            self.observation_space, self.action_space = probe.observation_space, probe.action_space
            self.masked = "action_mask" in probe.reset(seed=0)[1]
            probe.close()
        elif isinstance(environment, (str, Environment)):
            self.native = with_draws(registry.find(environment), self.params)
            self.id = self.native.id
            self.params = known_params(self.native, self.params)
            self.observation_space, self.action_space = self.native.observation, self.native.action
            self.masked = self.native.legal is not None
        else:
            kind = type(environment).__name__
            advice = (
                "register it with gymnasium.register and give its id"
                if isinstance(environment, gymnasium.Env)
                else "give an id (velocirl envs lists them), gym:ID for Gymnasium's, or a velocirl.Environment"
            )
            raise TypeError(f"an agent makes the copies of its environment itself and cannot use a {kind}: {advice}")

    def with_params(self, params: Mapping[str, Any]) -> Source:
        """The same environment with these parameters."""
        source = Source(self.given, params)
        source.check = self.check
        return source

    def params_of(self, copies: Any) -> Params:
        """The parameters of some copies, by their numbers."""
        return of_copies(self.native, self.params, np.asarray(copies))

    def params_for(self, count: int) -> Params:
        """Parameters for so many copies that do not learn; they differ as those that do."""
        return spread(self.native, self.params, count)

    def watch(self) -> None:
        """Let copies test their indices from now on, see `engine.checked`."""
        if self.native is None:
            raise ValueError(f"{self.id} steps in Python, which tests every index anyway: leave check out")
        self.check = True

    def preset(self, algorithm: str) -> Mapping[str, Any]:
        """The settings with which an algorithm is known to learn this environment."""
        return {} if self.native is None else self.native.presets.get(algorithm, {})

    def make_copies(self, num_envs: int, *, seed: int, threads: int, workers: int | None) -> VectorEnv:
        """Copies to learn from."""
        if self.native is not None:
            self.refuse_workers(workers)
            return FleetVectorEnv(
                self.native, num_envs, seed=seed, threads=threads, params=self.params, copy=False, check=self.check
            )
        seeds = copy_seeds(seed, num_envs)
        return make_vec(self.id, num_envs, seed=seeds, workers=workers, copy=False, **self.params)

    def refuse_workers(self, workers: int | None) -> None:
        """Processes are of no use to a compiled environment."""
        if workers is not None:
            raise ValueError(f"{self.id} is compiled and needs no workers; they are for gym: environments")

    def make_evaluation(self, num_envs: int, seed: int | None) -> VectorEnv:
        """Copies to be evaluated in."""
        if self.native is not None:
            return make_vec(self.native, num_envs, seed=seed, params=self.params_for(num_envs), check=self.check)
        return make_vec(self.id, num_envs, seed=None if seed is None else copy_seeds(seed, num_envs), **self.params)

    def signature(self) -> dict[str, str]:
        """What must be the same where a saved agent is loaded."""
        return {"observation_space": _describe(self.observation_space), "action_space": _describe(self.action_space)}


def _describe(space: gymnasium.Space[Any]) -> str:
    with np.printoptions(threshold=64):
        return " ".join(str(space).split())
