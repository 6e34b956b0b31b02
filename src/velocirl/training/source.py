"""Source of an agent's experience: the environment's name and spaces, and how to create instances of it."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from math import prod
from statistics import median
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, VectorEnv

from velocirl.buffers.records import Frames
from velocirl.engine import registry
from velocirl.engine.action_parts import has_parts
from velocirl.engine.drawing import with_draws
from velocirl.engine.environment import Environment
from velocirl.engine.fleets.fleet import NO_LIMIT
from velocirl.engine.framing import FRAMES, with_frames
from velocirl.engine.operating import params_in
from velocirl.engine.targets.cores import available_cores
from velocirl.engine.warning import warn_caller
from velocirl.training.settings.params import Params, changed_params, keyword_arguments, known_params, of_copies, spread
from velocirl.vector.autoreset import Disabled, NextStep
from velocirl.vector.given import GIVEN, Making, makers_of, name_of, native_of, single_makers
from velocirl.vector.given_vector import GivenVectorEnv
from velocirl.vector.host.copies import Source as Makers
from velocirl.vector.host.interface import HostInterface, copy_seeds, find_source, frame_of
from velocirl.vector.making import GYMNASIUM, make, make_host, make_vec
from velocirl.vector.native import FleetVectorEnv
from velocirl.vector.native_copies import NativeCopies
from velocirl.vector.offscreen import choose_backend
from velocirl.vector.preprocessing.ale import ALEVectorEnv, is_game
from velocirl.vector.preprocessing.making import refuse_preprocessing
from velocirl.vector.preprocessing.switches import Preprocess, switches_from, text_of, whole_games
from velocirl.vector.preprocessing.wrappers import Atari, preprocessed
from velocirl.vector.vec_env import Normalized, is_vec_env, opened, without_monitor

WORKERS_TAKE = 200e-6  # seconds per vector step to command worker processes and receive results
WORTH = 1.4  # minimum speedup by worker processes: they cost memory, and cores of other programs

# An id, a compiled or Gymnasium environment, a function that makes one, a list of these, or a vector environment.
Given = str | Environment | gymnasium.Env | Making | Sequence[Any] | VectorEnv


class Source:
    """Environment of an agent: compiled, or one in Python."""

    normalized: Normalized | None = None  # settings and statistics of a VecNormalize around it

    def __init__(
        self,
        environment: Given,
        params: Mapping[str, Any] | None = None,
        frames: Mapping[str, Any] | None = None,
        preprocess: Preprocess | None = None,
        scenario: str | None = None,
    ) -> None:
        """Find the environment; `frames` are `skip` and `stack` where given, see `Environment`."""
        self.scenario = scenario
        self.given = environment
        if is_vec_env(environment):
            environment, self.normalized = opened(environment)
        elif isinstance(environment, gymnasium.Env):
            environment = without_monitor(environment)
        self.asked = None if preprocess is None else switches_from(preprocess)  # image preprocessing to be done here
        self.preprocess = self.asked  # all preprocessing, including the one by given environments
        self.params = self.own_params = dict(params or {})
        self.frames = {name: value for name, value in (frames or {}).items() if value is not None}
        self.check = False
        self.native: Environment | None = None
        self.num_envs: int | None = None  # set if environments were given, not only a way to make them
        self.ready: HostInterface | None = None  # vector environment given by the user
        self.time_limit: int | None = None  # steps after which episodes are truncated, if known
        self.own_threads = False  # whether environments step on third-party threads
        self.makers: str | Makers = ""  # maker of further environments in Python
        if isinstance(environment, (str, Environment)):
            self._find(environment)
        elif (compiled := compiled_parts(environment)) is not None:
            self.native, self.params = compiled[0], {**compiled[1], **self.params}
            self.frames = {**compiled[2], **self.frames}
            self.id = self.native.id
            self.num_envs = getattr(environment, "num_envs", None)
        elif isinstance(environment, VectorEnv):
            self._take_ready(environment)
        elif isinstance(environment, (gymnasium.Env, list, tuple)) or callable(environment):
            self._take(environment)
        else:
            raise TypeError(
                f"a {type(environment).__name__} is no environment: give an id (velocirl envs lists them), gym:ID for"
                " Gymnasium's, a velocirl.Environment, a Gymnasium environment, a function that makes one, a list of"
                " those, or a VectorEnv"
            )
        if self.native is not None:
            refuse_preprocessing(self.native, preprocess)
            own, self.params = self.params, params_in(self.native, scenario, self.params)
            self.native = with_draws(with_frames(self.native, **self.frames), self.params)
            self.params = known_params(self.native, self.params)
            self.own_params = {name: self.params[name] for name in own}  # without the scenario's params
            self.observation_space, self.action_space = self.native.observation, self.native.action
            self.masked = self.native.legal is not None
            self.time_limit = self.native.max_steps
        elif scenario is not None:
            raise ValueError(f"{self.id} has no scenario {scenario!r}: native environments may have some")
        elif self.frames:
            asked = " and ".join(self.frames)
            raise ValueError(
                f"{self.id} steps in Python: leave out {asked}, which native environments have; preprocess= does it to"
                " pictures"
            )

    def operated(self, params: Mapping[str, Any], scenario: str | None) -> Source:
        """Return a source with these parameters, in a scenario."""
        source = Source(self.given, params, self.frames, self.asked, scenario)
        source.check = self.check
        return source

    def params_of(self, copies: Any) -> Params:
        """Return the parameters of some environments, by index."""
        return of_copies(self.native, self.params, np.asarray(copies))

    def params_for(self, count: int) -> Params:
        """Return parameters for `count` environments outside of training, distributed as those in training."""
        return spread(self.native, self.params, count)

    def watch(self) -> None:
        """Turn on index checks, see `engine.checking.checked`."""
        if self.native is None:
            raise ValueError(f"{self.id} steps in Python, which tests every index anyway: leave check out")
        self.check = True

    def preset(self, algorithm: str) -> Mapping[str, Any] | None:
        """Return the preset with which an algorithm learns this environment, or None."""
        return None if self.native is None else self.native.presets.get(algorithm)

    def settings(self) -> dict[str, Any]:
        """Return settings implied by given environments, used unless the user sets them."""
        copies = {} if self.num_envs is None else {"num_envs": self.num_envs}
        return copies if self.normalized is None else {**copies, **self.normalized.settings}

    def saved_params(self) -> Params:
        """Return the parameters to save in a configuration: the ones needed to create the environment again."""
        if self.native is not None:
            return self.own_params
        return self.params if isinstance(self.given, str) else {}

    def require_count(self, num_envs: int | None) -> None:
        """Raise if `num_envs` differs from the number of given environments."""
        if self.native is None and self.num_envs not in (None, num_envs):
            raise ValueError(f"num_envs={num_envs}, and the environments given are {self.num_envs}: leave num_envs out")

    @property
    def stack(self) -> int:
        """Number of stacked frames of an observation, oldest first; an episode starts by repeating its first frame."""
        if self.native is not None:
            return self.native.stack
        return 1 if self.preprocess is None else self.preprocess.stack

    @property
    def frame(self) -> gymnasium.Space[Any]:
        """Space of a single frame."""
        return frame_of(self.observation_space, self.stack)

    @property
    def tensors_on(self) -> str | None:
        """Device kind of given environments' observations if they are tensors: "cpu" or "cuda"; None otherwise."""
        return getattr(self.ready, "tensors_on", None)

    @property
    def stored(self) -> Frames | None:
        """Frame storage of uint8 observations; None for other observations."""
        space = self.observation_space
        if not isinstance(space, Box) or space.dtype != np.uint8:
            return None
        return Frames(self.stack, prod(space.shape) // self.stack)

    def make_copies(self, num_envs: int, *, seed: int, threads: int, workers: int | None, first: int = 0) -> VectorEnv:
        """Create the training environments; a process that has a shard of them starts with index `first`."""
        if self.native is not None:
            self.refuse_workers(workers)
            params = self.params_of(range(first, first + num_envs))
            return FleetVectorEnv(
                self.native, num_envs, seed=seed, threads=threads, params=params, copy=False, check=self.check,
                first_copy=first,
            )  # fmt: skip
        if self.ready is not None:
            self.refuse_workers(workers)
            self.ready.begin_with(copy_seeds(seed, 1)[0])
            return self.ready
        workers = workers and min(workers, num_envs)  # a process may have fewer environments than workers
        options = {"seed": copy_seeds(seed, first + num_envs)[first:], "copy": False, **self.made_with}
        if workers is None and (worthwhile := self._worthwhile_workers(num_envs)):
            with suppress(Exception):  # environments that fail in other processes step in this one
                return make_host(self.makers, num_envs, worthwhile, **options)
        return make_host(self.makers, num_envs, workers or None, **options)

    def warn_of_endless(self, steps: int) -> bool:
        """Warn that no episode has ended in `steps` steps of each environment; returns whether it warned.

        There is no warning while a time limit is still ahead.
        """
        if steps < (self.time_limit or 0):
            return False
        advice = (
            f"set max_steps= in Environment({self.id!r}, ...), or pass make_vec(..., max_episode_steps=1000)"
            if self.native is not None
            else "wrap it in gymnasium.wrappers.TimeLimit(env, max_episode_steps=1000)"
        )
        known = "it has no time limit" if self.time_limit is None else f"its time limit is {self.time_limit:,}"
        warn_caller(f"no episode of {self.id} has ended in {steps:,} steps of each environment, and {known}: {advice}")
        return True

    def refuse_parts(self, algorithm: str) -> None:
        """Raise for composite actions, in an algorithm that has no head for them."""
        if has_parts(self.action_space):
            raise ValueError(
                f"{algorithm} takes actions of one part, and those of {self.id} are {self.action_space}: use PPO"
            )

    def refuse_workers(self, workers: int | None) -> None:
        """Raise for worker processes of compiled or existing environments, which do not use any."""
        if workers:
            why = "is compiled and needs no workers" if self.native is not None else "steps as its maker chose"
            why = "steps on threads of ALE's own" if self.own_threads else why
            raise ValueError(f"{self.id} {why}; they are for gym: environments")

    def make_evaluation(self, num_envs: int, seed: int | None, device: str = "cpu") -> VectorEnv:
        """Create environments for evaluation."""
        if self.native is not None:
            params = self.params_for(num_envs)
            return make_vec(self.native, num_envs, seed=seed, device=device, params=params, check=self.check)
        if not self.makers:
            raise ValueError(f"{self.id} cannot be copied: say where to evaluate, as in evaluate(agent, env)")
        seeds = None if seed is None else copy_seeds(seed, num_envs)
        return make_host(self.makers, num_envs, None, seed=seeds, preprocess=self._whole, **self.params)

    def make_shown(self, render_mode: str | None) -> gymnasium.Env:
        """Create one environment for viewing."""
        chosen = self.given if self.native is None else self.native
        if not isinstance(chosen, (str, Environment)):
            return self._shown_object(render_mode)
        return make(chosen, render_mode=render_mode, preprocess=self._whole, **self.params_for(1))

    def _shown_object(self, render_mode: str | None) -> gymnasium.Env:
        """Create one environment for viewing, from a given object or the function that makes it."""
        makers: Any = self.makers
        maker = makers[0] if isinstance(makers, (list, tuple)) and makers else makers
        if not callable(maker):
            raise ValueError(f"{self.id} cannot be copied: give its id, or a function that makes one, to see it")
        env: Any = maker()
        if env.render_mode != render_mode:
            env.close()
            raise ValueError(
                f"{self.id} has render_mode={env.render_mode!r}: make it with render_mode={render_mode!r}, as in"
                f" gymnasium.make(id, render_mode={render_mode!r})"
            )
        choose_backend(env, render_mode, self.id)
        return env if self._whole is None else preprocessed(env, switches=self._whole)

    def signature(self) -> dict[str, str]:
        """Return descriptions of the spaces, which must match when a saved agent is loaded."""
        return {"observation_space": _describe(self.observation_space), "action_space": _describe(self.action_space)}

    def _find(self, environment: str | Environment) -> None:
        if isinstance(environment, str) and environment.startswith(GYMNASIUM):
            self.id, self.makers = environment, environment.removeprefix(GYMNASIUM)
            self.params = self.own_params = keyword_arguments(self.id, self.params)
            self._look(make_host(self.makers, 1, None, **self.made_with))
            self._hint()
        else:
            self.native = registry.find(environment)
            self.id = self.native.id

    def _take(self, environment: gymnasium.Env | Making | Sequence[Any]) -> None:
        """Use functions that make environments, or objects that are copied."""
        several = isinstance(environment, (list, tuple))
        if self.params and not callable(environment):
            raise ValueError("params are for environments that are made here: set them where you make yours")
        self.makers = makers_of(environment)
        self.id = GIVEN + name_of(environment[0] if several else environment)
        self.num_envs = len(environment) if several else None
        self._look(make_host(self.makers, 1, None, **self.made_with))

    def _take_ready(self, envs: VectorEnv) -> None:
        """Use an existing vector environment; if it is Gymnasium's, further environments can be made for evaluation."""
        if self.params:
            raise ValueError("params are for environments that are made here: set them where you make yours")
        if self.asked is not None:
            raise ValueError(
                f"preprocess={text_of(self.asked)!r} is for what is made here, and a VectorEnv is made already:"
                " give its id, what makes its environments, or make_vec(id, num_envs, preprocess=...)"
            )
        if isinstance(envs, HostInterface):  # velocirl's own vector environment, which knows its makers
            self.makers, self.params, self.preprocess = envs.source or "", dict(envs.arguments), envs.preprocess
        elif envs.unwrapped is envs:  # no wrapper that new environments would lack
            self.makers = list(getattr(envs, "env_fns", ()))
        ready = _same_step(envs)
        if isinstance(ready, GivenVectorEnv) and not ready.begins_singly():
            self._take_singly(envs, ready)
            return
        self.ready = ready
        self.id, self.num_envs = GIVEN + self.ready.name, envs.num_envs
        self._look(self.ready, close=False)

    def _take_singly(self, envs: VectorEnv, ready: GivenVectorEnv) -> None:
        """Create environments like the given ones, which cannot reset single environments."""
        makers = single_makers(envs)
        if not makers:
            raise ready.disturbed()
        self._take(makers)
        self.id = GIVEN + ready.name
        if (self.observation_space, self.action_space) != (envs.single_observation_space, envs.single_action_space):
            raise ready.disturbed()
        warn_caller(
            f"{ready.name} begins new episodes in mode {ready.mode.name}, and none while others go on; agents act in"
            f" {envs.num_envs} copies instead that gymnasium.make makes"
        )

    def _worthwhile_workers(self, num_envs: int) -> int:
        """Return the number of worker processes to use by default; 0 if steps are too short for them.

        Results do not depend on it. Functions that make an environment stay in this process: they may rely on it.
        """
        # Launchers of many trainings, such as `velocirl train --seeds`, set the threads of each by this variable.
        said = os.environ.get("OMP_NUM_THREADS", "")
        workers = min(available_cores(), num_envs, int(said) if said.isdecimal() else num_envs)
        if workers <= 1 or self.masked or self.own_threads or os.name != "posix" or not isinstance(self.given, str):
            return 0
        here = num_envs * _step_seconds(make_host(self.makers, 1, None, **self.made_with))
        return workers if here > WORTH * (here / workers + WORKERS_TAKE) else 0

    @property
    def made_with(self) -> Params:
        """Arguments with which training environments are created."""
        return {"preprocess": self.preprocess, **self.params}

    @property
    def _whole(self) -> Atari | None:
        """Image preprocessing for evaluation and viewing."""
        return None if self.preprocess is None else whole_games(self.preprocess)

    def _hint(self) -> None:
        """Warn about ALE games without preprocessing, and suggest the usual one."""
        shape = self.observation_space.shape or ()
        if self.preprocess is None and len(shape) > 1 and is_game(find_source(self.makers)):
            warn_caller(
                f'{self.id} is learnt from its screens as they are, {shape}: preprocess="atari" skips, shrinks and'
                " stacks them as papers do"
            )

    def _look(self, envs: HostInterface, *, close: bool = True) -> None:
        self.observation_space, self.action_space = envs.single_observation_space, envs.single_action_space
        self.masked = "action_mask" in envs.reset(seed=0)[1]
        self.own_threads = isinstance(envs, ALEVectorEnv)
        self.time_limit = envs.time_limit
        if close:
            envs.close()


def is_compiled(given: Given) -> bool:
    """Return whether an environment, in any form a user may pass, is compiled."""
    if isinstance(given, str):
        return not given.startswith(GYMNASIUM)
    return isinstance(given, Environment) or compiled_parts(given) is not None


def _step_seconds(envs: VectorEnv) -> float:
    """Measure the approximate duration of a step."""
    taken = []
    with closing(envs):
        envs.reset(seed=0)
        while len(taken) < 10 and sum(taken) < 0.1:
            action = envs.action_space.sample()
            began = time.perf_counter()
            envs.step(action)
            taken.append(time.perf_counter() - began)
    return median(taken)


def _same_step(envs: VectorEnv) -> HostInterface:
    ours = isinstance(envs, HostInterface) and envs.autoreset_mode == AutoresetMode.SAME_STEP
    return envs if ours else GivenVectorEnv(envs)  # pyright: ignore[reportReturnType]


def compiled_parts(given: Any) -> tuple[Environment, dict[str, Any], dict[str, int]] | None:
    """Return environment, parameters and frame settings of a velocirl object, or None for other objects.

    Agents run a fleet of their own from these parts.
    """
    limit = None
    if isinstance(given, (NextStep, Disabled)):
        given = given.env
    elif isinstance(given, gymnasium.Env):
        given, limit = native_of(given) or (given, None)
    if not isinstance(given, NativeCopies):
        return None
    copies, params = given.copies, changed_params(given.environment, given.copies.params)
    framed = given.environment.plain or given.environment
    environment = framed.unframed or framed
    frames = {name: getattr(framed, name) for name in FRAMES if getattr(framed, name) != getattr(environment, name)}
    own = NO_LIMIT if environment.max_steps is None else environment.max_steps
    limit = limit or copies.limit
    if limit != own:
        limit = None if limit == NO_LIMIT else limit
        environment = dataclasses.replace(environment, observation=environment.frame, max_steps=limit)
    return environment, params, frames


def _describe(space: gymnasium.Space[Any]) -> str:
    with np.printoptions(threshold=64):
        return " ".join(str(space).split())
