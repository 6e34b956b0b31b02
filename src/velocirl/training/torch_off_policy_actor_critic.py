"""The update of an actor and two critics of torch: products between our own functions, on any device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import exp, log
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from velocirl.engine import random
from velocirl.engine.registers import row
from velocirl.optim.optimisers import Optimiser
from velocirl.training.mapped_replaying import UPDATES, descending
from velocirl.training.off_policy import ACTOR_METRICS, METRICS, ActorCriticLoss
from velocirl.training.torch_device import Device
from velocirl.training.torch_off_policy_descent import Descent, Frozen
from velocirl.training.torch_off_policy_ring import TorchClock, TorchRing


class Made(NamedTuple):
    """What the networks read and made of a batch, and what they are to change."""

    outputs: Any  # (batch, outputs) of the actor
    output_gradient: Any  # (batch, outputs)
    critic_inputs: Any  # (batch, inputs + action size) [observation | action]
    critic_following: Any  # (batch, inputs + action size) the same of what comes next
    values: Any  # (batch, 2) of the critics
    frozen_values: Any  # (batch, 2) of the frozen ones, of what comes next
    value_gradient: Any  # (batch, 2)
    input_gradient: Any  # (batch, inputs + action size) d actor's loss / d critic_inputs
    noise: Any  # (batch, action size) that the actor's gradient needs
    log_probabilities: Any  # (batch,)
    worth: Any  # (batch,) what the critics add to the actor's loss
    slopes: Any  # (batch,) d loss / d log temperature
    temperature: Any  # (1 + slots, 1) its logarithm, and what its optimiser keeps
    metrics: Any  # (batch, METRICS)


class Losing(NamedTuple):
    """The functions of an update, each for one row of the batch."""

    join: Callable[..., Any]  # (r, ring, batch, made): what the critics read
    dream: Callable[..., Any]  # (r, batch, made, rng, settings): the next action
    judge: Callable[..., Any]  # (r, batch, made, clock, settings): the loss of the critics
    act: Callable[..., Any]  # (r, made, rng, settings, batch): the action that the actor takes now
    value: Callable[..., Any]  # (r, made): what it is worth
    improve: Callable[..., Any]  # (r, made, settings, batch): the loss of the actor


def losing(loss: ActorCriticLoss, weigh: Callable[..., Any]) -> Losing:
    """Compose the functions of an update."""
    dream_action, target, critic_gradient, act_again = loss.dream, loss.target, loss.critic_gradient, loss.act_again
    value_slope, actor_gradient, temperature_slope = loss.value_slope, loss.actor_gradient, loss.temperature_slope

    def join(r, ring, batch, made):
        inputs, action = batch.inputs.shape[1], ring.rows[batch.places[r]].action
        for j in range(inputs):
            made.critic_inputs[r, j] = batch.inputs[r, j]
            made.critic_following[r, j] = batch.following[r, j]
        for k in range(len(action)):
            made.critic_inputs[r, inputs + k] = action[k]

    def dream(r, batch, made, rng, settings):
        action = made.critic_following[r, batch.inputs.shape[1] :]
        made.log_probabilities[r] = dream_action(made.outputs[r], row(rng, r), settings, action)

    def judge(r, batch, made, clock, settings):
        temperature = exp(made.temperature[0, 0])
        following = made.log_probabilities[r]
        goal = target(made.frozen_values[r], batch.rewards[r], batch.discounts[r], following, temperature)
        gradient, weight = made.value_gradient[r], weigh(r, batch, clock)
        batch.errors[r] = critic_gradient(made.values[r], goal, weight, settings, gradient, made.metrics[r])
        share = np.float32(1.0 / len(batch.places))
        for k in range(len(gradient)):
            gradient[k] *= share

    def act(r, made, rng, settings, batch):
        action = made.critic_inputs[r, batch.inputs.shape[1] :]
        log_probability = act_again(made.outputs[r], row(rng, r), settings, made.noise[r], action)
        made.log_probabilities[r] = log_probability
        made.slopes[r] = temperature_slope(log_probability, settings)

    def value(r, made):
        made.worth[r] = value_slope(made.values[r], made.value_gradient[r])

    def improve(r, made, settings, batch):
        temperature, inputs = exp(made.temperature[0, 0]), batch.inputs.shape[1]
        action, slope = made.critic_inputs[r, inputs:], made.input_gradient[r, inputs:]
        gradient, metrics = made.output_gradient[r], made.metrics[r]
        actor_gradient(
            made.outputs[r], made.noise[r], action, slope, made.log_probabilities[r], temperature, settings, gradient,
            metrics,
        )  # fmt: skip
        metrics[ACTOR_METRICS] += made.worth[r]
        share = np.float32(1.0 / len(batch.places))
        for k in range(len(gradient)):
            gradient[k] *= share

    return Losing(join, dream, judge, act, value, improve)


class ActorCriticUpdate:
    """Critics, now and then the actor and the temperature, and the frozen networks."""

    def __init__(
        self,
        device: Device,
        actor: Any,
        critic: Any,  # both critics, of [observation | action]
        loss: ActorCriticLoss,
        settings: Any,  # of the loss: a NamedTuple of float32
        optimiser: Optimiser,
        ring: TorchRing,
        clock: TorchClock,
        *,
        temperature: float,  # at first
        seed: int,
        limits_values: bool,
    ) -> None:
        self.device, self.network, self.critic, self._ring, self._clock = device, actor, critic, ring, clock
        self._loss = loss
        self.frozen_critic = Frozen(device, critic, clock)
        self.frozen_actor = Frozen(device, actor, clock) if loss.frozen_actor else None
        self.critic_descent = Descent(device, critic, optimiser, clock, limits_values=limits_values)
        self.actor_descent = Descent(device, actor, optimiser, clock, limits_values=limits_values, is_actor=True)
        rows, zeros, inputs = ring.sizes.batch_size, device.zeros, ring.tensors["inputs"].shape[1]
        size = ring.rows.dtype["action"].shape[0]
        self.tensors: dict[str, torch.Tensor] = {
            "outputs": zeros(rows, actor.outputs),
            "output_gradient": zeros(rows, actor.outputs),
            "critic_inputs": zeros(rows, inputs + size),
            "critic_following": zeros(rows, inputs + size),
            "values": zeros(rows, 2),
            "frozen_values": zeros(rows, 2),
            "value_gradient": zeros(rows, 2),
            "input_gradient": zeros(rows, inputs + size),
            "noise": zeros(rows, size),
            "log_probabilities": zeros(rows),
            "worth": zeros(rows),
            "slopes": zeros(rows),
            "temperature": zeros(1 + optimiser.slots, 1),
            "metrics": zeros(rows, METRICS),
        }
        self.tensors["temperature"][0] = log(temperature)
        self.totals = zeros(METRICS, dtype=np.float64)
        self._slope = zeros(1)
        self._streams = device.put(random.streams(seed, rows))
        self._bind(settings, optimiser)

    def _bind(self, settings: Any, optimiser: Optimiser) -> None:
        device, ring, clock = self.device, self._ring, self._clock.arrays
        made = Made(**{name: device.array(tensor) for name, tensor in self.tensors.items()})
        mapper = device.mapper(device.learning_translator("learner"))
        functions, rng, bind = losing(self._loss, ring.weigh), mapper.rows(self._streams), mapper.bind
        rows, batch = ring.sizes.batch_size, ring.batch
        self._join = bind(functions.join, rows, ring.arrays, batch, made)
        self._dream = bind(functions.dream, rows, batch, made, rng, settings)
        self._judge = bind(functions.judge, rows, batch, made, clock, settings)
        self._act = bind(functions.act, rows, made, rng, settings, batch)
        self._value = bind(functions.value, rows, made)
        self._improve = bind(functions.improve, rows, made, settings, batch)
        heat: Any = descending(optimiser.rule).heat
        arguments = made.temperature, device.array(self._slope), self.actor_descent.learnt, clock
        self._heat = bind(heat, 1, *arguments)

    def update(self, *, actor: bool, move: bool) -> None:
        """One update; with `actor` that of the actor too, with `move` the frozen networks come closer."""
        self.find_critic_gradient()
        self.critic_descent.take_step()
        if actor:
            self.find_actor_gradient()
            self.actor_descent.take_step()
            if self._loss.learns_temperature:
                torch.mean(self.tensors["slopes"], 0, keepdim=True, out=self._slope)
                self._heat()
        if move:
            self.frozen_critic.move()
            if self.frozen_actor is not None:
                self.frozen_actor.move()
        self._ring.revise()

    def find_critic_gradient(self) -> None:
        """Draw a batch, and let the critics have the gradient of their loss."""
        tensors, drawn = self.tensors, self._ring.tensors
        self._ring.draw()
        self._join()
        dreamer = self.network if self.frozen_actor is None else self.frozen_actor.network
        tensors["outputs"].copy_(dreamer.forward(drawn["following"])[0])
        self._dream()
        tensors["frozen_values"].copy_(self.frozen_critic.network.forward(tensors["critic_following"])[0])
        with self.critic.learning():
            tensors["values"].copy_(self.critic.forward(tensors["critic_inputs"])[0])
        self._judge()
        self.critic.backward(tensors["value_gradient"])
        self._count(slice(0, ACTOR_METRICS))

    def find_actor_gradient(self) -> None:
        """Let the actor have the gradient of its loss on the same batch."""
        tensors = self.tensors
        with self.network.learning():
            tensors["outputs"].copy_(self.network.forward(self._ring.tensors["inputs"])[0])
        self._act()
        with self.critic.reading_back():
            tensors["values"].copy_(self.critic.forward(tensors["critic_inputs"])[0])
        self._value()
        tensors["input_gradient"].copy_(self.critic.input_gradient(tensors["value_gradient"]))
        self._improve()
        self.network.backward(tensors["output_gradient"])
        self._count(slice(ACTOR_METRICS, METRICS))

    def _count(self, columns: slice) -> None:
        self.totals[columns].add_(self.tensors["metrics"][:, columns].sum(0, dtype=torch.float64))

    def begin(self) -> None:
        """At the beginning of an iteration."""
        self.totals.zero_()

    def freeze(self) -> None:
        """Let the frozen networks be what the others are."""
        self.frozen_critic.copy()
        if self.frozen_actor is not None:
            self.frozen_actor.copy()

    def checked(self) -> torch.Tensor:
        """A number that is not finite where a parameter is not."""
        own = self.network.parameters, self.critic.parameters, self.tensors["temperature"].view(-1)
        return torch.stack([one.detach().sum(dtype=torch.float64) for one in own]).sum()

    def state(self) -> dict[str, NDArray[Any]]:
        """The critics, the optimisers, the temperature and the frozen networks."""
        state = {
            "learner.moments": self.actor_descent.state(),
            "learner.steps": self._clock.tensors["counts"][UPDATES].cpu().numpy().copy(),
            "learner.frozen": self.frozen_critic.state(),
            "learner.temperature": self.tensors["temperature"].view(-1).cpu().numpy().copy(),
            "learner.rng": self.device.fetch(self._streams),
            "critic.parameters": self.critic.to_host(),
            "critic.moments": self.critic_descent.state(),
        }
        state |= {f"critic.buffer.{name}": array for name, array in self.critic.buffers().items()}
        return state if self.frozen_actor is None else {**state, "learner.frozen_actor": self.frozen_actor.state()}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `state` gave."""
        prefix = "critic.buffer."
        self.critic.load_buffers(
            {name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)}
        )
        self.critic.parameters_from(state["critic.parameters"])
        self.actor_descent.load_state(state["learner.moments"], "learner.moments")
        self.critic_descent.load_state(state["critic.moments"], "critic.moments")
        self._clock.tensors["counts"][UPDATES].fill_(int(state["learner.steps"]))
        temperature = torch.from_numpy(np.array(state["learner.temperature"]))
        self.tensors["temperature"].copy_(temperature.view(self.tensors["temperature"].shape))
        self.frozen_critic.load_state(state["learner.frozen"])
        if self.frozen_actor is not None:
            self.frozen_actor.load_state(state["learner.frozen_actor"])
        if "learner.rng" in state and state["learner.rng"].shape == (self._ring.sizes.batch_size, 2):
            self.device.store(self._streams, state["learner.rng"])
