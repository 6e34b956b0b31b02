"""GPU fleet behind Gymnasium's vector interface, with device arrays as inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from velocirl.engine.fleets.lifecycle import each_array
from velocirl.engine.targets import cuda as engine
from velocirl.vector.native import FleetVectorEnv, Infos


class CUDAFleetVectorEnv(FleetVectorEnv, VectorEnv):  # repeated for skrl, which inspects only direct bases
    """Fleet whose observations, rewards and flags stay on the device.

    They have `__cuda_array_interface__`, so `torch.as_tensor(observations, device="cuda")` shares their memory. Actions
    may be on the device (a torch tensor, a CuPy or numba array) or on the host. `infos` always holds the arrays of the
    last episodes' ends, with their masks: checking whether any environment has ended would wait for the device.
    """

    target: engine.CUDATarget  # pyright: ignore[reportIncompatibleVariableOverride]

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, Infos]:
        """Step every environment. `terminated` and `truncated` are never merged."""
        self.check_ready()
        copies = self.copies
        if hasattr(actions, "__cuda_array_interface__"):
            self._accept_from_device(actions)
        else:
            self._gate.take(engine.parts_on_host(actions))
            copies.action.copy_to_device(self._gate.into)
        self.target.advance()
        costs = self.cost_info(copies.costs)
        infos = self.mask_info() | costs | self.ends(self.target.ended(), costs)
        return (
            self.given(self.seen(copies.observation)),
            self.given(copies.reward),
            self.given(copies.terminated),
            self.given(copies.truncated),
            infos,
        )

    def read(self, names: Iterable[str]) -> dict[str, Any]:
        """Copy the named arrays to the host."""
        return {name: getattr(self.copies, name).copy_to_host() for name in names}

    def render(self) -> tuple[Any, ...] | None:
        """Render every environment in the render mode."""
        host = each_array(lambda array: array.copy_to_host(), self.copies)
        return tuple(self.renderer.render(host, copy) for copy in range(self.num_envs))

    def reported(self, field: str) -> Any:
        """Return a field of the states in which episodes ended, on the host: records have no columns on the device."""
        return self.copies.final_state.copy_to_host()[field]

    def seen(self, observation: Any) -> Any:
        """Return the engine's observations in the shape of the observation space."""
        return observation.reshape(self.num_envs) if self.scalar_observation else observation

    def given(self, array: Any, rows: Any = None) -> Any:  # noqa: ARG002 - all rows are as fast as some
        """Return the caller's array: a copy on the device, or with `copy=False` the engine's own array."""
        return engine.duplicate(array) if self.copy else array

    def summed(self, costs: Any) -> Any:
        """Return the sum of each environment's costs, on the device."""
        return self.target.summed(costs)

    def write(self, arrays: Mapping[str, Any]) -> None:
        """Overwrite the contents of arrays."""
        for name, array in arrays.items():
            getattr(self.copies, name).copy_to_device(np.ascontiguousarray(array))
        engine.cuda.synchronize()  # any stream may read them next

    def _arriving(self) -> NDArray[Any]:
        return np.empty(self.copies.action.shape, self.copies.action.dtype)

    def _accept_from_device(self, actions: Any) -> None:
        interface = actions.__cuda_array_interface__
        if tuple(interface["shape"]) != self.copies.action.shape:
            raise ValueError(
                f"{self.environment.id}: actions have shape {tuple(interface['shape'])};"
                f" give {self.copies.action.shape}, one action for each copy"
            )
        bad = self.target.accept(actions)
        if bad >= 0:
            raise ValueError(
                f"{self.environment.id}: the action of copy {bad} is outside {self.environment.action};"
                " clip it, or check the agent for NaN"
            )
