"""Which device is faster for a network, an environment and a batch."""

from __future__ import annotations

import importlib.util
from functools import cache

from velocirl.training.source import Source

# Multiplications of one pass over a rollout, above which a GPU is faster. An H200 against the native learner on 16
# cores (CartPole, four epochs): 0.97 times as fast at 19 million, 1.1 at 75, 1.5 at 150, 2.2 at 300, 5 to 14 beyond
# 1,000. Below it, starting kernels costs more than the work in them.
WORK = 1.0e8


def choose_device(
    wanted: str, source: Source, parameters: int, batch: int, *, native: bool, steps: bool = True
) -> tuple[str, str]:
    """The device to train on, and why, in one line.

    `parameters` is the size of the network, `batch` the samples of a rollout. The rule: a GPU, where there is one that
    torch and numba-cuda can use, the environment is native and an iteration has at least so much work for it, or its
    observations are tensors there. Where nothing `steps`, what the environment is does not count.
    """
    if source.check:
        if wanted == "cuda":
            raise ValueError("check is for the CPU: use another device; what is wrong there is wrong on a GPU too")
        return ("cpu", "cpu: check") if wanted == "auto" else (wanted, f"{wanted}, as asked")
    if wanted != "auto":
        return wanted, f"{wanted}, as asked"
    missing = no_cuda()
    if missing is not None:
        return "cpu", f"cpu: {missing}"
    if source.tensors_on == "cuda":
        return "cuda", f"cuda: the observations of {source.id} are there"
    if steps and source.native is None:
        return "cpu", f"cpu: {source.id} steps in Python, and its network is the smaller part of the work"
    work = float(parameters) * batch
    size = f"{batch:,} samples through {parameters:,} parameters"
    if native and work < WORK:
        return "cpu", f"cpu: {size} in each iteration keep no GPU busy"
    return "cuda", f"cuda: {size} in each iteration"


@cache
def no_cuda() -> str | None:
    """Why no GPU can be used here, or None."""
    for package, extra in (("torch", "torch"), ("numba_cuda", "cuda")):
        if importlib.util.find_spec(package) is None:
            return f"{package} is not installed (velocirl[{extra}])"
    from velocirl.engine.targets.cuda_kernels import cuda

    if not cuda.is_available():
        return "there is no CUDA device"
    import torch  # only where it is there and there is a device that it may know

    return None if torch.cuda.is_available() else "this torch has no CUDA"
