"""One step of the optimiser of a torch network, and the frozen twin that follows it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from velocirl.optim.optimisers import FACTORS, Optimiser
from velocirl.training import mapped_replaying as mapped
from velocirl.training.mapped_replaying import Learnt, descending
from velocirl.training.torch_device import Device
from velocirl.training.torch_off_policy_ring import TorchClock


class Descent:
    """Moves the parameters of one network along its gradient, unless that is not finite."""

    def __init__(
        self,
        device: Device,
        network: Any,
        optimiser: Optimiser,
        clock: TorchClock,
        *,
        limits_values: bool,  # whether each number of the gradient is clipped
        is_actor: bool = False,
    ) -> None:
        self.network, self._slots = network, optimiser.slots
        size = network.num_parameters
        self.moments = device.zeros(max(optimiser.slots, 1), size)
        self._norm = device.zeros(1, dtype=np.float64)
        self._limits_values = limits_values
        self.learnt = Learnt(
            parameters=device.array(network.parameters.detach()),
            gradient=device.array(network.gradient),
            moments=device.array(self.moments),
            settings=device.put(optimiser.settings()),
            factors=device.put(np.zeros(FACTORS, np.float32)),
            norm=device.array(self._norm),
        )
        functions = descending(optimiser.rule)
        mapper = device.mapper(device.learning_translator("learner"))
        judge = functions.judge_actor if is_actor else functions.judge
        self._judge = mapper.bind(judge, 1, self.learnt, clock.arrays)
        self._limit = mapper.bind(mapped.limit, size, self.learnt, clock.arrays)
        self._descend = mapper.bind(functions.descend, size, self.learnt, clock.arrays)

    def take_step(self) -> None:
        """Along the gradient that the network has now."""
        if self._limits_values:
            self._limit()
        torch.linalg.vector_norm(self.network.gradient.view(1, -1), dim=1, dtype=torch.float64, out=self._norm)
        self._judge()
        self._descend()

    def state(self) -> NDArray[np.float32]:
        """The moments (slots, parameters)."""
        return self.moments[: self._slots].cpu().numpy().copy()

    def load_state(self, moments: NDArray[np.float32], name: str) -> None:
        """Go on from what `state` gave."""
        wanted = (self._slots, self.moments.shape[1])
        if moments.shape != wanted:
            raise ValueError(f"{name} is {moments.shape} in the file; this agent has {wanted}")
        self.moments[: self._slots].copy_(torch.from_numpy(np.array(moments)))


class Frozen:
    """A twin of a network, with memory of its own, that follows it from time to time."""

    def __init__(self, device: Device, network: Any, clock: TorchClock) -> None:
        self._source = network
        self.network = network.twin()
        arrays = device.array(network.parameters.detach()), device.array(self.network.parameters.detach())
        mapper = device.mapper(device.learning_translator("learner"))
        self.move = mapper.bind(mapped.move, network.num_parameters, *arrays, clock.arrays)

    def copy(self) -> None:
        """Be the same as the network, with all that it keeps beside its parameters."""
        self.network.parameters.data.copy_(self._source.parameters.data)
        self.network.load_buffers(self._source.buffers())

    def state(self) -> NDArray[np.float32]:
        """The parameters."""
        return self.network.to_host()

    def load_state(self, parameters: NDArray[np.float32]) -> None:
        """Go on from what `state` gave, and with the buffers that the network has by now."""
        self.network.parameters_from(parameters)
        self.network.load_buffers(self._source.buffers())
