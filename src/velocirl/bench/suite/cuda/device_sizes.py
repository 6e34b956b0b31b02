"""CPU compared with GPU by problem size, and memory transfers between them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from velocirl.bench.comparison import Comparison, ratio
from velocirl.bench.machine.arithmetic import backward_operations, forward_operations
from velocirl.bench.machine.cost import Cost
from velocirl.bench.measuring import Sampler, Timed
from velocirl.bench.registry import benchmark
from velocirl.bench.suite.cuda import cuda_ppo
from velocirl.bench.suite.cuda.cuda_ppo import attempted, require_cuda
from velocirl.bench.suite.training.network import sizes_of, velocirl_network
from velocirl.bench.suite.training.ppo import Work, velocirl_training
from velocirl.bench.units import BYTES_PER_SECOND, ROWS, STEPS
from velocirl.engine.targets.cpu import available_cores

WIDTH = 256
BATCHES = (64, 1024, 16_384, 65_536)
FLEETS = (64, 1024, 16_384)
HORIZON = 32
TRANSFERS = {"64 kB": 2**16, "1 MB": 2**20, "16 MB": 2**24, "256 MB": 2**28}


def device_network(rows: int) -> Timed:
    """Time forward and backward passes of a torch network on the GPU, with TF32 products."""
    require_cuda()
    import torch  # pyright: ignore[reportMissingImports] - where there is a device

    from velocirl.bench.peers.torch_network import forward_and_backward  # needs torch

    torch.backends.cuda.matmul.allow_tf32 = True
    call = forward_and_backward(rows, sizes_of(WIDTH), "cuda")
    call()  # failures occur here
    operations = forward_operations(sizes_of(WIDTH)) + backward_operations(sizes_of(WIDTH))
    return Timed(call, amount=rows, cost=Cost(operations=operations, device="cuda"))


def transfer(to_device: bool, size: int, pinned: bool) -> Timed:
    """Time a copy of `size` bytes between main memory and the GPU."""
    require_cuda()
    import torch  # pyright: ignore[reportMissingImports]

    host: Any = torch.from_numpy(np.zeros(size, np.uint8))
    if pinned:
        host = host.pin_memory()
    device = torch.empty(size, dtype=torch.uint8, device="cuda")
    source, into = (host, device) if to_device else (device, host)

    def call() -> None:
        into.copy_(source)
        torch.cuda.synchronize()

    call()
    return Timed(call, amount=size)


def beside(sizes: dict[str, int], cpu: Callable[[int], Sampler], cuda: Callable[[int], Sampler]) -> dict[str, Any]:
    """Return implementations and claims: GPU against CPU at every size. Without a GPU, neither is measured."""
    contestants, claims = {}, []
    for name, size in sizes.items():
        on_cpu, on_gpu = f"CPU, {name}", f"GPU, {name}"
        contestants[on_cpu], contestants[on_gpu] = attempted(partial(cpu, size)), attempted(partial(cuda, size))
        claims.append(ratio(on_gpu, on_cpu))
    return {"contestants": contestants, "claims": claims}


def work_of(copies: int) -> Work:
    """Return a PPO iteration with this many environments: one epoch of four minibatches."""
    return Work(copies, HORIZON, epochs=1, minibatch_size=copies * HORIZON // 4)


@benchmark(category="device")
def device_networks() -> Comparison:
    """Rows forward and backward through an MLP of 64, 256, 256 and 16, one core of the CPU beside a GPU, by rows.

    On the CPU velocirl's own network, on the GPU a network of torch, whose rows are there already.
    """
    sizes = {f"{rows:,} rows": rows for rows in BATCHES}
    return Comparison(ROWS, **beside(sizes, partial(velocirl_network, "backward", WIDTH), device_network))


@benchmark(category="device")
def device_ppo() -> Comparison:
    """Training PPO on CartPole-v1, all cores of the CPU beside a GPU, by the number of copies.

    32 steps, 1 epoch, 4 minibatches; a 64x64 tanh network that policy and value share.
    """
    cores = available_cores()
    return Comparison(
        STEPS,
        **beside(
            {f"{copies:,} copies": copies for copies in FLEETS},
            lambda copies: velocirl_training(work_of(copies), threads=cores),
            lambda copies: cuda_ppo.velocirl_training("CartPole-v1", work_of(copies)),
        ),
    )


@benchmark(category="device")
def device_copies() -> Comparison:
    """Copies between main memory and one CUDA device, by size.

    By torch, one after the other; pinned memory cannot be moved by the system, and is read by the device itself.
    """
    contestants = {}
    for name, size in TRANSFERS.items():
        for way, to_device in (("to the device", True), ("from the device", False)):
            for kind, pinned in (("pinned", True), ("pageable", False)):
                contestants[f"{name} {way}, {kind}"] = attempted(partial(transfer, to_device, size, pinned))
    return Comparison(BYTES_PER_SECOND, contestants)
