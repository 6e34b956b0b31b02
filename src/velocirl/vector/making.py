"""Environment factories by name: single environments or fleets, native or of Gymnasium."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import gymnasium
from gymnasium.vector import AutoresetMode, VectorEnv

from velocirl.engine import registry
from velocirl.engine.environment import Environment
from velocirl.engine.framing import with_frames
from velocirl.engine.operating import params_in
from velocirl.vector.autoreset import with_autoreset
from velocirl.vector.checked_env import CheckedEnv
from velocirl.vector.gymnasium_ids import explained, find_spec, import_for
from velocirl.vector.host.copies import Source
from velocirl.vector.host.interface import HostInterface, find_source
from velocirl.vector.native import FleetVectorEnv
from velocirl.vector.offscreen import choose_backend
from velocirl.vector.preprocessing.making import make_in_ale, preparation, refuse_preprocessing, steps_in_ale
from velocirl.vector.preprocessing.switches import Preprocess, switches_from
from velocirl.vector.single import SingleEnv

GYMNASIUM = "gym:"


def make(
    environment: str | Environment,
    *,
    render_mode: str | None = None,
    device: str = "cpu",
    max_episode_steps: int | None = None,
    preprocess: Preprocess | None = None,
    skip: int | None = None,
    stack: int | None = None,
    scenario: str | None = None,
    **params: Any,
) -> gymnasium.Env:
    """Make one environment with Gymnasium's interface: `make("CartPole-v1", gravity=5.0)`, `make("gym:Acrobot-v1")`.

    Episodes are truncated after `max_episode_steps`; None: the environment's own limit; -1: never. `skip` and `stack`
    apply to native environments without their own frame skip and stack, see `Environment`. `preprocess` handles the
    images of a Gymnasium environment as in `make_vec`. `scenario` selects a named parameter set of a native
    environment; `params` override single values.
    """
    frames = {name: value for name, value in (("skip", skip), ("stack", stack)) if value is not None}
    if isinstance(environment, str) and environment.startswith(GYMNASIUM):
        _refuse_scenario(environment, scenario)
        rendering = {} if render_mode is None else {"render_mode": render_mode}  # not every environment has it
        name = environment.removeprefix(GYMNASIUM)
        checker = {"disable_env_checker": True}  # CheckedEnv checks, and names the line
        arguments = {"max_episode_steps": max_episode_steps, **checker, **rendering, **frames, **params}
        with explained(name):
            if preprocess is None:
                made = CheckedEnv(gymnasium.make(import_for(name), **arguments))
            else:
                arguments, prepare = preparation(spec := find_spec(name), arguments, switches_from(preprocess))
                made = prepare(gymnasium.make(spec, **arguments))
        choose_backend(made, render_mode, environment)
        return made
    found = with_frames(registry.find(environment), **frames)
    refuse_preprocessing(found, preprocess)
    for name in params:
        if name not in found.params.fields:
            raise _unexpected(found, "make", name, found.params.suggestion(name))
    params = params_in(found, scenario, params)
    return SingleEnv(found, device=device, render_mode=render_mode, params=params, max_episode_steps=max_episode_steps)


def make_vec(
    environment: str | Environment,
    num_envs: int = 1,
    *,
    seed: int | Sequence[int] | None = None,
    device: str = "cpu",
    threads: int | None = None,
    params: Mapping[str, Any] | None = None,
    autoreset_mode: AutoresetMode = AutoresetMode.SAME_STEP,
    copy: bool = True,
    render_mode: str | None = None,
    workers: int | None = None,
    check: bool = False,
    max_episode_steps: int | None = None,
    preprocess: Preprocess | None = None,
    skip: int | None = None,
    stack: int | None = None,
    scenario: str | None = None,
    **options: Any,
) -> VectorEnv:
    """Make a fleet with Gymnasium's vector interface.

    A native environment (an id of `list_envs()`, or an Environment) runs compiled on `device`: "cpu", "cuda" or, to
    debug, "python". `params` sets fields of its Params, to one value for all environments or one value for each.
    `uniform(5, 15)` and `log_uniform` sample a value for each environment and episode. With `check`, every index in its
    functions is bounds-checked; an error names the line, environment and step.

    "gym:ID" runs any Gymnasium environment in this process or, with `workers`, in worker processes; further options are
    passed to it. `max_episode_steps`, `skip`, `stack` and `scenario` work as in `make`.

    `preprocess="atari"` applies the standard Atari preprocessing to the images of a gym: environment, in stacks of (4,
    84, 84). Each part is an option: "atari(skip=4, stack=4, size=84, gray=true, life_loss=true, clip_rewards=true,
    noops=30)".
    """
    frames = {name: value for name, value in (("skip", skip), ("stack", stack)) if value is not None}
    if isinstance(environment, str) and environment.startswith(GYMNASIUM):
        _refuse_scenario(environment, scenario)
        ours = (
            ("device", device, "cpu"),
            ("threads", threads, None),
            ("params", params, None),
            ("check", check, False),
        )
        for name, value, default in ours:
            if value != default:
                raise ValueError(f"{environment} runs in Python and has no {name}=; that is for native environments")
        return make_host(
            environment.removeprefix(GYMNASIUM),
            num_envs,
            workers,
            seed=seed,
            autoreset_mode=AutoresetMode(autoreset_mode),
            copy=copy,
            render_mode=render_mode,
            preprocess=preprocess,
            **({} if max_episode_steps is None else {"max_episode_steps": max_episode_steps}),
            **frames,
            **options,
        )
    found = with_frames(registry.find(environment), **frames)
    refuse_preprocessing(found, preprocess)
    if workers is not None:
        raise TypeError(f"{found.id} is compiled and has no workers=; they are for gym: environments")
    for name in options:
        raise _unexpected(found, "make_vec", name, "; parameters are set with params={...}")
    fleet_class = FleetVectorEnv
    if device == "cuda":
        from velocirl.vector.native_cuda import CUDAFleetVectorEnv  # needs numba-cuda

        fleet_class = CUDAFleetVectorEnv
    fleet = fleet_class(
        found, num_envs, seed=seed, device=device, threads=threads, params=params_in(found, scenario, params),
        copy=copy, render_mode=render_mode, check=check, max_episode_steps=max_episode_steps,
    )  # fmt: skip
    fleet.target.prepare()  # reports an error in a function now, not at the first step
    return with_autoreset(fleet, AutoresetMode(autoreset_mode))


def make_registered(*, environment: str, **options: Any) -> gymnasium.Env:
    """Make the environment for `gymnasium.make("velocirl/...")`; Gymnasium's wrapper applies the time limit."""
    return make(environment, max_episode_steps=-1, **options)


def make_vec_registered(*, environment: str, num_envs: int, **options: Any) -> VectorEnv:
    """Make the fleet for `gymnasium.make_vec("velocirl/...")`, with parameters passed as for a single environment."""
    fields = registry.find(environment).params.fields
    params = {name: options.pop(name) for name in fields if name in options}
    return make_vec(environment, num_envs, params={**options.pop("params", {}), **params}, **options)


def _refuse_scenario(environment: str, scenario: str | None) -> None:
    if scenario is not None:
        raise ValueError(f"{environment} has no scenario {scenario!r}: native environments may have some")


def _unexpected(environment: Environment, function: str, name: str, advice: str) -> TypeError:
    """Return a TypeError worded as Python's own, which torchrl reads before it retries without the argument."""
    return TypeError(f"{environment.id}: {function}() got an unexpected keyword argument {name!r}{advice}")


def make_host(
    environment: str | Source,
    num_envs: int,
    workers: int | None,
    *,
    preprocess: Preprocess | None = None,
    **options: Any,
) -> HostInterface:
    """Make environments that step in Python, in this process or in workers, from a Gymnasium id or a factory.

    Preprocessed ALE games step in ALE's own vector environment instead, on threads of this process.
    """
    with explained(environment) if isinstance(environment, str) else nullcontext():
        if preprocess is None:
            return _host_copies(environment, num_envs, workers, options)
        source, switches = find_source(environment), switches_from(preprocess)
        if steps_in_ale(source, options, switches):
            if workers:
                raise ValueError(f"{environment} steps on threads of ALE's own: leave workers out")
            return make_in_ale(source, num_envs, options, switches)
        options, prepare = preparation(source, options, switches)
        copies = _host_copies(source, num_envs, workers, {**options, "prepare": prepare})
        copies.preprocess = switches
        return copies


def _host_copies(
    environment: str | Source, num_envs: int, workers: int | None, options: dict[str, Any]
) -> HostInterface:
    if workers is None:
        from velocirl.vector.host.vector_env import HostVectorEnv  # neither is needed for native fleets

        return HostVectorEnv(environment, num_envs, **options)
    from velocirl.vector.host.workers import WorkerVectorEnv

    return WorkerVectorEnv(environment, num_envs, workers=workers, **options)
