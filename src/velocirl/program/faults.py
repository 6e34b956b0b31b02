"""The guard against numbers that are not numbers: training stops where one appears, and says where that was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.disk.allowance import AllowanceError
from velocirl.program.rows.recording import (
    FAULT_IN_OBSERVATION,
    FAULT_IN_POLICY,
    FAULT_IN_REWARD,
    FAULT_IN_STATE,
    FAULT_KINDS,
)  # fmt: skip

SOURCES = {
    FAULT_IN_OBSERVATION: ("an observation of the environment is not finite", "look at its observe and step functions"),
    FAULT_IN_REWARD: ("a reward of the environment is not finite", "look at its step function"),
    FAULT_IN_POLICY: ("the output of the network is not finite", "a smaller learning_rate or max_grad_norm may help"),
    FAULT_IN_STATE: ("an observation of the environment is outside of its space", "look at its observe function"),
}


SAID = ("out of memory", "out_of_memory", "unable to allocate", "memoryerror")  # what devices without memory say


class DeviceMemoryError(MemoryError):
    """A device has too little memory for a batch; nothing was saved since, and nothing that was saved is lost."""


def lacks_memory(error: Exception) -> bool:
    """Whether a device says that it has too little memory; some errors say what for already."""
    text = f"{type(error).__name__} {error}".lower()  # torch and CUDA have errors of their own for it
    return not isinstance(error, (DeviceMemoryError, AllowanceError)) and any(said in text for said in SAID)


@contextmanager
def tells_of_memory(config: Any) -> Iterator[None]:
    """Turn an error of a device without memory into one that says for what, and what to change."""
    try:
        yield
    except Exception as error:
        if not lacks_memory(error):
            raise
        what = (for_memory if hasattr(config, "batch_size") else for_rollout)(config)
        raise DeviceMemoryError(
            f"{config.device} has too little memory for {what}. Checkpoints that were written are intact"
        ) from error


def for_rollout(config: Any) -> str:
    """What a learner from rollouts needs memory for, and what would need less."""
    rows = config.num_envs * config.horizon
    return (
        f"a rollout of num_envs={config.num_envs:,} x horizon={config.horizon:,} = {rows:,} samples with minibatches of"
        f" {min(config.minibatch_size, rows):,}: reduce num_envs or minibatch_size, or take a smaller network"
    )


def for_memory(config: Any) -> str:
    """The same of a learner from a memory."""
    half = max(config.batch_size // 2, 1)
    as_many = f" with gradient_accumulation={2 * config.gradient_accumulation}, which learns the same"
    other = "" if config.precision in ("bf16", "fp16") else ', or precision="bf16"'
    advice = f"give batch_size={half}{as_many if config.batch_size > 1 else ''}"
    if not hasattr(config, "buffer_size"):  # what is learnt from is data
        return f"updates of batch_size={config.batch_size:,} beside the data: {advice}{other}"
    return (
        f"updates of batch_size={config.batch_size:,} with num_envs={config.num_envs:,} copies beside a memory of"
        f" buffer_size={config.buffer_size:,} transitions: {advice}, a smaller buffer_size or num_envs{other}"
    )


class NumericalError(ArithmeticError):
    """A number of a training run is infinite or not a number; nothing was saved since."""


def fault_of_rollout(kind: int, copy: int, t: int, steps: int, num_envs: int) -> NumericalError:
    """What is said of the first such number of a rollout that began after `steps` steps."""
    source, advice = SOURCES[kind]
    return NumericalError(
        f"{source}: copy {copy}, step {steps + t * num_envs} of the run ({t} of this rollout); {advice}."
        " No checkpoint was written after that"
    )


def check_update(faulty_gradient: bool, parameters: NDArray[Any], steps: int) -> None:
    """Raise if the update after so many steps met such a number, or left one in the parameters (or in their sum)."""
    if faulty_gradient or not np.isfinite(parameters).all():
        source = "the gradient" if faulty_gradient else "a parameter of the network"
        raise NumericalError(
            f"{source} is not finite in the update after step {steps} of the run; a smaller learning_rate may help."
            " No checkpoint was written after that"
        )


def check_faults(faults: NDArray[np.int32], steps: int, first: int = 0, num_envs: int | None = None) -> None:
    """Raise if a copy met such a number in an iteration that began after `steps` steps; the first of them is told.

    Where these are some of `num_envs` copies, `first` is the number of their first one.
    """
    if not faults.any():
        return
    copies = np.flatnonzero(faults)
    copy = int(copies[np.argmin(faults[copies])])
    t, kind = divmod(int(faults[copy]) - 1, FAULT_KINDS)
    raise fault_of_rollout(kind, first + copy, t, steps, num_envs or len(faults))
