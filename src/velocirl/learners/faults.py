"""The guard against numbers that are not numbers: training stops where one appears, and says where that was."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.learners.recording import (
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


def check_faults(faults: NDArray[np.int32], steps: int) -> None:
    """Raise if a copy met such a number in an iteration that began after `steps` steps; the first of them is told."""
    if not faults.any():
        return
    copies = np.flatnonzero(faults)
    copy = int(copies[np.argmin(faults[copies])])
    t, kind = divmod(int(faults[copy]) - 1, FAULT_KINDS)
    raise fault_of_rollout(kind, copy, t, steps, len(faults))
