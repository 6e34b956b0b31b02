"""The update of a torch network that values every action: products between our own functions, on any device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from velocirl.optim.optimisers import Optimiser
from velocirl.training.mapped_replaying import UPDATES
from velocirl.training.off_policy import ACTOR_METRICS, METRICS, ValueLoss
from velocirl.training.torch_device import Device
from velocirl.training.torch_off_policy_descent import Descent, Frozen
from velocirl.training.torch_off_policy_ring import TorchClock, TorchRing


class Made(NamedTuple):
    """What the networks made of a batch, and what they are to change."""

    outputs: Any  # (batch, outputs) of the observations
    ahead: Any  # (batch, outputs) of the next ones by the network itself
    frozen: Any  # (batch, outputs) of the next ones by the frozen network
    gradient: Any  # (batch, outputs) d loss / d outputs
    metrics: Any  # (batch, METRICS)


def losing(loss: ValueLoss, weigh: Callable[..., Any]) -> Callable[..., Any]:
    """`lose(r, ring, batch, made, clock, settings)`: the loss of one record and its gradient."""
    target, _, loss_gradient = loss

    def lose(r, ring, batch, made, clock, settings):
        mask = ring.rows[batch.lasts[r]].mask
        goal = target(made.ahead[r], made.frozen[r], batch.rewards[r], batch.discounts[r], mask)
        gradient, action = made.gradient[r], ring.rows[batch.places[r]].action
        weight = weigh(r, batch, clock)
        batch.errors[r] = loss_gradient(made.outputs[r], action, goal, weight, settings, gradient, made.metrics[r])
        share = np.float32(1.0 / len(batch.places))
        for k in range(len(gradient)):
            gradient[k] *= share

    return lose


class ValueUpdate:
    """Draw, value what follows, lose, descend, and now and then move the frozen network."""

    def __init__(
        self,
        device: Device,
        network: Any,
        loss: ValueLoss,
        settings: Any,  # of the loss: a NamedTuple of float32
        optimiser: Optimiser,
        ring: TorchRing,
        clock: TorchClock,
        *,
        limits_values: bool,
    ) -> None:
        self.network, self._ring, self._clock = network, ring, clock
        self._needs_output = loss.needs_output
        self.frozen = Frozen(device, network, clock)
        self.descent = Descent(device, network, optimiser, clock, limits_values=limits_values)
        rows, zeros = ring.sizes.batch_size, device.zeros
        names = ("outputs", "ahead", "frozen", "gradient")
        self.tensors: dict[str, torch.Tensor] = {name: zeros(rows, network.outputs) for name in names}
        self.tensors["metrics"] = zeros(rows, METRICS)
        self.totals = zeros(METRICS, dtype=np.float64)
        made = Made(**{name: device.array(tensor) for name, tensor in self.tensors.items()})
        mapper = device.mapper(device.learning_translator("learner"))
        lose: Any = losing(loss, ring.weigh)
        self._lose = mapper.bind(lose, rows, ring.arrays, ring.batch, made, clock.arrays, settings)

    def update(self, *, actor: bool, move: bool) -> None:  # noqa: ARG002 - there is no actor
        """One update; with `move` the frozen network comes closer."""
        self.find_gradient()
        self.descent.take_step()
        if move:
            self.frozen.move()
        self._ring.revise()

    def find_gradient(self) -> None:
        """Draw a batch, and let the network have the gradient of its loss."""
        tensors, drawn = self.tensors, self._ring.tensors
        self._ring.draw()
        tensors["frozen"].copy_(self.frozen.network.forward(drawn["following"])[0])
        if self._needs_output:
            tensors["ahead"].copy_(self.network.forward(drawn["following"])[0])
        with self.network.learning():
            tensors["outputs"].copy_(self.network.forward(drawn["inputs"])[0])
        self._lose()
        self.network.backward(tensors["gradient"])
        columns = slice(0, ACTOR_METRICS)
        self.totals[columns].add_(tensors["metrics"][:, columns].sum(0, dtype=torch.float64))

    def begin(self) -> None:
        """At the beginning of an iteration."""
        self.totals.zero_()

    def checked(self) -> torch.Tensor:
        """A number that is not finite where a parameter is not."""
        return self.network.parameters.detach().sum(dtype=torch.float64)

    def freeze(self) -> None:
        """Let the frozen network be what the other is."""
        self.frozen.copy()

    def state(self) -> dict[str, NDArray[Any]]:
        """The optimiser and the frozen network."""
        return {
            "learner.moments": self.descent.state(),
            "learner.steps": self._clock.tensors["counts"][UPDATES].cpu().numpy().copy(),
            "learner.frozen": self.frozen.state(),
        }

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `state` gave."""
        self.descent.load_state(state["learner.moments"], "learner.moments")
        self._clock.tensors["counts"][UPDATES].fill_(int(state["learner.steps"]))
        self.frozen.load_state(state["learner.frozen"])
