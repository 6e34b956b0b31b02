"""NaN guard: stops training at the first non-finite value and reports where it occurred."""

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


SAID = ("out of memory", "out_of_memory", "unable to allocate", "memoryerror")  # in out-of-memory messages of devices


class DeviceMemoryError(MemoryError):
    """A device has too little memory for a batch. Nothing was saved since; saved files are intact."""


def lacks_memory(error: Exception) -> bool:
    """Return whether an error means that a device is out of memory; errors that already have advice do not count."""
    text = f"{type(error).__name__} {error}".lower()  # torch and CUDA have their own error types
    return not isinstance(error, (DeviceMemoryError, AllowanceError)) and any(said in text for said in SAID)


@contextmanager
def tells_of_memory(config: Any) -> Iterator[None]:
    """Replace a device's out-of-memory error by one that names the cause and suggests settings to change."""
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
    """Return out-of-memory advice for on-policy learners."""
    rows = config.num_envs * config.horizon
    return (
        f"a rollout of num_envs={config.num_envs:,} x horizon={config.horizon:,} = {rows:,} samples with minibatches of"
        f" {min(config.minibatch_size, rows):,}: reduce num_envs or minibatch_size, or take a smaller network"
    )


def for_memory(config: Any) -> str:
    """Return out-of-memory advice for off-policy and offline learners."""
    half = max(config.batch_size // 2, 1)
    as_many = f" with gradient_accumulation={2 * config.gradient_accumulation}, which learns the same"
    other = "" if config.precision in ("bf16", "fp16") else ', or precision="bf16"'
    advice = f"give batch_size={half}{as_many if config.batch_size > 1 else ''}"
    if not hasattr(config, "buffer_size"):  # offline
        return f"updates of batch_size={config.batch_size:,} beside the data: {advice}{other}"
    return (
        f"updates of batch_size={config.batch_size:,} with num_envs={config.num_envs:,} copies beside a memory of"
        f" buffer_size={config.buffer_size:,} transitions: {advice}, a smaller buffer_size or num_envs{other}"
    )


class NumericalError(ArithmeticError):
    """A value in a training run is not finite; nothing was saved since."""


def fault_of_rollout(kind: int, copy: int, t: int, steps: int, num_envs: int) -> NumericalError:
    """Return the error for the first non-finite value in a rollout that began after `steps` steps."""
    source, advice = SOURCES[kind]
    return NumericalError(
        f"{source}: copy {copy}, step {steps + t * num_envs} of the run ({t} of this rollout); {advice}."
        " No checkpoint was written after that"
    )


def check_update(faulty_gradient: bool, parameters: NDArray[Any], steps: int) -> None:
    """Raise if the update after `steps` steps had a non-finite gradient, or left one in `parameters` (or their sum)."""
    if faulty_gradient or not np.isfinite(parameters).all():
        source = "the gradient" if faulty_gradient else "a parameter of the network"
        raise NumericalError(
            f"{source} is not finite in the update after step {steps} of the run; a smaller learning_rate may help."
            " No checkpoint was written after that"
        )


def check_faults(faults: NDArray[np.int32], steps: int, first: int = 0, num_envs: int | None = None) -> None:
    """Raise for the first non-finite value in an iteration that began after `steps` steps.

    If `faults` has only some of `num_envs` environments, `first` is the number of its first one.
    """
    if not faults.any():
        return
    copies = np.flatnonzero(faults)
    copy = int(copies[np.argmin(faults[copies])])
    t, kind = divmod(int(faults[copy]) - 1, FAULT_KINDS)
    raise fault_of_rollout(kind, first + copy, t, steps, num_envs or len(faults))
