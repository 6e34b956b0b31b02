"""Steps of the copies into a memory: a fleet on the device itself, or Gymnasium's environments on the host.

A step of a fleet is a pass of the network and one kernel; see `mapped_stepping` for what is done for one copy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from velocirl.engine import random
from velocirl.engine.environment import Environment
from velocirl.networks.encoding import Encoding
from velocirl.networks.heads import Head
from velocirl.learners.host import HostArrays
from velocirl.training.mapped_replaying import EXPLORATION, STEP
from velocirl.training.mapped_stepping import Scene, stepping
from velocirl.training.off_policy import Behaviour
from velocirl.learners.pace import Pace, exploration_at
from velocirl.training.torch_device import CPUDevice, Device
from velocirl.training.torch_off_policy_ring import TorchClock, TorchRing
from velocirl.vector.host_interface import HostInterface


class Records:
    """The tensors of a scene on one device."""

    def __init__(self, device: Device, copies: int, most_steps: int, inputs: int, outputs: int, size: int) -> None:
        zeros, places = device.zeros, (1, most_steps, copies)
        self.device, self.copies, self.most_steps = device, copies, most_steps
        self.tensors: dict[str, torch.Tensor] = {
            "inputs": zeros(copies, inputs),
            "outputs": zeros(copies, outputs),
            "noise": zeros(copies, size),
            "ends": zeros(*places, dtype=np.int32) - 1,
            "end_returns": zeros(*places),
            "end_lengths": zeros(*places, dtype=np.int32),
            "fault": zeros(copies, dtype=np.int32),
        }

    def scene(self, rows: Any, counts: Any, by_row: Callable[[Any], Any]) -> Scene:
        """The scene as functions reach it on their device."""
        arrays = {name: self.device.array(tensor) for name, tensor in self.tensors.items()}
        arrays |= {name: by_row(arrays[name]) for name in ("inputs", "noise")}
        return Scene(rows=rows, counts=counts, **arrays)

    def forget(self) -> None:
        """At the beginning of an iteration no episode has ended in it."""
        self.tensors["ends"].fill_(-1)

    def noise(self) -> dict[str, NDArray[Any]]:
        """What exploration keeps."""
        return {"policy.noise": self.tensors["noise"].cpu().numpy().copy()}

    def load_noise(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `noise` gave."""
        self.tensors["noise"].copy_(torch.from_numpy(state["policy.noise"].reshape(self.tensors["noise"].shape)))


class FleetSteps:
    """Steps of a fleet that lives on the network's own device."""

    on_host = False

    def __init__(
        self,
        device: Device,
        environment: Environment,
        params: Mapping[str, Any],
        copies: int,
        most_steps: int,  # of an iteration
        encoding: Encoding,
        head: Head,
        behaviour: Behaviour,
        network: Any,
        ring: TorchRing,
        clock: TorchClock,
        seeds: tuple[int, int],  # of the environment and of the actions
    ) -> None:
        self.device, self._network, self._ring = device, network, ring
        self.fleet = device.make_fleet(environment, copies, params)
        self.fleet.reset()
        device.store(self.fleet.copies.rng, random.streams(seeds[0], copies))
        self.fleet.target.begin(np.ones(copies, np.bool_))
        self.records = Records(device, copies, most_steps, encoding.inputs, network.outputs, head.action_size)
        life: Any = self.fleet.target.life  # pyright: ignore[reportAttributeAccessIssue]
        mapped = stepping(behaviour, encoding, life)
        learning = device.learning_translator("policy")
        mapper = device.fleet_mapper(self.fleet, learning, (mapped.see, mapped.draw, mapped.act, mapped.remember))
        scene = self.records.scene(ring.rows, ring.counts, mapper.rows)
        self._rng = device.put(random.streams(seeds[1], copies))
        fleet, rng = device.copies_of(self.fleet), mapper.rows(self._rng)
        self._see = mapper.bind(mapped.see, copies, fleet, scene)
        self._warm_up = mapper.bind(mapped.warm_up, copies, fleet, rng, scene, clock.arrays)
        self._step = mapper.bind(mapped.step, copies, fleet, rng, scene, clock.arrays)

    def begin(self) -> None:
        """Before the first step of an iteration."""
        self.records.forget()
        self._see()

    def warm_up(self) -> None:
        """One step by random actions."""
        self._warm_up()
        self._ring.advance()

    def step(self) -> None:
        """One step by the network's actions."""
        tensors = self.records.tensors
        made, _ = self._network.forward(tensors["inputs"])
        tensors["outputs"].copy_(made)
        self._step()
        self._ring.advance()

    def state(self) -> dict[str, NDArray[Any]]:
        """The fleet, the random streams of actions, and what exploration keeps."""
        fleet = {f"fleet.{name}": array for name, array in self.fleet.get_state().items()}
        return {**fleet, "policy.rng": self.device.fetch(self._rng), **self.records.noise()}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on where the copies were."""
        self.device.synchronise()
        fleet = {name.removeprefix("fleet."): array for name, array in state.items() if name.startswith("fleet.")}
        self.fleet.set_state(fleet)
        self.device.store(self._rng, state["policy.rng"])
        self.records.load_noise(state)


class HostSteps:
    """Steps of Gymnasium's environments in Python; each group of records is sent to the memory once."""

    on_host = True

    def __init__(
        self,
        device: Device,
        envs: HostInterface,
        most_steps: int,
        encoding: Encoding,
        head: Head,
        behaviour: Behaviour,
        network: Any,
        ring: TorchRing,
        seed: int,
        threads: int,
    ) -> None:
        self.device, self.envs, self._network, self._ring = device, envs, network, ring
        copies, host = envs.num_envs, CPUDevice(threads)
        self.records = Records(host, copies, most_steps, encoding.inputs, network.outputs, head.action_size)
        self._arrays = HostArrays.allocate(envs, head)
        mapped = stepping(behaviour, encoding, None)
        mapper = host.mapper(host.learning_translator("policy"))
        self._clock = TorchClock(host)  # of which only the step and the exploration are read
        self._group = np.zeros(copies, ring.rows.dtype)
        scene = self.records.scene(self._group, np.zeros(3, np.int64), mapper.rows)
        self._rng = random.streams(seed, copies)
        arrays, rng, clock = self._arrays.rows, mapper.rows(self._rng), self._clock.arrays
        self._see = mapper.bind(mapped.see, copies, arrays, scene)
        self._draw = mapper.bind(mapped.draw, copies, arrays, rng, scene)
        self._act = mapper.bind(mapped.act, copies, arrays, rng, scene, clock)
        self._remember = mapper.bind(mapped.remember, copies, arrays, scene, clock)
        self._begun, self._seed = False, None

    def begin(self) -> None:
        """Before the first step of an iteration."""
        if not self._begun:
            self._arrays.take(*self.envs.reset(seed=self._seed))
            self._begun, self._seed = True, None
        self._clock.tensors["counts"].zero_()
        self.records.forget()
        self._see()

    def explore(self, step: int, pace: Pace) -> None:
        """How much is explored in the step that comes next."""
        self._clock.tensors["numbers"][EXPLORATION] = exploration_at(step, pace)

    def warm_up(self) -> None:
        """One step by random actions."""
        self._draw()
        self._go_on()

    def step(self) -> None:
        """One step by the network's actions."""
        tensors = self.records.tensors
        made, _ = self._network.forward(tensors["inputs"].to(self.device.torch))
        tensors["outputs"].copy_(made)
        self._act()
        self._go_on()

    def state(self) -> dict[str, NDArray[Any]]:
        """The random streams of actions; what Gymnasium's environments are in the middle of cannot be saved."""
        return {"policy.rng": self._rng.copy(), **self.records.noise()}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on with new episodes: their seeds come from the policy's streams, so that no episode is repeated."""
        self._rng[:] = state["policy.rng"]
        self.records.tensors["noise"].zero_()
        self._begun, self._seed = False, int(self._rng[0, 0] >> np.uint64(33))

    def _go_on(self) -> None:
        self._arrays.take_step(*self.envs.step(self._arrays.action))
        self._remember()
        self._ring.receive(self._group)
        self._ring.advance()
        self._clock.tensors["counts"][STEP] += 1


Steps = FleetSteps | HostSteps
