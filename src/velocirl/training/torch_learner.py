"""Learning with a torch network: its products between our own functions, on any device.

Every epoch and minibatch is a fixed sequence of kernels. What an update decides as it goes (whether to stop, whether a
number is not one, how many steps were taken) it decides on the device, so that a GPU never waits for the host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from velocirl.engine import random
from velocirl.networks.heads import Head
from velocirl.optim.optimisers import FACTORS, Optimiser
from velocirl.training.mapped_updating import (
    COUNTS,
    DISCOUNT,
    GOOD,
    LEARNING_RATE,
    LOSS_SCALE,
    NUMBERS,
    PLACE,
    STEPS,
    Batch,
    Learnt,
    Limits,
    Shape,
    updating,
)  # fmt: skip
from velocirl.training.torch_collectors import Records
from velocirl.training.torch_device import Device
from velocirl.training.updating import METRICS, Schedule

SPREAD = 4  # sums from which the explained variance follows
FIRST_LOSS_SCALE = 2.0**16  # of fp16's gradients


class Objective(NamedTuple):
    """What is learnt, and how."""

    head: Head
    loss_gradient: Callable[..., Any]
    settings: Any  # of the loss: a NamedTuple of float32
    divergence: int  # the metric that stops an update when it exceeds target_kl
    optimiser: Optimiser
    vtrace_limits: tuple[float, float] | None


class TorchLearner:
    """Learns from the records of a rollout."""

    def __init__(
        self,
        device: Device,
        network: Any,
        objective: Objective,
        records: Records,
        schedule: Schedule,
        seeds: Sequence[int],
        scaling: bool,
    ) -> None:
        self.device, self.network, self.schedule = device, network, schedule
        self._records, self._objective = records, objective
        self._together = network.parameters.ndim > 1  # several agents, or one in the shape of several
        count, copies, horizon = records.seeds, records.copies, records.horizon
        self.shape = Shape(
            copies=copies,
            horizon=horizon,
            rows=copies * horizon // schedule.minibatches,
            units=copies * horizon // schedule.unit,
            unit=schedule.unit,
            parameters=network.num_parameters,
        )
        self.limits = Limits(
            max_grad_norm=float(schedule.max_grad_norm),
            max_grad_value=float(schedule.max_grad_value),
            target_kl=float(schedule.target_kl),
            normalise=float(schedule.normalise),
            scaling=float(scaling),
        )
        slots = max(objective.optimiser.slots, 1)
        outputs, rows, zeros = network.outputs, count * self.shape.rows, device.zeros
        self.tensors: dict[str, torch.Tensor] = {
            "order": zeros(count, self.shape.units, dtype=np.int32),
            "counts": zeros(count, COUNTS, dtype=np.int64),
            "numbers": zeros(count, NUMBERS, dtype=np.float64),
            "inputs": zeros(rows, records.tensors["inputs"].shape[1]),
            "starts": zeros(rows),
            "advantages": zeros(rows),
            "mean": zeros(count),
            "deviation": zeros(count) + 1,
            "outputs": zeros(rows, outputs),
            "output_gradient": zeros(rows, outputs),
            "metrics": zeros(rows, METRICS),
            "sums": zeros(count, METRICS),
            "totals": zeros(count, METRICS, dtype=np.float64),
        }
        self.tensors["numbers"][:, LOSS_SCALE] = FIRST_LOSS_SCALE if scaling else 1.0
        self.moments = zeros(slots, count * self.shape.parameters)
        self.norm = zeros(count, dtype=np.float64)
        self.spread = zeros(count * copies, SPREAD, dtype=np.float64)
        self._state = zeros(max(self.shape.rows // self.shape.unit, 1), max(network.state_size, 1))
        self._rng = device.put(np.concatenate([random.streams(seed, 1) for seed in seeds]))
        discounts = np.ones(count, DISCOUNT)
        self.discounts = device.put(discounts)
        self._bind()

    def _bind(self) -> None:
        """Compile the functions of an update over this memory."""
        device, objective, records, shape, limits = self.device, self._objective, self._records, self.shape, self.limits
        learning = device.learning_translator("learner")
        mapper = device.mapper(learning)
        arrays = {name: device.array(tensor) for name, tensor in self.tensors.items()}
        batch = Batch(samples=records.samples, **arrays)
        learnt = Learnt(
            parameters=device.array(self.network.parameters.detach().view(-1)),
            gradient=device.array(self.network.gradient.view(-1)),
            moments=device.array(self.moments),
            settings=device.put(objective.optimiser.settings()),
            factors=mapper.rows(device.put(np.zeros((records.seeds, FACTORS), np.float32))),
            norm=device.array(self.norm),
        )
        functions = updating(
            objective.loss_gradient, objective.optimiser.rule, objective.head, objective.divergence,
            self.network.state_size > 0, alone=records.seeds == 1,
        )  # fmt: skip
        seeds, copies, bind = records.seeds, records.seeds * records.copies, mapper.bind
        rows, parameters = seeds * shape.rows, seeds * shape.parameters
        keys = mapper.rows(device.put(np.zeros((seeds, 4), np.uint64)))
        track = records.track(mapper.rows)
        self._begin = bind(functions.begin, seeds, batch)
        self._draw_keys = bind(functions.draw_keys, seeds, keys, mapper.rows(self._rng), batch)
        self._draw = bind(functions.draw, seeds * shape.units, keys, batch, shape)
        self._keep_order = bind(functions.keep_order, seeds * shape.units, batch, shape)
        self._gather = bind(functions.gather, rows * self.tensors["inputs"].shape[1], batch, shape)
        self._gather_state = bind(
            functions.gather_state, self._state.numel(), batch, shape,
            device.array(records.start_state), device.array(self._state),
        )  # fmt: skip
        self._lose = bind(functions.lose, rows, batch, shape, objective.settings, limits)
        self._tally = bind(functions.tally, seeds, batch, shape, limits)
        self._scale = bind(functions.scale, parameters, batch, learnt, shape, limits)
        self._judge = bind(functions.judge, seeds, batch, learnt, limits)
        self._descend = bind(functions.descend, parameters, batch, learnt, shape, limits)
        self._estimate = bind(
            functions.estimate, copies, track, self.discounts, mapper.rows(device.array(self.spread)), shape
        )
        self._revalue = bind(functions.revalue, rows, batch, shape)
        if objective.vtrace_limits is not None:
            self._retrace = bind(
                functions.retrace, copies, track, self.discounts, shape,
                numbers=tuple(map(np.float32, objective.vtrace_limits)),
            )  # fmt: skip

    def capture(self) -> None:
        """From now on, replay the stages as graphs where the device has them; each must have run once."""
        capture = self.device.capture
        self._start_epoch = capture(self._start_epoch)
        self._first_minibatch = capture(self._first_minibatch)
        if self.schedule.accumulate > 1:
            self._further_minibatch = capture(self._further_minibatch)
        self._take_step = capture(self._take_step)
        if self._objective.vtrace_limits is not None:
            self._reorder, self._revalue_minibatch = capture(self._reorder), capture(self._revalue_minibatch)
            self._retrace_columns = capture(self._retrace_columns)

    def estimate(self) -> None:
        """Advantages and targets of the rollout, and sums from which the explained variance follows."""
        self._estimate()

    def begin(self) -> None:
        """Count from nothing."""
        self._begin()

    def set_learning_rate(self, learning_rate: float) -> None:
        """Of the next update."""
        self.tensors["numbers"][:, LEARNING_RATE].fill_(learning_rate)

    def update(self) -> None:
        """All epochs over the rollout."""
        schedule = self.schedule
        for _ in range(schedule.epochs):
            if self._objective.vtrace_limits is not None:
                self._reorder()
                for _ in range(schedule.minibatches):
                    self._revalue_minibatch()
                self._retrace_columns()
            self._start_epoch()
            for m in range(schedule.minibatches):
                if m % schedule.accumulate == 0:
                    self._first_minibatch()
                else:
                    self._further_minibatch()
                if (m + 1) % schedule.accumulate == 0 or m == schedule.minibatches - 1:
                    self._take_step()

    def _start_epoch(self) -> None:
        self._draw_keys()
        self._draw()

    def _first_minibatch(self) -> None:
        self._add_gradient(accumulate=False)

    def _further_minibatch(self) -> None:
        self._add_gradient(accumulate=True)

    def _add_gradient(self, *, accumulate: bool) -> None:
        """Gather, forward, loss and backward over one minibatch."""
        tensors, count = self.tensors, self._records.seeds
        with self.network.learning():
            outputs = self._read()
        self._lose()
        self.network.backward(tensors["output_gradient"].view(outputs.shape), accumulate)
        torch.sum(tensors["metrics"].view(count, -1, METRICS), 1, out=tensors["sums"])
        self._tally()

    def _read(self) -> torch.Tensor:
        """Let the network read the next minibatch."""
        tensors, shape, count = self.tensors, self.shape, self._records.seeds
        self._gather()
        if self.schedule.normalise and shape.rows > 1:
            advantages = tensors["advantages"].view(count, -1)
            torch.mean(advantages, 1, out=tensors["mean"])
            torch.std(advantages, 1, out=tensors["deviation"])
        if self.network.state_size:
            self._gather_state()
            together = shape.rows // shape.unit
            inputs = tensors["inputs"].view(shape.unit, together, -1)
            outputs = self.network.unroll(inputs, tensors["starts"].view(shape.unit, together), self._state)
        else:
            inputs = tensors["inputs"].view(*self.network.parameters.shape[:-1], shape.rows, -1)
            outputs, _ = self.network.forward(inputs)
        tensors["outputs"].copy_(outputs.detach().reshape(tensors["outputs"].shape))
        return outputs

    def _take_step(self) -> None:
        limits = self.limits
        if self.schedule.accumulate > 1 or limits.max_grad_value > 0 or limits.scaling > 0:
            self._scale()
        gradient = self.network.gradient.view(self._records.seeds, -1)
        torch.linalg.vector_norm(gradient, dim=1, dtype=torch.float64, out=self.norm)
        self._judge()
        self._descend()

    def _reorder(self) -> None:
        self._keep_order()

    def _revalue_minibatch(self) -> None:
        """V-trace: what the network of now makes of the next minibatch, in the order in which samples lie."""
        self._read()
        self._revalue()
        self.tensors["counts"][:, PLACE].add_(1)

    def _retrace_columns(self) -> None:
        assert self._objective.vtrace_limits is not None  # noqa: S101 - only then it is called
        self._retrace(*map(np.float32, self._objective.vtrace_limits))

    def state(self) -> dict[str, NDArray[Any]]:
        """What decides the next updates, besides the parameters; with a first dimension for several agents."""
        slots, seeds, together = self._objective.optimiser.slots, self._records.seeds, self._together
        moments = self.moments[:slots].view(slots, seeds, self.shape.parameters).cpu().numpy().copy()
        counts = self.tensors["counts"].cpu().numpy()
        state = {
            "learner.moments": moments.swapaxes(0, 1) if together else moments[:, 0],
            "learner.steps": np.array(counts[:, STEPS] if together else counts[0, STEPS], np.int64),
            "learner.rng": self.device.fetch(self._rng),
        }
        if self.limits.scaling:
            scales = self.tensors["numbers"][:, LOSS_SCALE].cpu().numpy().copy()
            state |= {"learner.loss_scale": scales, "learner.good_steps": counts[:, GOOD].copy()}
        return state

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `state` gave."""
        slots, seeds, together = self._objective.optimiser.slots, self._records.seeds, self._together
        moments = state["learner.moments"]
        moments = moments.swapaxes(0, 1) if together else moments
        wanted = (slots, seeds * self.shape.parameters)
        if moments.size != np.prod(wanted):
            raise ValueError(f"learner.moments has {moments.size} numbers; expected {wanted}")
        self.moments[:slots].copy_(torch.from_numpy(np.ascontiguousarray(moments).reshape(wanted)))
        self.tensors["counts"][:, STEPS].copy_(torch.from_numpy(np.atleast_1d(state["learner.steps"])))
        if state["learner.rng"].shape == (seeds, 2):  # a native learner has a stream for each of its threads
            self.device.store(self._rng, state["learner.rng"])
        if self.limits.scaling and "learner.loss_scale" in state:
            self.tensors["numbers"][:, LOSS_SCALE].copy_(torch.from_numpy(state["learner.loss_scale"]))
            self.tensors["counts"][:, GOOD].copy_(torch.from_numpy(state["learner.good_steps"]))
