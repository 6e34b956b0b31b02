"""Making environments by name: one, or a fleet; native, or any of Gymnasium's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
from gymnasium.vector import AutoresetMode, VectorEnv

from velocirl.engine import registry
from velocirl.engine.environment import Environment
from velocirl.vector.autoreset import with_autoreset
from velocirl.vector.gymnasium_ids import explained, import_for
from velocirl.vector.native import FleetVectorEnv
from velocirl.vector.single import SingleEnv

GYMNASIUM = "gym:"


def make(
    environment: str | Environment, *, render_mode: str | None = None, device: str = "cpu", **params: Any
) -> gymnasium.Env:
    """One environment with Gymnasium's interface: `make("CartPole-v1", gravity=5.0)`, `make("gym:Acrobot-v1")`."""
    if isinstance(environment, str) and environment.startswith(GYMNASIUM):
        rendering = {} if render_mode is None else {"render_mode": render_mode}  # not every environment has it
        name = environment.removeprefix(GYMNASIUM)
        with explained(name):
            return gymnasium.make(import_for(name), **rendering, **params)
    return SingleEnv(registry.find(environment), device=device, render_mode=render_mode, params=params)


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
    **options: Any,
) -> VectorEnv:
    """A fleet with Gymnasium's vector interface.

    A native environment (an id of `list_envs()`, or an Environment) runs compiled on `device`, "cpu", "cuda" or, to
    debug, "python"; `params` sets fields of its Params, for all copies or one value for each. With `check`, every index
    of its functions is tested, and a wrong one is told with its line, copy and step. "gym:ID" runs any of
    Gymnasium's environments in this process or, with `workers`, in processes; further options go to it.
    """
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
        return _make_host(
            environment.removeprefix(GYMNASIUM),
            num_envs,
            workers,
            seed=seed,
            autoreset_mode=AutoresetMode(autoreset_mode),
            copy=copy,
            render_mode=render_mode,
            **options,
        )
    found = registry.find(environment)
    if options or workers is not None:
        wrong = next(iter(options), "workers")
        raise TypeError(f"{found.id} is compiled and has no {wrong}=; set its parameters with params={{...}}")
    fleet_class = FleetVectorEnv
    if device == "cuda":
        from velocirl.vector.native_cuda import CUDAFleetVectorEnv  # needs numba-cuda

        fleet_class = CUDAFleetVectorEnv
    fleet = fleet_class(
        found, num_envs, seed=seed, device=device, threads=threads, params=params, copy=copy, render_mode=render_mode,
        check=check,
    )  # fmt: skip
    fleet.target.prepare()  # a fault in a function shows here, not at the first step
    return with_autoreset(fleet, AutoresetMode(autoreset_mode))


def make_registered(*, environment: str, **options: Any) -> gymnasium.Env:
    """What `gymnasium.make("velocirl/...")` calls."""
    return make(environment, **options)


def make_vec_registered(*, environment: str, num_envs: int, **options: Any) -> VectorEnv:
    """What `gymnasium.make_vec("velocirl/...")` calls."""
    return make_vec(environment, num_envs, **options)


def _make_host(environment: str, num_envs: int, workers: int | None, **options: Any) -> VectorEnv:
    if workers is None:
        from velocirl.vector.host import HostVectorEnv  # neither is needed for native fleets

        with explained(environment):
            return HostVectorEnv(environment, num_envs, **options)
    from velocirl.vector.workers import WorkerVectorEnv

    with explained(environment):
        return WorkerVectorEnv(environment, num_envs, workers=workers, **options)
