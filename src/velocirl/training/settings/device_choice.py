"""Choice of the faster device for a network, an environment and a batch."""

from __future__ import annotations

import importlib.util
import shutil
import warnings
from functools import cache
from pathlib import Path
from typing import Any

from velocirl.engine.targets.device_names import kind_of, number_of
from velocirl.training.source import Source

# Multiplications of one pass over a rollout above which a GPU is faster. An H200 vs. the native learner on 16
# cores (CartPole, four epochs): 0.97x as fast at 19 million, 1.1x at 75, 1.5x at 150, 2.2x at 300, 5x to 14x above
# 1,000. Below this threshold, launching kernels costs more than their work.
WORK = 1.0e8
NO_DEVICE = "there is no CUDA device"
DRIVER = Path("/proc/driver/nvidia/version")


def choose_device(
    wanted: str, source: Source, parameters: int, batch: int, *, native: bool, steps: bool = True
) -> tuple[str, str]:
    """Return the device to train on, and the reason in one line.

    `parameters` is the size of the network, `batch` the number of samples of a rollout. Without `steps`, the kind of
    environment does not matter.

    A GPU is chosen if torch and numba-cuda can use one, the environment is native, and an iteration of a `native`
    network has enough work; networks of torch need no minimum. It is also chosen if the environment's observations are
    tensors on it.
    """
    if source.check:
        if kind_of(wanted) == "cuda":
            raise ValueError("check is for the CPU: use another device; what is wrong there is wrong on a GPU too")
        return ("cpu", "cpu: check") if wanted == "auto" else (wanted, f"{wanted}, as asked")
    if wanted != "auto":
        return wanted, f"{wanted}, as asked"
    missing = no_cuda()
    if missing is not None:
        return "cpu", "cpu" if missing == NO_DEVICE else f"cpu: {missing}"
    if source.tensors_on == "cuda":
        return "cuda", f"cuda: the observations of {source.id} are there"
    if steps and source.native is None:
        return "cpu", f"cpu: {source.id} steps in Python, and its network is the smaller part of the work"
    work = float(parameters) * batch
    size = f"{batch:,} samples through {parameters:,} parameters"
    if native and work < WORK:
        return "cpu", f"cpu: {size} in each iteration keep no GPU busy"
    return "cuda", f"cuda: {size} in each iteration"


def require_device(device: str) -> None:
    """Raise if the device is a GPU that does not exist here."""
    if kind_of(device) != "cuda":
        return
    missing = no_cuda() or _no_gpu(number_of(device) or 0)
    if missing is not None:
        instead = '"cuda:0" or another of them' if no_cuda() is None else '"cpu"'
        raise ValueError(
            f'device="{device}" cannot be used: {missing}; give device={instead} (velocirl doctor tells more)'
        )


def here_or_any(device: Any) -> Any:
    """Return the device that an agent was saved with; a missing GPU is replaced by any GPU of this machine."""
    number = number_of(device) if isinstance(device, str) else None
    if not number or no_cuda() is not None or _no_gpu(number) is None:
        return device
    warnings.warn(f"this agent was trained on {device}, and {_no_gpu(number)}: it goes on on cuda:0", stacklevel=2)
    return "cuda"


def _no_gpu(number: int) -> str | None:
    """Return why there is no GPU of this number, on a machine with GPUs; None if there is."""
    count = gpus()
    if number < count:
        return None
    if count == 1:
        return "there is one CUDA device, cuda:0"
    names = [f"cuda:{one}" for one in range(count)]
    return f"there are {count} CUDA devices, {', '.join(names[:-1])} and {names[-1]}"


def gpus() -> int:
    """Return the number of GPUs that torch sees; call it only if `no_cuda` returned None."""
    import torch

    return torch.cuda.device_count()


@cache
def no_cuda() -> str | None:
    """Return why no GPU can be used here, or None. A missing package is named only if installing it would help."""
    if not has_driver():
        return NO_DEVICE
    if (missing := _not_installed("torch", "torch") or no_kernels()) is not None:
        return missing
    import torch  # only if it is installed and a driver exists

    return None if torch.cuda.is_available() else "this torch has no CUDA"


@cache
def no_kernels() -> str | None:
    """Return why numba-cuda cannot run here, or None."""
    if (missing := _not_installed("numba_cuda", "cuda") if has_driver() else NO_DEVICE) is not None:
        return missing
    from velocirl.engine.targets.cuda_kernels import cuda

    return None if cuda.is_available() else NO_DEVICE


def has_driver() -> bool:
    """Return whether this machine has NVIDIA's driver, without which no package finds a GPU."""
    return DRIVER.exists() or shutil.which("nvidia-smi") is not None


def _not_installed(package: str, extra: str) -> str | None:
    return f"{package} is not installed (velocirl[{extra}])" if importlib.util.find_spec(package) is None else None
