"""GPU units: each compiled by its own content to linkable code, then linked into kernels.

A kernel is a C++ skeleton with a thread for each index, which calls units one after the other. Linking makes one piece
of machine code of them, across both languages. Arguments are passed in a frame, as on the CPU (see `frames`), which is
stored among the constants of a launch.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

from velocirl.engine.compiler.arithmetic.precision import single_precision
from velocirl.engine.compiler.caching.cache import find_code, keep_code
from velocirl.engine.compiler.caching.fingerprint import fingerprint
from velocirl.engine.compiler.columns import compiled_keep_row, compiled_rows_at, keep_row, rows_at
from velocirl.engine.compiler.frames import packed_reader, packed_words_of, type_of
from velocirl.engine.compiler.translating import Translator
from velocirl.engine.errors import DefinitionError, debugging
from velocirl.engine.targets.cuda_kernels import arrays, cuda, cuda_translator, intrinsic, types
from velocirl.engine.targets.launching import Work
from velocirl.engine.targets.warps import compiled_keep_sum, keep_sum

try:
    core: Any = importlib.import_module("cuda.core")
    driver: Any = importlib.import_module("cuda.bindings.driver")
except ImportError as missing:
    raise ImportError('device="cuda" needs cuda-core: pip install "velocirl[cuda]"') from missing

dispatcher: Any = importlib.import_module("numba.cuda.dispatcher")
numba_cuda: Any = importlib.import_module("numba_cuda")

THREADS = 128  # of a block
WORDS = (types.uint64, types.uint64, types.int64)  # frame, index, place
SKELETON = """
{declarations}
struct Frame {{ long long words[{size}]; }};
extern "C" __global__ void __launch_bounds__({threads})
{name}(const __grid_constant__ Frame frame, unsigned long long count, long long place) {{
  unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
  if (i < count) {{
{calls}
  }}
}}
"""


def unit_translator(name: str, *, double: bool) -> Translator:
    """Return a translator for functions of units."""
    translator = cuda_translator(name, double=double)
    translator.adopt(rows_at, compiled_rows_at(intrinsic, arrays.populate_array))
    translator.adopt(keep_row, compiled_keep_row(intrinsic))
    translator.adopt(keep_sum, compiled_keep_sum(intrinsic))
    return translator


def unit_code(
    function: Any, kind: Any, translator: Translator, before: Callable[[], None], capability: tuple[int, int]
) -> tuple[str, bytes]:
    """Return the name and the code of the unit of `function(i, r, place, *arguments)`, for arguments of this type."""
    versions = f"{numba_cuda.__version__} {capability}"
    key = fingerprint(function, translator.double, translator.manner, str(kind), versions)
    name = f"velocirl_{key[:40]}"
    code = find_code(f"{key[:40]}.ltoir")
    if code is None:
        before()
        code = _compile(function, kind, translator, name, capability)
        keep_code(f"{key[:40]}.ltoir", code)
    return name, code


def _compile(function: Any, kind: Any, translator: Translator, name: str, capability: tuple[int, int]) -> bytes:
    inner, read = translator.scalar(function), packed_reader(kind, intrinsic, arrays.populate_array)

    def unit(frame, i, place):
        inner(i, i, place, *read(frame))
        return 0

    rule = single_precision(cuda.descriptor.cuda_target.typing_context, types)
    with nullcontext() if translator.double else rule, _as_if_on(capability):
        code, _ = cuda.compile(
            unit, WORDS, device=True, abi="c", abi_info={"abi_name": name}, output="ltoir", cc=capability
        )
    return bytes(code)


@contextmanager
def _as_if_on(capability: tuple[int, int]) -> Iterator[None]:
    """Compile functions called by a unit, in this context, for a GPU that need not be present."""
    before = dispatcher.get_current_device
    dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=capability)
    try:
        yield
    finally:
        dispatcher.get_current_device = before


def kernel_code(
    name: str, units: Sequence[tuple[str, bytes]], sizes: Sequence[int], capability: tuple[int, int]
) -> bytes:
    """Return the machine code of a kernel that calls units one after the other, with frames of these sizes."""
    starts = [sum(sizes[:k]) for k in range(len(sizes))]
    names = [name for name, _ in units]
    arguments = "unsigned long long frame, unsigned long long i, long long place"
    source = SKELETON.format(
        declarations="\n".join(f'extern "C" __device__ long long {one}({arguments});' for one in dict.fromkeys(names)),
        name=name,
        size=max(sum(sizes), 1),
        threads=THREADS,
        calls="\n".join(
            f"    {unit}((unsigned long long)(frame.words + {start}), i, place);"
            for unit, start in zip(names, starts, strict=True)
        ),
    )
    arch = f"sm_{capability[0]}{capability[1]}"
    key = fingerprint(source, arch, core.__version__)
    code = find_code(f"{key[:40]}.cubin")
    if code is None:
        options = core.ProgramOptions(arch=arch, link_time_optimization=True)
        skeleton = core.Program(source, "c++", options).compile("ltoir")
        parts = [core.ObjectCode.from_ltoir(code) for code in dict(units).values()]
        linker = core.Linker(skeleton, *parts, options=core.LinkerOptions(arch=arch, link_time_optimization=True))
        code = bytes(linker.link("cubin").code)
        keep_code(f"{key[:40]}.cubin", code)
    return code


class Kernel:
    """Units called one after the other by a thread for each index: machine code for arguments of their types."""

    def __init__(self, works: Sequence[Work], translator: Translator) -> None:
        """Compile the kernel; `translator` is for functions without an owner."""
        device = core.Device()
        device.set_current()
        capability = tuple(device.compute_capability)
        units = []
        for function, arguments, owner in works:
            with _told(owner):
                rules, before = (translator, _nothing) if owner is None else (owner.translator, owner.rehearse)
                units.append(unit_code(function, type_of(arguments), rules, before, capability))
        name = "__".join([work.function.__name__ for work in works])[:120]  # shown by profilers
        code = kernel_code(name, units, [len(packed_words_of(work.arguments)) for work in works], capability)
        self._module = _checked(driver.cuModuleLoadData(code))
        self._function = _checked(driver.cuModuleGetFunction(self._module, name.encode()))

    def launch(self, parameters: Parameters, place: int, stream: int) -> None:
        """Run the kernel on a stream, given by its handle."""
        if parameters.blocks:
            parameters.place.value = place
            _checked(
                driver.cuLaunchKernel(
                    self._function, parameters.blocks, 1, 1, THREADS, 1, 1, 0, stream, parameters.address, 0
                )
            )


class Parameters:
    """Launch parameters of a kernel."""

    def __init__(self, works: Sequence[Work], count: int) -> None:
        self._held = works  # keeps the memory of the arguments alive
        words = [word for work in works for word in packed_words_of(work.arguments)] or [0]
        frame = (ctypes.c_longlong * len(words))(*(_signed(word) for word in words))
        self.place = ctypes.c_longlong(0)
        self._parts = frame, ctypes.c_ulonglong(count), self.place
        self._places = (ctypes.c_void_p * 3)(*map(ctypes.addressof, self._parts))
        self.address, self.blocks = ctypes.addressof(self._places), -(-count // THREADS)


class CUDALauncher:
    """Launcher on a GPU, on the stream whose handle `stream()` returns at launch time; see `launching.Launcher`."""

    def __init__(self, translator: Translator, stream: Callable[[], int]) -> None:
        self._translator, self._stream = translator, stream

    def launch(self, works: Sequence[Work], count: int) -> Callable[[int], None]:
        """Return a function that runs the work for every index below `count`, in one kernel."""
        kernel, parameters, stream = Kernel(works, self._translator), Parameters(works, count), self._stream

        def run(place: int = 0) -> None:
            kernel.launch(parameters, place, stream())

        return run


class Relauncher:
    """Launcher of one function with other arrays in each call; one kernel per combination of types."""

    def __init__(self, function: Any, translator: Translator, owner: Any = None) -> None:
        self._function, self._translator, self._owner = function, translator, owner
        self._kernels: dict[Any, Kernel] = {}

    def __call__(self, count: int, *arguments: Any, stream: int = 0) -> None:
        """Run the function for every index below `count`."""
        works = [Work(self._function, arguments, self._owner)]
        kind = type_of(arguments)
        if kind not in self._kernels:
            self._kernels[kind] = Kernel(works, self._translator)
        self._kernels[kind].launch(Parameters(works, count), 0, stream)


def _nothing() -> None:
    """Do nothing, before functions without an owner are compiled."""


@contextmanager
def _told(owner: Any) -> Iterator[None]:
    """Convert compiler errors about an owner's functions to messages about the user's own line, in this context."""
    try:
        yield
    except (DefinitionError, OSError):
        raise
    except Exception as error:
        if owner is None:
            raise
        raise owner.tell(error) from (error if debugging() else None)


def _checked(result: Any) -> Any:
    """Return the values of a driver call; raises RuntimeError if it failed."""
    code, *values = result
    if int(code) != 0:
        _, name = driver.cuGetErrorName(code)
        raise RuntimeError(f"CUDA: {name.decode() if isinstance(name, bytes) else name}")
    return values[0] if values else None


def _signed(word: int) -> int:
    return word - (1 << 64) if word >= 1 << 63 else word
