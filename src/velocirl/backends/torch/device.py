"""Batch learners with torch: on CPU cores, and on a GPU as CUDA graphs of torch's kernels and our own."""

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
WORK_OF_A_THREAD = 4_000_000  # rows of a minibatch times parameters: with less, a thread costs more than it saves


class TorchDevice(Device):
    """Array operations of torch, on whichever device its tensors are."""

    sequential = False
    torch: torch.device
    _products: torch.dtype | None

    def zeros(self, *shape: int, dtype: Any = np.float32) -> torch.Tensor:
        """A tensor of zeros."""
        return torch.zeros(shape, dtype=TYPES[np.dtype(dtype)], device=self.torch)

    def flat(self, array: Any) -> Any:
        """The same memory in one dimension."""
        return array.detach().view(-1)

    def fetch_rows(self, array: Any, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Some rows of an array, as a copy on the host."""
        self.synchronise()
        return array[torch.from_numpy(rows).to(self.torch)].cpu().numpy()

    def store_rows(self, array: Any, rows: NDArray[np.int64], host: NDArray[Any]) -> None:
        """Replace some rows of an array."""
        self.synchronise()
        array[torch.from_numpy(rows).to(self.torch)] = torch.from_numpy(np.ascontiguousarray(host)).to(self.torch)
        self.synchronise()

    def numbers(self, array: Any, rows: NDArray[np.int64], factor: float) -> Any:
        """Some rows of bytes as single precision, multiplied, for networks."""
        return array[torch.from_numpy(rows).to(self.torch)].float() * factor

    def fill(self, array: Any, value: float) -> None:
        """Let an array hold one value everywhere."""
        array.fill_(value)

    def sum_rows(self, rows: Any, into: Any) -> None:
        """The sums (agents, numbers) of rows (agents * rows, numbers)."""
        torch.sum(rows.view(len(into), -1, rows.shape[-1]), 1, dtype=into.dtype, out=into)

    def find_norms(self, gradient: Any, into: Any) -> None:
        """The norm of each agent's gradient."""
        torch.linalg.vector_norm(gradient.view(len(into), -1), dim=1, dtype=torch.float64, out=into)

    def find_least(self, array: Any, into: Any) -> None:
        """The least of an array."""
        torch.amin(array, 0, keepdim=True, out=into)

    def find_greatest(self, array: Any, into: Any) -> None:
        """The greatest of an array and of what was found before."""
        torch.maximum(into, array.amax(0, keepdim=True), out=into)

    def latest(self, ends: Any, most: int) -> tuple[Any, Any]:
        """The greatest of `ends` (agents, places), the greatest first, and their places; see `recording.Log`."""
        return torch.topk(ends, most, 1)

    def take(self, array: Any, places: Any) -> Any:
        """What an array (agents, places) holds at places (agents, some)."""
        return array.gather(1, places)

    def first_fault(self, fault: Any, none: int) -> Any:
        """The first fault of each agent's copies (agents, copies), as fault * copies + copy; or `none`."""
        copies = torch.arange(fault.shape[1], device=fault.device)
        return torch.where(fault > 0, fault.long() * fault.shape[1] + copies, none).amin(1, keepdim=True)

    def total(self, array: Any) -> Any:
        """The sum of each agent's numbers (agents, numbers): a number that is none where one of them is."""
        return array.detach().sum(1, keepdim=True, dtype=torch.float64)

    def join(self, parts: Sequence[Any], into: Any) -> None:
        """Columns (agents, some) side by side, as doubles; what steps on the host is sent here."""
        torch.cat([part.to(self.torch, torch.float64) for part in parts], 1, out=into)

    def send(self, array: Any, host: Any) -> Any:
        """Begin to copy an array to the host."""
        return host.copy_(array, non_blocking=True)

    def make_network(self, built: Any, agents: int | None) -> Any:
        """A network on this device; its parameters begin at zero."""
        if isinstance(built, MLP):
            return TorchMLP(built, self.torch, agents, self._products)
        return built(self, self._products)

    def steps_itself(self, source: Any) -> bool:
        """Whether the copies that were given step on this device, and their observations stay there."""
        return stays_on(self, source)

    def experience_of(self, given: Any, head: Any, *, costs: bool = False) -> Any:
        """The experience of such copies."""
        return TensorExperience(given, head, self, costs=costs)


class TorchCPUDevice(TorchDevice):
    """Torch on CPU cores; our own functions are compiled, and see the same memory as NumPy's arrays."""

    name = "cpu"

    def __init__(self, threads: int, precision: str = "float32", work: int = 0) -> None:
        self.threads, self._products = threads, PRODUCTS[precision]
        # Not by trying: sums over other numbers of threads may differ in rounding, and a run is to be repeatable.
        # Torch's threads wait for each other all the time, and several times as long where others use the cores.
        self._torch_threads = min(threads, max(work // WORK_OF_A_THREAD, 1))
        self.torch = torch.device("cpu")
        self._launcher = CPULauncher(threads, learning_translator("learner"))

    def as_records(self, rows: torch.Tensor, names: Sequence[str], kind: Any) -> Any:
        """Rows (..., numbers) as records of numbers under these names, in the same memory."""
        return super().as_records(rows.numpy(), names, kind)

    def store(self, array: Any, host: Any) -> None:
        """Replace what an array holds."""
        _numpy(array)[...] = host

    def fetch(self, array: Any) -> NDArray[Any]:
        """What an array holds, as a copy on the host."""
        return np.array(_numpy(array))

    def copy(self, target: Any, source: Any) -> None:
        """Copy an array of this device, or of the host, into another of this device."""
        if isinstance(target, torch.Tensor) and isinstance(source, torch.Tensor):
            target.detach().copy_(source)
        else:
            _numpy(target)[...] = _numpy(source)

    def write(self, array: Any, host: NDArray[Any]) -> None:
        """The same as `store`, without waiting for what is under way."""
        self.store(array, host)

    def reducing(self, reducer: Reducer) -> Callable[[Any], None]:
        """What adds up an array of this device over all processes that train together, in its place."""
        return lambda array: reducer.sum(_numpy(array))

    def make_hosts(self, agents: int, width: int) -> list[Any]:
        """Where reports are read: two, so that one can be read while the next is written."""
        return [torch.zeros(agents, width, dtype=torch.float64) for _ in range(2)]

    def launch(self, works: Sequence[Any], count: int) -> Callable[..., None]:
        """What runs work for every index below `count` (see `engine.launching`); it is called with the place."""
        seen = [work if isinstance(work, Bound) else Work(work.function, _numpy_all(work.arguments)) for work in works]
        return self._launcher.launch(seen, count)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """While this lasts, torch uses our threads, as many as we were given."""
        before = torch.get_num_threads()
        torch.set_num_threads(self._torch_threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)


class CUDADevice(TorchDevice):
    """Torch and our own kernels on one stream of a GPU."""

    name = "cuda"
    reports_late = True

    def __init__(self, precision: str, captures: bool = True, number: int | None = None) -> None:
        """On GPU `number`, or that of torch; our own kernels follow torch, which this thread works with from now on."""
        from velocirl.engine.targets.cuda_units import CUDALauncher, unit_translator  # needs numba-cuda

        self.captures, self._precision, self._products = captures, precision, PRODUCTS[precision]
        self.torch = torch.device("cuda", torch.cuda.current_device() if number is None else number)
        self.synchronise()
        self.stream = torch.cuda.Stream(self.torch)
        self._host: TorchCPUDevice | None = None
        self._pool = None
        self._shown: list[tuple[NDArray[Any], Any, list[bytes]]] = []  # of the host, here, and its content then
        self._capturing: Capture | None = None
        self._mode = "global"  # of capturing: what other threads may do meanwhile
        kernels = CUDALauncher(
            unit_translator("learner", double=False), lambda: torch.cuda.current_stream(self.torch).cuda_stream
        )
        self._launcher = DividingLauncher(kernels)

    def records(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Records of zeros, for our own functions."""
        return DeviceArray.zeros(shape, dtype, self.torch)

    def as_records(self, rows: torch.Tensor, names: Sequence[str], kind: Any) -> Any:
        """Rows (..., numbers) as records of numbers under these names, in the same memory."""
        return DeviceArray.of(rows, numbers_type(names, kind))

    def put(self, host: NDArray[Any]) -> Any:
        """A copy of an array of the host, for our own functions; of types that torch does not have, too."""
        made = self.records(host.shape, host.dtype)
        made.store(host)
        return made

    def shown(self, host: NDArray[Any]) -> Any:
        """An array of this device that shows one of the host, as it was at the last `refresh`."""
        for shown, array, _ in self._shown:
            if shown is host:
                return array
        self._shown.append((host, self.put(host), [host.tobytes()]))
        return self._shown[-1][1]

    def refresh(self) -> None:
        """Show arrays of the host as they are now; those that have not changed cost no transfer."""
        for host, array, content in self._shown:
            if content[0] != host.tobytes():
                content[0] = host.tobytes()
                array.store(host)

    def on_host(self) -> TorchCPUDevice:
        """The device of the host, for environments that step there."""
        if self._host is None:
            self._host = TorchCPUDevice(available_cores())
        return self._host

    def from_host(self, array: Any) -> Any:
        """An array of the host as networks of this device read it."""
        return array.to(self.torch)

    def mirror(self, array: Any) -> tuple[Any, Callable[[], None]]:
        """An array of this device that shows one of the host, and what brings it up to date."""
        given = torch.from_numpy(array) if isinstance(array, np.ndarray) else array
        own = torch.zeros_like(given, device=self.torch)
        return own, lambda: self.copy(own, given)

    def store(self, array: Any, host: Any) -> None:
        """Replace what an array holds."""
        self.synchronise()
        self.write(array, np.asarray(host))
        self.synchronise()

    def write(self, array: Any, host: NDArray[Any]) -> None:
        """The same as `store`, without waiting for what is under way."""
        if isinstance(array, torch.Tensor):
            array.detach().copy_(torch.from_numpy(np.array(host)), non_blocking=True)
        elif isinstance(array, DeviceArray):
            array.store(host)
        else:  # an array of numba's: of a fleet
            array.copy_to_device(np.ascontiguousarray(host, array.dtype))

    def fetch(self, array: Any) -> NDArray[Any]:
        """What an array holds, as a copy on the host."""
        self.synchronise()
        if isinstance(array, torch.Tensor):
            return array.detach().cpu().numpy().copy()
        return array.fetch() if isinstance(array, DeviceArray) else array.copy_to_host()

    def copy(self, target: Any, source: Any) -> None:
        """Copy an array of this device, or of the host, into another of this device."""
        if isinstance(target, torch.Tensor):
            given = torch.from_numpy(source) if isinstance(source, np.ndarray) else source
            target.detach().copy_(given, non_blocking=True)
        elif isinstance(source, np.ndarray):
            target.store(source)
        else:
            target.bytes().copy_(source.bytes())

    def strip(self, size: int) -> int:  # noqa: ARG002 - as the CPU's
        """How many pixels of a frame an index moves: neighbouring threads move neighbouring ones."""
        return 1

    def summing(self, rows: int) -> tuple[int, Callable[..., None]]:
        """How many of an agent's rows our own functions sum up, and `keep(sums, i, record)` for that of row i."""
        return (WARP, keep_sum) if rows % WARP == 0 else super().summing(rows)

    def make_hosts(self, agents: int, width: int) -> list[Any]:
        """Where reports are read: two, so that one can be read while the next is written."""
        return [torch.zeros(agents, width, dtype=torch.float64, pin_memory=True) for _ in range(2)]

    def launch(self, works: Sequence[Any], count: int) -> Callable[..., None]:
        """What runs work for every index below `count` (see `engine.launching`); it is called with the place."""
        return self._launcher.launch(works, count)

    def make_fleet(
        self, environment: Environment, count: int, params: Mapping[str, Any], *, check: bool = False
    ) -> FleetVectorEnv:
        """Copies of an environment on this device."""
        from velocirl.vector.native_cuda import CUDAFleetVectorEnv

        return CUDAFleetVectorEnv(environment, count, seed=0, device="cuda", params=params, copy=False, check=check)

    def stepping(self, fleet: FleetVectorEnv) -> list[Any]:
        """The work by which each copy takes the step that its action says."""
        target: Any = fleet.target
        return target.step_works()

    def make_background(self, collector: Any) -> Background:
        """What collects while somebody learns: a second stream, or a thread where environments step on the host."""
        return ThreadBackground() if collector.on_host else StreamBackground(self.stream)

    def capture(self, function: Callable[[], None], stream: Any = None) -> Callable[[], None]:
        """Record a function's kernels as a graph, and return what replays it; it must have run once before.

        What runs beside others is captured on a stream of its own, with memory of its own.
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
        """What adds up an array over all processes: on their GPUs, as part of a graph, or else by way of the host."""
        if reducer is ALONE:
            return reducer.sum
        on_gpus = getattr(reducer, "sum_tensor", None)
        if on_gpus is not None:
            self._mode = "thread_local"  # torch looks after earlier sums from a thread of its own
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
        """While this lasts, torch works on our stream, in our precision, and the same twice."""
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
        """The same for the first time, of which torch warns without need."""
        with self.at_work(), _uncollected(), warnings.catch_warnings():
            # Autograd's own thread meets the device here, which torch sees to.
            warnings.filterwarnings("ignore", message="Attempting to run cuBLAS")
            # Who compiles a network in float32 has asked for just that.
            warnings.filterwarnings("ignore", message="TensorFloat32 tensor cores")
            # One of several that a meeting of processes has cut may have nothing to do.
            warnings.filterwarnings("ignore", message="The CUDA Graph is empty")
            yield

    def synchronise(self) -> None:
        """Wait until everything is done; this thread works with this GPU from now on, and numba does, too."""
        torch.cuda.set_device(self.torch)
        torch.cuda.synchronize()

    def peak_bytes(self) -> int:
        """The most memory that was taken so far, with what torch keeps for later."""
        return torch.cuda.max_memory_reserved(self.torch)

    def mark(self) -> Any:
        """The moment when the GPU comes to this place."""
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds_between(self, *marks: Any) -> list[float]:
        """The seconds from each moment to the next, when the last has come."""
        marks[-1].synchronize()
        return [before.elapsed_time(after) / 1000 for before, after in pairwise(marks)]


@contextmanager
def _uncollected() -> Iterator[None]:
    """While this lasts, nothing is freed that happens to be garbage: memory of a GPU, whose graph would be spoilt."""
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
    """The same arguments, with tensors as NumPy's arrays of the same memory."""
    if isinstance(value, tuple):
        members = [_numpy_all(member) for member in value]
        return type(value)(*members) if hasattr(value, "_fields") else tuple(members)
    return _numpy(value)
