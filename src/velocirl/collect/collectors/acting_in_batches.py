"""Acting in a collector with a torch module or plain Python, by the steps of a batch learner."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.backends.batch.device import PythonDevice
from velocirl.backends.batch.steps import BatchSteps
from velocirl.buffers.records import GOES_ON
from velocirl.collect.collectors.content import from_bytes
from velocirl.collect.collectors.footage import AFTER, BEFORE
from velocirl.collect.collectors.ring import Ring
from velocirl.collect.sources import make_source
from velocirl.program.pace import PACE, Pace
from velocirl.program.rows.recording import Log
from velocirl.program.task import Task


class Pictures:
    """Network inputs of image observations; the ring stores the images themselves. See `FrameMemory`."""

    def __init__(self, device: Any, task: Task) -> None:
        self._device, self._factor = device, task.encoding.pixel_factor
        self.inputs = device.zeros(task.config.num_envs, task.encoding.inputs)

    def begin(self) -> None:
        """Convert the current images to network inputs."""
        self._device.store(self.inputs, self.observation.astype(np.float32) * self._factor)

    def bind(self, observation: Any, final: Any) -> None:
        """Read current and final images from these arrays."""
        self.observation, self.final = observation, final


class SlotWriter:
    """Ring of a collector with the interface that steps write to."""

    def __init__(self, device: Any, task: Task, ring: Ring) -> None:
        self._ring, self.rows = ring, ring.rows
        self.frames = None if task.frames is None else Pictures(device, task)
        self._age = np.zeros(ring.copies, np.int32)  # frames before the newest in each environment's stack

    def bind_frames(self, observation: Any, final: Any, *, on_host: bool) -> None:  # noqa: ARG002 - it always is
        """Read images from these arrays."""
        assert self.frames is not None  # noqa: S101 - only then it is called
        self.frames.bind(observation, final)

    def begin_episodes(self) -> None:
        """Mark the current images as those before a first step."""
        if self.frames is None:
            return
        if self._ring.stack:
            self._age[:] = 0
        else:
            self._ring.firsts[:] = self.frames.observation

    def see(self) -> None:
        """Store the newest frame of the observation before a step."""
        if self.frames is not None and (ring := self._ring).stack:
            ring.frames[ring.round(ring.slot), BEFORE] = self.frames.observation[:, -ring.frames.shape[-1] :]

    def receive(self, group: NDArray[Any]) -> None:
        """Write a round into the ring's current slot."""
        ring = self._ring
        own = ring.round(ring.slot)
        ring.rows[own] = group
        if self.frames is None:
            return
        seen, final = self.frames.observation, self.frames.final
        if not ring.stack:
            ring.seen[own], ring.finals[own] = seen, final
            return
        over, size = group["ended"] != GOES_ON, ring.frames.shape[-1]
        ring.frames[own, AFTER] = np.where(over[:, None], final[:, -size:], seen[:, -size:])
        ring.rows["age"][own] = self._age
        self._age[:] = np.where(over, 0, np.minimum(self._age + 1, ring.stack - 1))

    def advance(self) -> None:
        """Do nothing: a round is published only once it is complete."""


class BatchActing:
    """Acting with a network that is not native, on one thread, or with plain Python."""

    def __init__(self, task: Task, ring: Ring) -> None:
        self._ring, self.pace = ring, np.zeros(1, PACE)
        device = self._device = device_of(task)
        self._network = device.make_network(task.built[task.acting], None)
        self._writer = SlotWriter(device, task, ring)
        source = make_source(task, device)
        self._steps = BatchSteps(task, device, self._network, self._writer, source, 1)
        self.host, arrays = source.host, self._steps.arrays
        self._log = Log(*(np.asarray(one) for one in arrays.log))
        self._reported, self._rng, self._noise = map(np.asarray, (arrays.reported, arrays.rng, arrays.noise))

    @property
    def envs(self) -> Any:
        """The environments."""
        return self._steps.envs

    def take(self, content: Any) -> None:
        """Load the weights to act with from now on."""
        network = self._network
        buffers = network.buffers() if network.takes_statistics else {}
        parameters, kept = from_bytes(content, network.num_parameters, buffers)
        network.parameters_from(parameters)
        if kept:
            network.load_buffers(kept)

    def step(self, step: int) -> None:
        """Step all environments into the ring's current slot; the run has taken `step` steps."""
        ring, steps, pace = self._ring, self._steps, Pace(*self.pace[0].item())
        if self.host.begin():
            self._writer.begin_episodes()
        self._writer.see()
        self._rng[...], self._noise[...] = ring.rng, ring.kept
        with self._device.at_work():
            steps.begin()
            steps.explore(step, pace)
            (steps.warm_up if step < pace.learning_starts else steps.step)()
        ring.rng[...], ring.kept[...] = self._rng, self._noise
        slot = ring.slot
        for own, made in zip(ring.log[:3], self._log[:3], strict=True):
            own[0, slot] = made[0, 0]
        ring.log.fault[:] = self._log.fault
        ring.reported[:, 0, slot] = self._reported[:, 0, 0]


def device_of(task: Task) -> Any:
    """Return the device on which a collector acts: plain Python, or torch on one CPU thread."""
    if task.config.device == "python":
        return PythonDevice()
    from velocirl.backends.torch.device import TorchCPUDevice  # needs torch

    return TorchCPUDevice(1)
