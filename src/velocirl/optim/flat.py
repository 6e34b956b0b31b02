"""Optimizer state of one flat parameter vector: its moments, its step count, and one compiled loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.compiler.compiling import compile_loop, cpu_translator
from velocirl.optim.optimisers import FACTORS, Optimiser, Rule

_STATE = ("moments", "steps", "accumulated", "weight")


def step_loop(rule: Rule) -> Callable[..., Any]:
    """Return the loop of one optimizer step over all parameters.

    It is `advance(parameters, gradient, moments, settings, factors, learning_rate, step, scale)`.
    """
    prepare, apply = rule

    def advance(parameters, gradient, moments, settings, factors, learning_rate, step, scale):
        prepare(settings, learning_rate, step, factors)
        single_scale = np.float32(scale)
        for i in range(parameters.shape[0]):
            apply(parameters, single_scale * gradient[i], moments, i, factors)

    return advance


class FlatOptimiser:
    """Optimizer that updates a flat float32 vector of `size` parameters in place and keeps its state."""

    def __init__(self, optimiser: Optimiser, size: int) -> None:
        if size < 1:
            raise ValueError(f"an optimiser needs at least one parameter, not {size}")
        self.optimiser = optimiser
        self.size = size
        self.steps = 0  # taken so far
        self.moments = np.zeros((optimiser.slots, size), np.float32)
        self._settings = optimiser.settings()
        self._factors = np.zeros(FACTORS, np.float32)
        self._accumulated = np.zeros(size, np.float32)  # weighted sum of the micro-batches since the last mean
        self._weight = 0.0
        loop: Any = step_loop(optimiser.rule)
        vector = self._accumulated
        arguments = (vector, vector, self.moments, self._settings, self._factors, 0.0, 0, 1.0)
        self._advance = compile_loop(loop, arguments, cpu_translator(optimiser.name, double=False), before=lambda: None)

    def step(
        self,
        parameters: NDArray[np.float32],  # (size,), updated in place
        gradient: NDArray[np.float32],  # (size,)
        learning_rate: float,
        scale: float = 1.0,
    ) -> None:
        """Take one step along `scale * gradient`; clipping by norm is a scale, see `clipping.norm_scale`."""
        self._check("parameters", parameters)
        self._check("gradient", gradient)
        if not parameters.flags.writeable:
            raise ValueError("parameters is read-only; the step updates it in place, so give it a writable array")
        # The loop is compiled for disjoint arrays.
        if np.may_share_memory(parameters, gradient):
            raise ValueError("parameters and gradient share memory; give one of them an array of its own")
        if not 0 <= learning_rate < inf:
            raise ValueError(f"learning_rate must be at least 0 and finite, not {learning_rate!r}")
        self.steps += 1
        self._advance(
            parameters, gradient, self.moments, self._settings, self._factors,
            float(learning_rate), self.steps, float(scale),
        )  # fmt: skip

    def accumulate(self, gradient: NDArray[np.float32], weight: float = 1.0) -> None:
        """Add the mean gradient of a micro-batch; if batches differ in size, `weight` is the number of samples."""
        self._check("gradient", gradient)
        if not 0 < weight < inf:
            raise ValueError(f"weight must be above 0 and finite, not {weight!r}")
        self._accumulated += gradient if weight == 1.0 else np.float32(weight) * gradient
        self._weight += weight

    def mean_gradient(self) -> NDArray[np.float32]:
        """Return the mean of the accumulated gradients, for `step`, and reset the accumulation."""
        if self._weight == 0.0:
            raise RuntimeError("no gradient was accumulated since the last mean; call accumulate(gradient) first")
        mean = self._accumulated / np.float32(self._weight)
        self._accumulated[:] = 0.0
        self._weight = 0.0
        return mean

    def state(self) -> dict[str, NDArray[Any]]:
        """Return copies of everything that determines the next steps; an accumulated sum of nothing is empty."""
        return {
            "moments": self.moments.copy(),
            "steps": np.array(self.steps, np.int64),
            "accumulated": self._accumulated.copy() if self._weight else np.zeros(0, np.float32),
            "weight": np.array(self._weight, np.float64),
        }

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Load the arrays of `state`. Raises ValueError before any change if they do not fit."""
        if set(state) != set(_STATE):
            raise ValueError(f"the state of an optimiser has {', '.join(_STATE)}; this has {', '.join(sorted(state))}")
        weight = state["weight"]
        expected = self.state()
        expected["accumulated"] = np.zeros(self.size if weight.size == 1 and weight.item() else 0, np.float32)
        for name in _STATE:
            found, wanted = state[name], expected[name]
            if found.shape != wanted.shape or found.dtype != wanted.dtype:
                raise ValueError(
                    f"{name} of the state is {found.dtype}{found.shape}, but {self.optimiser} over {self.size} values"
                    f" has {wanted.dtype}{wanted.shape}; load what this optimiser saved for this network"
                )
        if state["steps"] < 0 or not 0 <= weight < inf:
            raise ValueError(f"steps {state['steps']} and weight {weight} of the state must be at least 0 and finite")
        self.moments[:] = state["moments"]
        self.steps = int(state["steps"])
        self._weight = float(weight)
        self._accumulated[:] = state["accumulated"] if self._weight else 0.0

    def _check(self, name: str, vector: NDArray[Any]) -> None:
        """Raise ValueError for an array other than the loop was compiled for: the loop does not check."""
        if not isinstance(vector, np.ndarray) or vector.dtype != np.float32 or vector.shape != (self.size,):
            found = f"{vector.dtype}{vector.shape}" if isinstance(vector, np.ndarray) else type(vector).__name__
            raise ValueError(f"{name} must be a float32 array of shape ({self.size},), not {found}")
        if not (vector.flags.c_contiguous and vector.flags.aligned):
            raise ValueError(f"{name} must be contiguous and aligned; np.ascontiguousarray makes it so")
