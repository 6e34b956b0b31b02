"""Making environments by name: one, or a fleet; native, or any of Gymnasium's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import gymnasium
from gymnasium.vector import AutoresetMode, VectorEnv

from velocirl.engine import registry
from velocirl.engine.environment import Environment
from velocirl.engine.framing import with_frames
from velocirl.vector.autoreset import with_autoreset
from velocirl.vector.gymnasium_ids import explained, import_for
from velocirl.vector.host_copies import Source
from velocirl.vector.native import FleetVectorEnv
from velocirl.vector.single import SingleEnv

GYMNASIUM = "gym:"


def make(
    environment: str | Environment,
    *,
    render_mode: str | None = None,
    device: str = "cpu",
    max_episode_steps: int | None = None,
    skip: int | None = None,
    stack: int | None = None,
    **params: Any,
) -> gymnasium.Env:
    """One environment with Gymnasium's interface: `make("CartPole-v1", gravity=5.0)`, `make("gym:Acrobot-v1")`.

    An episode is cut off after `max_episode_steps`, or after the environment's own where that is None; -1: never. A
    native environment that neither skips nor stacks by itself does with `skip` and `stack`, see `Environment`.
    """
    frames = {name: value for name, value in (("skip", skip), ("stack", stack)) if value is not None}
    if isinstance(environment, str) and environment.startswith(GYMNASIUM):
        rendering = {} if render_mode is None else {"render_mode": render_mode}  # not every environment has it
        name = environment.removeprefix(GYMNASIUM)
        with explained(name):
            return gymnasium.make(
                import_for(name), max_episode_steps=max_episode_steps, **rendering, **frames, **params
            )
    found = with_frames(registry.find(environment), **frames)
    for name in params:
        if name not in found.params.fields:
            raise _unexpected(found, "make", name, found.params.suggestion(name))
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
    skip: int | None = None,
    stack: int | None = None,
    **options: Any,
) -> VectorEnv:
    """A fleet with Gymnasium's vector interface.

    A native environment (an id of `list_envs()`, or an Environment) runs compiled on `device`, "cpu", "cuda" or, to
    debug, "python"; `params` sets fields of its Params, for all copies, one value for each, or `uniform(5, 15)` and
    `log_uniform` to draw one for each copy and episode. With `check`, every index of its functions is tested, and a
    wrong one is told with its line, copy and step. "gym:ID" runs any of Gymnasium's environments in this process or,
    with `workers`, in processes; further options go to it. Episodes are cut off, and frames skipped and stacked, as
    `make` says.
    """
    frames = {name: value for name, value in (("skip", skip), ("stack", stack)) if value is not None}
    if isinstance(environment, str) and environment.startswith(GYMNASIUM):
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
            **({} if max_episode_steps is None else {"max_episode_steps": max_episode_steps}),
            **frames,
            **options,
        )
    found = with_frames(registry.find(environment), **frames)
    if workers is not None:
        raise TypeError(f"{found.id} is compiled and has no workers=; they are for gym: environments")
    for name in options:
        raise _unexpected(found, "make_vec", name, "; parameters are set with params={...}")
    fleet_class = FleetVectorEnv
    if device == "cuda":
        from velocirl.vector.native_cuda import CUDAFleetVectorEnv  # needs numba-cuda

        fleet_class = CUDAFleetVectorEnv
    fleet = fleet_class(
        found, num_envs, seed=seed, device=device, threads=threads, params=params, copy=copy, render_mode=render_mode,
        check=check, max_episode_steps=max_episode_steps,
    )  # fmt: skip
    fleet.target.prepare()  # a fault in a function shows here, not at the first step
    return with_autoreset(fleet, AutoresetMode(autoreset_mode))


def make_registered(*, environment: str, **options: Any) -> gymnasium.Env:
    """What `gymnasium.make("velocirl/...")` calls; the time limit is that of the wrapper that Gymnasium adds."""
    return make(environment, max_episode_steps=-1, **options)


def make_vec_registered(*, environment: str, num_envs: int, **options: Any) -> VectorEnv:
    """What `gymnasium.make_vec("velocirl/...")` calls, with parameters as it gives them to a single environment."""
    fields = registry.find(environment).params.fields
    params = {name: options.pop(name) for name in fields if name in options}
    return make_vec(environment, num_envs, params={**options.pop("params", {}), **params}, **options)


def _unexpected(environment: Environment, function: str, name: str, advice: str) -> TypeError:
    """As Python would say it: torchrl reads that, and tries without."""
    return TypeError(f"{environment.id}: {function}() got an unexpected keyword argument {name!r}{advice}")


def make_host(environment: str | Source, num_envs: int, workers: int | None, **options: Any) -> VectorEnv:
    """Copies that step in Python, in this process or in workers, of one of Gymnasium's ids or of what makes one."""
    explaining = explained(environment) if isinstance(environment, str) else nullcontext()
    if workers is None:
        from velocirl.vector.host import HostVectorEnv  # neither is needed for native fleets

        with explaining:
            return HostVectorEnv(environment, num_envs, **options)
    from velocirl.vector.workers import WorkerVectorEnv

    with explaining:
        return WorkerVectorEnv(environment, num_envs, workers=workers, **options)
