"""Torch devices of batch learners: CPU cores, and a GPU with CUDA graphs of torch's and velocirl's kernels."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from velocirl.backends.batch.device import Device
from velocirl.backends.batch.overlap.background import Background, ThreadBackground
from velocirl.backends.torch.background import StreamBackground
from velocirl.backends.torch.capture import Capture
from velocirl.backends.torch.device_array import TYPES, DeviceArray
from velocirl.backends.torch.experience import TensorExperience, stays_on
from velocirl.engine.compiler.compiling import learning_translator
from velocirl.engine.environment import Environment
from velocirl.engine.targets.cores import available_cores
from velocirl.engine.targets.launching import Bound, CPULauncher, DividingLauncher, Work
from velocirl.engine.targets.warps import WARP, keep_sum
from velocirl.networks.mlp import MLP
from velocirl.networks.torch.mlp import TorchMLP
from velocirl.program.reducing import ALONE, Reducer
from velocirl.program.several import numbers_type
from velocirl.vector.native import FleetVectorEnv

PRODUCTS = {"float32": None, "tf32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
WORK_OF_A_THREAD = 4_000_000  # minibatch rows times parameters: with less, a thread costs more than it saves


class TorchDevice(Device):
    """Array operations with torch, on the device of its tensors."""

    sequential = False
    torch: torch.device
    _products: torch.dtype | None

    def zeros(self, *shape: int, dtype: Any = np.float32) -> torch.Tensor:
        """Return a tensor of zeros."""
        return torch.zeros(shape, dtype=TYPES[np.dtype(dtype)], device=self.torch)

    def flat(self, array: Any) -> Any:
        """Return a one-dimensional view of the array."""
        return array.detach().view(-1)

    def fetch_rows(self, array: Any, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Return a copy of some rows of an array on the host."""
        self.synchronise()
        return array[torch.from_numpy(rows).to(self.torch)].cpu().numpy()

    def store_rows(self, array: Any, rows: NDArray[np.int64], host: NDArray[Any]) -> None:
        """Overwrite some rows of an array."""
        self.synchronise()
        array[torch.from_numpy(rows).to(self.torch)] = torch.from_numpy(np.ascontiguousarray(host)).to(self.torch)
        self.synchronise()

    def numbers(self, array: Any, rows: NDArray[np.int64], factor: float) -> Any:
        """Return rows of bytes as float32, multiplied by `factor`, for networks."""
        return array[torch.from_numpy(rows).to(self.torch)].float() * factor

    def fill(self, array: Any, value: float) -> None:
        """Fill an array with one value."""
        array.fill_(value)

    def sum_rows(self, rows: Any, into: Any) -> None:
        """Sum rows (agents * rows, numbers) over each agent's rows, into (agents, numbers)."""
        torch.sum(rows.view(len(into), -1, rows.shape[-1]), 1, dtype=into.dtype, out=into)

    def find_norms(self, gradient: Any, into: Any) -> None:
        """Compute the norm of each agent's gradient, into (agents,)."""
        torch.linalg.vector_norm(gradient.view(len(into), -1), dim=1, dtype=torch.float64, out=into)

    def find_least(self, array: Any, into: Any) -> None:
        """Compute the minimum of an array."""
        torch.amin(array, 0, keepdim=True, out=into)

    def find_greatest(self, array: Any, into: Any) -> None:
        """Compute the maximum of an array and of the previous value of `into`."""
        torch.maximum(into, array.amax(0, keepdim=True), out=into)

    def latest(self, ends: Any, most: int) -> tuple[Any, Any]:
        """Return the `most` greatest of `ends` (agents, places), descending, and their indices; see `Device`."""
        return torch.topk(ends, most, 1)

    def take(self, array: Any, places: Any) -> Any:
        """Return the elements of an array (agents, places) at indices (agents, some)."""
        return array.gather(1, places)

    def first_fault(self, fault: Any, none: int) -> Any:
        """Return each agent's first fault (agents, 1), as fault * copies + environment, or `none`."""
        copies = torch.arange(fault.shape[1], device=fault.device)
        return torch.where(fault > 0, fault.long() * fault.shape[1] + copies, none).amin(1, keepdim=True)

    def total(self, array: Any) -> Any:
        """Return the sums (agents, 1) of each agent's numbers (agents, numbers); non-finite if one of them is."""
        return array.detach().sum(1, keepdim=True, dtype=torch.float64)

    def join(self, parts: Sequence[Any], into: Any) -> None:
        """Concatenate columns (agents, some) as doubles; columns on the host are sent to this device."""
        torch.cat([part.to(self.torch, torch.float64) for part in parts], 1, out=into)

    def send(self, array: Any, host: Any) -> Any:
        """Begin to copy an array to the host; returns the host array."""
        return host.copy_(array, non_blocking=True)

    def make_network(self, built: Any, agents: int | None) -> Any:
        """Create a network on this device, with parameters of zero."""
        if isinstance(built, MLP):
            return TorchMLP(built, self.torch, agents, self._products)
        return built(self, self._products)

    def steps_itself(self, source: Any) -> bool:
        """Return whether external environments step on this device and keep their observations there."""
        return stays_on(self, source)

    def experience_of(self, given: Any, head: Any, *, costs: bool = False) -> Any:
        """Create the experience of external environments on this device."""
        return TensorExperience(given, head, self, costs=costs)


class TorchCPUDevice(TorchDevice):
    """Torch on CPU cores; velocirl's functions are compiled and read the tensors' memory as NumPy arrays."""

    name = "cpu"

    def __init__(self, threads: int, precision: str = "float32", work: int = 0) -> None:
        self.threads, self._products = threads, PRODUCTS[precision]
        # Not autotuned: sums over other numbers of threads may differ in rounding, and runs have to be reproducible.
        # Torch's threads often wait for each other, several times as long where other programs use the cores.
        self._torch_threads = min(threads, max(work // WORK_OF_A_THREAD, 1))
        self.torch = torch.device("cpu")
        self._launcher = CPULauncher(threads, learning_translator("learner"))

    def as_records(self, rows: torch.Tensor, names: Sequence[str], kind: Any) -> Any:
        """Return a view of rows (..., numbers) as records with these field names."""
        return super().as_records(rows.numpy(), names, kind)

    def store(self, array: Any, host: Any) -> None:
        """Overwrite an array with values of the host."""
        _numpy(array)[...] = host

    def fetch(self, array: Any) -> NDArray[Any]:
        """Return a copy of an array on the host."""
        return np.array(_numpy(array))

    def copy(self, target: Any, source: Any) -> None:
        """Copy an array of this device or of the host to one of this device."""
        if isinstance(target, torch.Tensor) and isinstance(source, torch.Tensor):
            target.detach().copy_(source)
        else:
            _numpy(target)[...] = _numpy(source)

    def write(self, array: Any, host: NDArray[Any]) -> None:
        """Overwrite an array as `store` does, without synchronization."""
        self.store(array, host)

    def reducing(self, reducer: Reducer) -> Callable[[Any], None]:
        """Return the function that all-reduces an array of this device over all processes, in place."""
        return lambda array: reducer.sum(_numpy(array))

    def make_hosts(self, agents: int, width: int) -> list[Any]:
        """Return two host buffers for reports (agents, width): one can be read while the other is written."""
        return [torch.zeros(agents, width, dtype=torch.float64) for _ in range(2)]

    def launch(self, works: Sequence[Any], count: int) -> Callable[..., None]:
        """Return `run(place)`, which runs work for every index below `count`; see `engine.targets.launching`."""
        seen = [work if isinstance(work, Bound) else Work(work.function, _numpy_all(work.arguments)) for work in works]
        return self._launcher.launch(seen, count)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Use this device's number of threads in torch, within the context."""
        before = torch.get_num_threads()
        torch.set_num_threads(self._torch_threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)


class CUDADevice(TorchDevice):
    """Torch's and velocirl's kernels on one CUDA stream."""

    name = "cuda"
    reports_late = True

    def __init__(self, precision: str, captures: bool = True, number: int | None = None) -> None:
        """Use GPU `number`, or torch's current one, in this thread; velocirl's kernels use torch's current stream."""
        from velocirl.engine.targets.cuda_units import CUDALauncher, unit_translator  # needs numba-cuda

        self.captures, self._precision, self._products = captures, precision, PRODUCTS[precision]
        self.torch = torch.device("cuda", torch.cuda.current_device() if number is None else number)
        self.synchronise()
        self.stream = torch.cuda.Stream(self.torch)
        self._host: TorchCPUDevice | None = None
        self._pool = None
        self._shown: list[tuple[NDArray[Any], Any, list[bytes]]] = []  # host, device, last content sent
        self._capturing: Capture | None = None
        self._mode = "global"  # CUDA's capture error mode: which calls other threads may make
        kernels = CUDALauncher(
            unit_translator("learner", double=False), lambda: torch.cuda.current_stream(self.torch).cuda_stream
        )
        self._launcher = DividingLauncher(kernels)

    def records(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Return zeroed records, for velocirl's functions."""
        return DeviceArray.zeros(shape, dtype, self.torch)

    def as_records(self, rows: torch.Tensor, names: Sequence[str], kind: Any) -> Any:
        """Return a view of rows (..., numbers) as records with these field names."""
        return DeviceArray.of(rows, numbers_type(names, kind))

    def put(self, host: NDArray[Any]) -> Any:
        """Copy an array of the host, for velocirl's functions; supports types that torch does not have."""
        made = self.records(host.shape, host.dtype)
        made.store(host)
        return made

    def shown(self, host: NDArray[Any]) -> Any:
        """Return this device's copy of a host array, as of the last `refresh`."""
        for shown, array, _ in self._shown:
            if shown is host:
                return array
        self._shown.append((host, self.put(host), [host.tobytes()]))
        return self._shown[-1][1]

    def refresh(self) -> None:
        """Update the copies of host arrays that `shown` returned; unchanged arrays are not transferred."""
        for host, array, content in self._shown:
            if content[0] != host.tobytes():
                content[0] = host.tobytes()
                array.store(host)

    def on_host(self) -> TorchCPUDevice:
        """Return the host's device, for environments that step there."""
        if self._host is None:
            self._host = TorchCPUDevice(available_cores())
        return self._host

    def from_host(self, array: Any) -> Any:
        """Return a host array as networks of this device read it."""
        return array.to(self.torch)

    def mirror(self, array: Any) -> tuple[Any, Callable[[], None]]:
        """Return this device's copy of a host array, and the function that updates it."""
        given = torch.from_numpy(array) if isinstance(array, np.ndarray) else array
        own = torch.zeros_like(given, device=self.torch)
        return own, lambda: self.copy(own, given)

    def store(self, array: Any, host: Any) -> None:
        """Overwrite an array with values of the host."""
        self.synchronise()
        self.write(array, np.asarray(host))
        self.synchronise()

    def write(self, array: Any, host: NDArray[Any]) -> None:
        """Overwrite an array as `store` does, without synchronization."""
        if isinstance(array, torch.Tensor):
            array.detach().copy_(torch.from_numpy(np.array(host)), non_blocking=True)
        elif isinstance(array, DeviceArray):
            array.store(host)
        else:  # a numba array, of a fleet
            array.copy_to_device(np.ascontiguousarray(host, array.dtype))

    def fetch(self, array: Any) -> NDArray[Any]:
        """Return a copy of an array on the host."""
        self.synchronise()
        if isinstance(array, torch.Tensor):
            return array.detach().cpu().numpy().copy()
        return array.fetch() if isinstance(array, DeviceArray) else array.copy_to_host()

    def copy(self, target: Any, source: Any) -> None:
        """Copy an array of this device or of the host to one of this device."""
        if isinstance(target, torch.Tensor):
            given = torch.from_numpy(source) if isinstance(source, np.ndarray) else source
            target.detach().copy_(given, non_blocking=True)
        elif isinstance(source, np.ndarray):
            target.store(source)
        else:
            target.bytes().copy_(source.bytes())

    def strip(self, size: int) -> int:  # noqa: ARG002 - as the CPU's
        """Return 1: each index copies one pixel, so that adjacent threads access adjacent pixels."""
        return 1

    def summing(self, rows: int) -> tuple[int, Callable[..., None]]:
        """Return the number of rows that velocirl's functions sum, and `keep(sums, i, record)` for row i."""
        return (WARP, keep_sum) if rows % WARP == 0 else super().summing(rows)

    def make_hosts(self, agents: int, width: int) -> list[Any]:
        """Return two host buffers for reports (agents, width): one can be read while the other is written."""
        return [torch.zeros(agents, width, dtype=torch.float64, pin_memory=True) for _ in range(2)]

    def launch(self, works: Sequence[Any], count: int) -> Callable[..., None]:
        """Return `run(place)`, which runs work for every index below `count`; see `engine.targets.launching`."""
        return self._launcher.launch(works, count)

    def make_fleet(
        self, environment: Environment, count: int, params: Mapping[str, Any], *, check: bool = False
    ) -> FleetVectorEnv:
        """Create a fleet of an environment on this device."""
        from velocirl.vector.native_cuda import CUDAFleetVectorEnv

        return CUDAFleetVectorEnv(environment, count, seed=0, device="cuda", params=params, copy=False, check=check)

    def stepping(self, fleet: FleetVectorEnv) -> list[Any]:
        """Return the work that steps each environment by its action."""
        target: Any = fleet.target
        return target.step_works()

    def make_background(self, collector: Any) -> Background:
        """Create a collector's background: a second stream, or a thread where environments step on the host."""
        return ThreadBackground() if collector.on_host else StreamBackground(self.stream)

    def capture(self, function: Callable[[], None], stream: Any = None) -> Callable[[], None]:
        """Capture a function's kernels as a graph; returns the function that replays it.

        The function must have run once before. Work for another `stream` is captured there, with its own memory pool.
        """
        if not self.captures:
            return function
        self.synchronise()
        self._capturing = Capture(stream or self.stream, self._pool if stream is None else None, self._mode)
        try:
            with self._capturing:
                function()
            if stream is None:
                self._pool = self._capturing.pool
            return self._capturing.replay
        finally:
            self._capturing = None

    def reducing(self, reducer: Reducer) -> Callable[[Any], None]:
        """Return the function that all-reduces an array over processes: on GPUs within a graph, or via the host."""
        if reducer is ALONE:
            return reducer.sum
        on_gpus = getattr(reducer, "sum_tensor", None)
        if on_gpus is not None:
            self._mode = "thread_local"  # torch checks earlier all-reduces from another thread
            return on_gpus

        def run(array: torch.Tensor) -> None:
            host = array.cpu()
            reducer.sum(host.numpy())
            array.copy_(host)

        def reduce(array: torch.Tensor) -> None:
            if self._capturing is None:
                run(array)
            else:
                self._capturing.cut(lambda: run(array))

        return reduce

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Use this device's stream and precision in torch, and deterministic kernels, within the context."""
        matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
        before = matmul.allow_tf32
        matmul.allow_tf32 = self._precision == "tf32"
        try:
            with (
                torch.cuda.device(self.torch),
                torch.cuda.stream(self.stream),
                cudnn.flags(enabled=True, deterministic=True, allow_tf32=self._precision == "tf32"),
            ):
                yield
        finally:
            matmul.allow_tf32 = before

    @contextmanager
    def at_work_first(self) -> Iterator[None]:
        """Run the first work within the context, without torch's needless warnings."""
        with self.at_work(), _uncollected(), warnings.catch_warnings():
            # Autograd's thread uses the device for the first time here, which torch handles.
            warnings.filterwarnings("ignore", message="Attempting to run cuBLAS")
            # A network compiled in float32 is meant to run in float32.
            warnings.filterwarnings("ignore", message="TensorFloat32 tensor cores")
            # An all-reduce via the host splits graphs; one of them may be empty.
            warnings.filterwarnings("ignore", message="The CUDA Graph is empty")
            yield

    def synchronise(self) -> None:
        """Wait until all work is done; from now on this thread, including numba, uses this GPU."""
        torch.cuda.set_device(self.torch)
        torch.cuda.synchronize()

    def peak_bytes(self) -> int:
        """Return the peak GPU memory in bytes, including torch's cache."""
        return torch.cuda.max_memory_reserved(self.torch)

    def mark(self) -> Any:
        """Return an event that records when the GPU reaches this point."""
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds_between(self, *marks: Any) -> list[float]:
        """Return the seconds from each mark to the next; waits for the last one."""
        marks[-1].synchronize()
        return [before.elapsed_time(after) / 1000 for before, after in pairwise(marks)]


@contextmanager
def _uncollected() -> Iterator[None]:
    """Disable garbage collection within the context: freeing GPU memory would invalidate a graph under capture."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _numpy(array: Any) -> Any:
    return array.detach().numpy() if isinstance(array, torch.Tensor) else array


def _numpy_all(value: Any) -> Any:
    """Return the arguments with tensors as NumPy arrays that share their memory."""
    if isinstance(value, tuple):
        members = [_numpy_all(member) for member in value]
        return type(value)(*members) if hasattr(value, "_fields") else tuple(members)
    return _numpy(value)
