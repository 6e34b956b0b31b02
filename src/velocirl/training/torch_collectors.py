"""Collectors whose network is torch's: of a fleet on the device itself, or of Gymnasium's environments on the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from velocirl.buffers.rollout import sample_type
from velocirl.engine import random
from velocirl.engine.environment import Environment
from velocirl.networks.encoding import Encoding
from velocirl.networks.heads import Head
from velocirl.training.collecting import Eyes
from velocirl.training.commands import writer_for
from velocirl.learners.host import HostArrays
from velocirl.training.mapped_collecting import Track, collecting
from velocirl.training.torch_device import CPUDevice, Device
from velocirl.vector.host_interface import HostInterface

# What a learner reads of a rollout, beside the samples.
LEARNT_FROM = ("last_value", "reward_sums", "observation_sums", "ends", "end_returns", "end_lengths", "fault")


class Records:
    """The memory of a rollout on one device: a track for our own functions, and tensors of the same memory."""

    def __init__(
        self,
        device: Device,
        head: Head,
        encoding: Encoding,
        state_size: int,
        seeds: int,
        copies: int,  # of each agent
        horizon: int,
        cuts: int,  # how often a copy's episodes may be cut off in a rollout
    ) -> None:
        self.seeds, self.copies, self.horizon, self.cuts = seeds, copies, horizon, cuts
        count, inputs, outputs, memory = seeds * copies, encoding.inputs, head.outputs + 1, max(state_size, 1)
        choices = head.outputs if head.masked else 0
        kind = sample_type(inputs, head.action_size, head.action_dtype, choices)
        places = count * max(cuts, 1)
        seen = (count, 2, inputs) if encoding.normalises else (1, 2, 1)
        zeros = device.zeros
        self.tensors: dict[str, torch.Tensor] = {
            "inputs": zeros(count, inputs),
            "outputs": zeros(count, outputs),
            "state": zeros(count, memory),
            "last_value": zeros(count),
            "discounted": zeros(count),
            "reward_sums": zeros(count, 2, dtype=np.float64),
            "observation_sums": zeros(*seen, dtype=np.float64),
            "cut_count": zeros(count, dtype=np.int32),
            "cut_time": zeros(count, max(cuts, 1), dtype=np.int32),
            "cut_inputs": zeros(places, inputs),
            "cut_state": zeros(places, memory),
            "cut_outputs": zeros(places, outputs),
            "ends": zeros(seeds, horizon, copies, dtype=np.int32),
            "end_returns": zeros(seeds, horizon, copies),
            "end_lengths": zeros(seeds, horizon, copies, dtype=np.int32),
            "fault": zeros(count, dtype=np.int32),
        }
        self.samples = device.records((horizon + 1, count), kind)
        self.start_state = zeros(count, memory)
        self._device = device

    def copy(self, other: Records) -> None:
        """Take over what a learner reads of another rollout."""
        for name in LEARNT_FROM:
            self.tensors[name].copy_(other.tensors[name], non_blocking=True)
        self.start_state.copy_(other.start_state, non_blocking=True)
        self._device.copy(self.samples, other.samples)

    def contents(self) -> dict[str, NDArray[Any]]:
        """What a learner reads of this rollout, as arrays of the host."""
        arrays = {f"waiting.{name}": self.tensors[name].cpu().numpy().copy() for name in LEARNT_FROM}
        samples = self._device.fetch(self.samples)
        raw = np.ascontiguousarray(samples).view(np.uint8).reshape(len(samples), -1)
        return {**arrays, "waiting.start_state": self.start_state.cpu().numpy().copy(), "waiting.samples": raw}

    def load_contents(self, state: Mapping[str, NDArray[Any]]) -> bool:
        """Take what `contents` gave from a saved state; says whether it was there."""
        if "waiting.samples" not in state:
            return False
        for name in LEARNT_FROM:
            self.tensors[name].copy_(torch.from_numpy(state[f"waiting.{name}"]))
        self.start_state.copy_(torch.from_numpy(state["waiting.start_state"]))
        self._device.store(self.samples, state["waiting.samples"].view(self.samples.dtype).reshape(self.samples.shape))
        return True

    def track(self, rows: Callable[[Any], Any]) -> Track:
        """The track as functions reach it on their device."""
        by_row = ("inputs", "state", "reward_sums", "observation_sums", "cut_time", "cut_inputs", "cut_state")
        arrays = {name: self._device.array(tensor) for name, tensor in self.tensors.items()}
        return Track(
            samples=self.samples, **{name: rows(array) if name in by_row else array for name, array in arrays.items()}
        )


class TorchFleetCollector:
    """Rollouts of a fleet that lives on the network's own device: one kernel and one forward pass for each step."""

    def __init__(
        self,
        device: Device,
        environment: Environment,
        params: Mapping[str, Any],
        copies: int,
        horizon: int,
        head: Head,
        encoding: Encoding,
        network: Any,
        seeds: Sequence[tuple[int, int]],  # of the environment and of the policy, for each agent
    ) -> None:
        self.device, self.network, self.horizon = device, network, horizon
        self.fleet = device.make_fleet(environment, len(seeds) * copies, params)
        self.fleet.reset()
        starts = np.concatenate([random.streams(one, copies) for one, _ in seeds])
        device.store(self.fleet.copies.rng, starts)
        self.fleet.target.begin(np.ones(len(starts), np.bool_))
        cuts = 0 if environment.max_steps is None else -(-horizon // environment.max_steps)
        self.records = Records(device, head, encoding, network.state_size, len(seeds), copies, horizon, cuts)
        learning = device.learning_translator("policy")
        write = writer_for(environment.action)
        life: Any = self.fleet.target.life  # pyright: ignore[reportAttributeAccessIssue]
        mapped = collecting(head, encoding, write, life, network.state_size > 0)
        mapper = device.fleet_mapper(self.fleet, learning, tuple(one for one in mapped if one is not mapped.step))
        self.track = self.records.track(mapper.rows)
        self._rng = device.put(np.concatenate([random.streams(one, copies) for _, one in seeds]))
        self.eye_tensors = device.zeros(encoding.inputs), device.zeros(encoding.inputs) + 1
        self.eyes = Eyes(*map(device.array, self.eye_tensors))
        count = len(starts)
        fleet, rng, numbers = device.copies_of(self.fleet), mapper.rows(self._rng), (np.int64(0), np.float32(1))
        self._begin = mapper.bind(mapped.begin, count, fleet, self.track, self.eyes)
        self._step = mapper.bind(mapped.step, count, fleet, rng, self.track, self.eyes, numbers=numbers)
        self._finish = mapper.bind(mapped.finish, count, self.track)
        self._value_cut = mapper.bind(mapped.value_cut, count * max(cuts, 1), self.track)

    def collect(self, gamma: float) -> None:
        """One rollout of all copies."""
        records, tensors = self.records, self.records.tensors
        self._begin()
        records.start_state.copy_(tensors["state"])
        for t in range(self.horizon):
            self._forward("inputs", "state", "outputs", remember=True)
            self._step(np.int64(t), np.float32(gamma))
        self._forward("inputs", "state", "outputs", remember=False)
        self._finish()
        if records.cuts:
            self._forward("cut_inputs", "cut_state", "cut_outputs", remember=False)
            self._value_cut()

    def _forward(self, inputs: str, state: str, outputs: str, *, remember: bool) -> None:
        """Let the network read one tensor and write another, and what it remembers."""
        tensors = self.records.tensors
        recurrent = self.network.state_size > 0
        agents = self.network.parameters.shape[:-1]  # none, or how many
        read = tensors[inputs].view(*agents, tensors[inputs].shape[0] // self.records.seeds, -1)
        made, after = self.network.forward(read, tensors[state] if recurrent else None)
        tensors[outputs].copy_(made.view(tensors[outputs].shape))
        if recurrent and remember:
            tensors[state].copy_(after)

    def state(self) -> dict[str, NDArray[Any]]:
        """The fleet, the policy's random streams, the discounted returns and what the network remembers."""
        fleet = {f"fleet.{name}": array for name, array in self.fleet.get_state().items()}
        return {**fleet, "policy.rng": self.device.fetch(self._rng), **_memory(self)}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on where the copies were."""
        self.device.synchronise()
        fleet = {name.removeprefix("fleet."): array for name, array in state.items() if name.startswith("fleet.")}
        self.fleet.set_state(fleet)
        self.device.store(self._rng, state["policy.rng"])
        _load_memory(self, state)


class TorchHostCollector:
    """Rollouts of Gymnasium's environments: steps in Python, the rest compiled for the host, the network anywhere."""

    def __init__(
        self,
        device: Device,
        envs: HostInterface,
        horizon: int,
        head: Head,
        encoding: Encoding,
        network: Any,
        seed: int,
        threads: int,
    ) -> None:
        self.device, self.network, self.horizon, self.envs = device, network, horizon, envs
        count = envs.num_envs
        host = CPUDevice(threads)
        self.records = Records(host, head, encoding, network.state_size, 1, count, horizon, horizon)
        self._host = HostArrays.allocate(envs, head)
        learning = host.learning_translator("policy")
        mapper = host.mapper(learning)
        mapped = collecting(head, encoding, writer_for(envs.single_action_space), None, network.state_size > 0)
        self.track = self.records.track(mapper.rows)
        self._rng = random.streams(seed, count)
        self.eye_tensors = host.zeros(encoding.inputs), host.zeros(encoding.inputs) + 1
        self.eyes = Eyes(*map(host.array, self.eye_tensors))
        arrays, step, rng = self._host.rows, np.int64(0), mapper.rows(self._rng)
        self._begin = mapper.bind(mapped.begin, count, arrays, self.track, self.eyes)
        self._act = mapper.bind(mapped.act, count, arrays, rng, self.track, numbers=(step,))
        self._settle = mapper.bind(mapped.settle, count, arrays, self.track, self.eyes, numbers=(step, np.float32(1)))
        self._finish = mapper.bind(mapped.finish, count, self.track)
        self._value_cut = mapper.bind(mapped.value_cut, count * horizon, self.track)
        self._begun = False

    def collect(self, gamma: float) -> None:
        """One rollout of all copies."""
        tensors = self.records.tensors
        if not self._begun:
            self._host.take(*self.envs.reset())
            self._begun = True
        self._begin()
        self.records.start_state.copy_(tensors["state"])
        for t in range(self.horizon):
            self._forward(tensors["inputs"], tensors["state"], tensors["outputs"], remember=True)
            self._act(np.int64(t))
            self._host.take_step(*self.envs.step(self._host.action))
            self._settle(np.int64(t), np.float32(gamma))
        self._forward(tensors["inputs"], tensors["state"], tensors["outputs"], remember=False)
        self._finish()
        cut = torch.arange(self.horizon)[None] < tensors["cut_count"][:, None]
        places = cut.flatten().nonzero().flatten()
        if len(places):
            made = torch.empty(len(places), tensors["outputs"].shape[1])
            self._forward(tensors["cut_inputs"][places], tensors["cut_state"][places], made, remember=False)
            tensors["cut_outputs"][places] = made
            self._value_cut()

    def _forward(self, inputs: torch.Tensor, state: torch.Tensor, outputs: torch.Tensor, *, remember: bool) -> None:
        recurrent, place = self.network.state_size > 0, self.device.torch
        made, after = self.network.forward(inputs.to(place), state.to(place) if recurrent else None)
        outputs.copy_(made)
        if recurrent and remember:
            state.copy_(after)

    def state(self) -> dict[str, NDArray[Any]]:
        """The policy's random streams; what Gymnasium's environments are in the middle of cannot be saved."""
        return {"policy.rng": self._rng.copy(), **_memory(self)}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on with new episodes: their seeds come from the policy's streams, so that no episode is repeated."""
        self._rng[:] = state["policy.rng"]
        self.records.tensors["discounted"].zero_()
        self.records.tensors["state"].zero_()
        self.envs.reset(seed=int(self._rng[0, 0] >> np.uint64(33)))
        self._begun = False


TorchCollector = TorchFleetCollector | TorchHostCollector


def _memory(collector: TorchCollector) -> dict[str, NDArray[Any]]:
    tensors = collector.records.tensors
    return {
        "policy.discounted": tensors["discounted"].cpu().numpy().copy(),
        "policy.state": tensors["state"].cpu().numpy().copy(),
    }


def _load_memory(collector: TorchCollector, state: Mapping[str, NDArray[Any]]) -> None:
    tensors = collector.records.tensors
    tensors["discounted"].copy_(torch.from_numpy(state["policy.discounted"]))
    if "policy.state" in state:  # not of a native learner, whose network remembers nothing
        tensors["state"].copy_(torch.from_numpy(state["policy.state"]))
