"""Where a torch learner runs: the same calls for the CPU and for a GPU."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from velocirl.engine.compiling import compile_loop, learning_translator
from velocirl.engine.environment import Environment
from velocirl.engine.mapping import CPUMapper, Mapper
from velocirl.engine.translating import Translator
from velocirl.learners.batch.background import Background, ThreadBackground
from velocirl.learners.batch.torch_background import StreamBackground
from velocirl.vector.native import FleetVectorEnv

TYPES = {
    np.dtype(np.float32): torch.float32,
    np.dtype(np.float64): torch.float64,
    np.dtype(np.int32): torch.int32,
    np.dtype(np.int64): torch.int64,
}


WORK_FOR_THREADS = 4_000_000  # rows of a minibatch times parameters


class CPUDevice:
    """Torch on CPU cores; the arrays of our own loops are NumPy's."""

    name = "cpu"
    captures = False  # whether `capture` makes graphs
    reports_late = False  # whether an iteration is under way when the call that started it returns

    def __init__(self, threads: int, work: int = 0) -> None:
        self.threads = threads
        # For small products a second thread costs more than it saves, and very much more where cores are shared.
        self._torch_threads = threads if work >= WORK_FOR_THREADS else 1
        self.torch = torch.device("cpu")

    def zeros(self, *shape: int, dtype: Any = np.float32) -> torch.Tensor:
        """A tensor of zeros."""
        return torch.zeros(shape, dtype=TYPES[np.dtype(dtype)], device=self.torch)

    def array(self, tensor: torch.Tensor) -> Any:
        """The same memory for our own loops."""
        return tensor.numpy()

    def put(self, host: NDArray[Any]) -> Any:
        """A copy of an array of the host, for our own loops; of types that torch does not have, too."""
        return host.copy()

    def records(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Records of zeros."""
        return np.zeros(shape, dtype)

    def store(self, array: Any, host: NDArray[Any]) -> None:
        """Replace what an array holds."""
        array[...] = host

    def fetch(self, array: Any) -> NDArray[Any]:
        """What an array holds, as a copy on the host."""
        return np.array(array)

    def copy(self, target: Any, source: Any) -> None:
        """Copy an array of this device into another."""
        target[...] = source

    def make_background(self, collector: Any) -> Background:  # noqa: ARG002 - a GPU needs it
        """What collects while somebody learns."""
        return ThreadBackground()

    def make_fleet(self, environment: Environment, count: int, params: Mapping[str, Any]) -> FleetVectorEnv:
        """Copies of an environment on this device."""
        return FleetVectorEnv(environment, count, seed=0, threads=1, params=params, copy=False)

    def copies_of(self, fleet: FleetVectorEnv) -> Any:
        """The arrays of a fleet as our own functions reach them."""
        target: Any = fleet.target
        return target.shares[0]

    def learning_translator(self, name: str) -> Translator:
        """What compiles the functions of a learner."""
        return learning_translator(name)

    def fleet_mapper(self, fleet: FleetVectorEnv, learning: Translator, functions: tuple[Any, ...]) -> Mapper:
        """A mapper for functions that step an environment, and call these of the learner's."""
        target: Any = fleet.target
        for function in functions:  # in the learner's manner; the environment's own code stays strict
            target.translator.adopt(function, learning.scalar(function))
        return CPUMapper(self.threads, target.compile)

    def mapper(self, learning: Translator) -> Mapper:
        """A mapper for the learner's functions."""
        return CPUMapper(
            self.threads,
            lambda loop, *arguments: compile_loop(loop, arguments, learning, before=lambda: None),
        )

    def capture(self, function: Callable[[], None], stream: Any = None) -> Callable[[], None]:  # noqa: ARG002
        """What runs the function from now on: the function."""
        return function

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """While this lasts, torch uses our threads, as many as we were given."""
        before = torch.get_num_threads()
        torch.set_num_threads(self._torch_threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    def synchronise(self) -> None:
        """Nothing is ever under way."""

    def mark(self) -> float:
        """A moment."""
        return time.perf_counter()

    def seconds_between(self, *marks: float) -> list[float]:
        """The seconds from each moment to the next."""
        return [after - before for before, after in pairwise(marks)]


class CUDADevice:
    """Torch and our own kernels on one stream of a GPU."""

    name = "cuda"
    reports_late = True

    def __init__(self, precision: str, captures: bool = True) -> None:
        from velocirl.engine.cuda_kernels import cuda  # needs numba-cuda

        self.captures = captures
        self._precision = precision
        self.torch = torch.device("cuda")
        self.stream = torch.cuda.Stream()
        self._cuda = cuda
        self._pool = None

    def zeros(self, *shape: int, dtype: Any = np.float32) -> torch.Tensor:
        """A tensor of zeros."""
        return torch.zeros(shape, dtype=TYPES[np.dtype(dtype)], device=self.torch)

    def array(self, tensor: torch.Tensor) -> Any:
        """The same memory for our own kernels."""
        return self._cuda.as_cuda_array(tensor)

    def put(self, host: NDArray[Any]) -> Any:
        """A copy of an array of the host."""
        return self._cuda.to_device(np.ascontiguousarray(host))

    def records(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Records of zeros."""
        array = self._cuda.device_array(shape, dtype)
        _bytes(array).zero_()
        return array

    def store(self, array: Any, host: NDArray[Any]) -> None:
        """Replace what an array holds."""
        self.synchronise()
        array.copy_to_device(np.ascontiguousarray(host))
        self.synchronise()

    def fetch(self, array: Any) -> NDArray[Any]:
        """What an array holds, as a copy on the host."""
        self.synchronise()
        return array.copy_to_host()

    def copy(self, target: Any, source: Any) -> None:
        """Copy an array of the host or of this device into one of this device, in the order of our stream."""
        if isinstance(source, np.ndarray):
            self.store(target, source)
        else:
            _bytes(target).copy_(_bytes(source))

    def make_background(self, collector: Any) -> Background:
        """What collects while somebody learns: a second stream, or a thread where environments step on the host."""
        return StreamBackground(self.stream) if hasattr(collector, "fleet") else ThreadBackground()

    def make_fleet(self, environment: Environment, count: int, params: Mapping[str, Any]) -> FleetVectorEnv:
        """Copies of an environment on this device."""
        from velocirl.vector.native_cuda import CUDAFleetVectorEnv

        return CUDAFleetVectorEnv(environment, count, seed=0, device="cuda", params=params, copy=False)

    def copies_of(self, fleet: FleetVectorEnv) -> Any:
        """The arrays of a fleet."""
        return fleet.copies

    def learning_translator(self, name: str) -> Translator:
        """What compiles the functions of a learner."""
        from velocirl.engine.cuda_kernels import cuda_translator

        return cuda_translator(name, double=False)

    def fleet_mapper(self, fleet: FleetVectorEnv, learning: Translator, functions: tuple[Any, ...]) -> Mapper:
        """A mapper for functions that step an environment, and call these of the learner's."""
        from velocirl.engine.cuda_kernels import CUDAMapper

        target: Any = fleet.target
        for function in functions:
            target.translator.adopt(function, learning.scalar(function))
        return CUDAMapper(target.translator, self._handle, target.rehearse, target.tell)

    def mapper(self, learning: Translator) -> Mapper:
        """A mapper for the learner's functions."""
        from velocirl.engine.cuda_kernels import CUDAMapper

        return CUDAMapper(learning, self._handle)

    def capture(self, function: Callable[[], None], stream: Any = None) -> Callable[[], None]:
        """Record a function's kernels as a graph, and return what replays it; it must have run once before.

        What runs beside others is captured on a stream of its own, with memory of its own.
        """
        if not self.captures:
            return function
        graph = torch.cuda.CUDAGraph()
        self.synchronise()
        with torch.cuda.graph(graph, pool=self._pool if stream is None else None, stream=stream or self.stream):
            function()
        if self._pool is None and stream is None:
            self._pool = graph.pool()
        return graph.replay

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """While this lasts, torch works on our stream, in our precision, and the same twice."""
        matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
        before = matmul.allow_tf32
        matmul.allow_tf32 = self._precision == "tf32"
        try:
            with (
                torch.cuda.stream(self.stream),
                cudnn.flags(enabled=True, deterministic=True, allow_tf32=self._precision == "tf32"),
            ):
                yield
        finally:
            matmul.allow_tf32 = before

    def synchronise(self) -> None:
        """Wait until everything is done."""
        torch.cuda.synchronize()

    def mark(self) -> torch.cuda.Event:
        """The moment when the GPU comes to this place."""
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds_between(self, *marks: torch.cuda.Event) -> list[float]:
        """The seconds from each moment to the next, when the last has come."""
        marks[-1].synchronize()
        return [before.elapsed_time(after) / 1000 for before, after in pairwise(marks)]

    def _handle(self) -> int:
        return torch.cuda.current_stream().cuda_stream


class _Bytes:
    """The memory of an array of the device as bytes, for torch."""

    def __init__(self, array: Any) -> None:
        interface = array.__cuda_array_interface__
        size = int(np.prod(interface["shape"])) * array.dtype.itemsize
        self.__cuda_array_interface__ = {
            "shape": (size,), "typestr": "|u1", "data": interface["data"], "version": 2, "strides": None
        }  # fmt: skip


def _bytes(array: Any) -> torch.Tensor:
    return torch.as_tensor(_Bytes(array), device="cuda")


Device = CPUDevice | CUDADevice


def make_device(name: str, threads: int, precision: str, work: int) -> Device:
    """The device of a name, for minibatches of so much work: rows times parameters."""
    if name == "cpu":
        return CPUDevice(threads, work)
    return CUDADevice(precision, captures=os.environ.get("VELOCIRL_CUDA_GRAPHS", "1") != "0")
