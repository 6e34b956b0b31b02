"""Probes that `velocirl doctor` runs in child processes: a script that takes a probe's name and prints JSON.

A driver or library that hangs or crashes then ends only its child. The key `status`, if present, marks something as
"missing" rather than broken; `advice` states what to do.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

COPIES = 1024
STEPS = 100
SIZE, DEVICE_SIZE = 1024, 4096  # rows and columns of square matrices
NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE
ENVIRONMENT = "CartPole-v1"


def engine(device: str = "cpu") -> dict[str, Any]:
    """Compile an environment without a cache, and step it."""
    with tempfile.TemporaryDirectory() as home:
        os.environ["VELOCIRL_HOME"] = home
        velocirl = importlib.import_module("velocirl")
        began = time.perf_counter()
        envs = velocirl.make_vec(ENVIRONMENT, COPIES, seed=0, device=device)
        envs.reset()
        actions = envs.action_space.sample()
        _rewards(envs.step(actions))
        compiling = time.perf_counter() - began
        began = time.perf_counter()
        for _ in range(STEPS - 1):
            envs.step(actions)
        total = _rewards(envs.step(actions))
        stepping = (time.perf_counter() - began) / STEPS
        envs.close()
    if total != COPIES:
        raise RuntimeError(f"{COPIES} copies of {ENVIRONMENT} got a reward of {total:g} in a step; it must be {COPIES}")
    said = f"compiled {ENVIRONMENT} in {1e3 * compiling:,.0f} ms; {COPIES:,} copies step in {1e3 * stepping:.3f} ms"
    return {"detail": said, "compile_ms": 1e3 * compiling, "step_ms": 1e3 * stepping}


def numpy() -> dict[str, Any]:
    """Multiply matrices with NumPy."""
    module = importlib.import_module("numpy")
    matrix = module.random.default_rng(0).standard_normal((SIZE, SIZE), dtype=module.float32)
    rate = 2 * SIZE**3 / _shortest(lambda: matrix @ matrix) / 1e9
    return {"detail": f"{rate:,.0f} GFLOP/s in single precision", "gflops": rate}


def torch() -> dict[str, Any]:
    """Multiply matrices with torch on the CPU."""
    module = importlib.import_module("torch")
    matrix = module.randn(SIZE, SIZE)
    rate = 2 * SIZE**3 / _shortest(lambda: matrix @ matrix) / 1e9
    cuda = module.version.cuda
    build = f"built for CUDA {cuda}" if cuda else "built without CUDA"
    detail = f"{module.__version__}, {module.get_num_threads()} threads, {build}; {rate:,.0f} GFLOP/s"
    return {"detail": detail, "version": str(module.__version__), "cuda": cuda, "gflops": rate}


def driver() -> dict[str, Any]:
    """Query the NVIDIA driver for its devices."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        advice = "a GPU needs an NVIDIA driver; without one everything runs on the CPU"
        return {"status": "missing", "detail": "there is no NVIDIA driver here (libcuda.so.1)", "advice": advice}
    code = library.cuInit(0)
    if code == NO_DEVICE:
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
        because = "" if hidden is None else f" (CUDA_VISIBLE_DEVICES is {hidden!r})"
        return {"status": "missing", "detail": f"the NVIDIA driver sees no device{because}"}
    if code != 0:
        raise RuntimeError(f"the NVIDIA driver does not start: cuInit gave error {code}")
    version, count = ctypes.c_int(), ctypes.c_int()
    library.cuDriverGetVersion(ctypes.byref(version))
    library.cuDeviceGetCount(ctypes.byref(count))
    name, memory = ctypes.create_string_buffer(256), ctypes.c_size_t()
    library.cuDeviceGetName(name, len(name), 0)
    library.cuDeviceTotalMem_v2(ctypes.byref(memory), 0)
    called, size = name.value.decode(), memory.value / 2**30
    spoken = f"{version.value // 1000}.{version.value % 1000 // 10}"
    more = f", the first of {count.value}" if count.value > 1 else ""
    detail = f"{called}{more}, {size:.0f} GiB, driver for CUDA {spoken}"
    return {"detail": detail, "device": called, "memory_bytes": memory.value, "cuda": spoken, "devices": count.value}


def cuda_engine() -> dict[str, Any]:
    """Compile and step an environment on the GPU."""
    return engine("cuda")


def cuda_torch() -> dict[str, Any]:
    """Multiply matrices with torch on the GPU."""
    module = _torch_with_cuda()
    matrix = module.randn(DEVICE_SIZE, DEVICE_SIZE, device="cuda", dtype=module.bfloat16)

    def multiply() -> None:
        for _ in range(10):
            module.mm(matrix, matrix)
        module.cuda.synchronize()

    rate = 10 * 2 * DEVICE_SIZE**3 / _shortest(multiply) / 1e12
    name = module.cuda.get_device_name(0)
    return {"detail": f"{name}; {rate:,.0f} TFLOP/s in bfloat16", "device": name, "tflops": rate}


def cuda_graph() -> dict[str, Any]:
    """Capture a CUDA graph and replay it."""
    module = _torch_with_cuda()
    values = module.zeros(8, device="cuda")
    side = module.cuda.Stream()
    with module.cuda.stream(side):  # a capture requires its kernels to be loaded already
        values += 1.0
    module.cuda.synchronize()
    values.zero_()
    graph = module.cuda.CUDAGraph()
    with module.cuda.graph(graph):
        values += 1.0
    for _ in range(3):
        graph.replay()
    module.cuda.synchronize()
    if values.tolist() != [3.0] * 8:
        raise RuntimeError(f"a graph that adds 1 was replayed 3 times and gave {values.tolist()}")
    return {"detail": "captured and replayed"}


def mpi() -> dict[str, Any]:
    """Import MPI, which initializes it."""
    found = importlib.import_module("mpi4py")
    module = importlib.import_module("mpi4py.MPI")
    library = " ".join(str(module.Get_library_version()).strip("\0").splitlines()[0].partition(",")[0].split())
    detail = f"{library}, mpi4py {found.__version__}, on {module.Get_processor_name()}"
    return {"detail": detail, "library": library, "version": found.__version__}


def modules(*names: str) -> dict[str, Any]:
    """Import modules."""
    found = [importlib.import_module(name) for name in names]
    versions = {one.__name__: str(getattr(one, "__version__", "")) for one in found}
    return {"detail": ", ".join(f"{name} {version}".rstrip() for name, version in versions.items())}


def _rewards(step: tuple[Any, ...]) -> float:
    """Return the sum of the rewards of all environments; waits for a GPU."""
    rewards = step[1]
    return float((rewards.copy_to_host() if hasattr(rewards, "copy_to_host") else rewards).sum())


def _torch_with_cuda() -> Any:
    module = importlib.import_module("torch")
    if not module.cuda.is_available():
        raise RuntimeError("torch is built for CUDA and there is a device, but torch cannot use it")
    return module


def _shortest(work: Callable[[], Any], attempts: int = 5) -> float:
    """Return the time of the shortest attempt in seconds, after a warm-up."""
    times = []
    for _ in range(attempts + 1):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times[1:])


if __name__ == "__main__":
    print(f"\n{json.dumps(globals()[sys.argv[1]](*sys.argv[2:]))}", flush=True)
