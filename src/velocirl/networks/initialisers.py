"""Initial weights of a dense layer, stored (inputs, outputs) and applied as `x @ weights`.

Each initializer is a function `(generator, inputs, outputs, gain)`; the gain is the following activation's.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.disk.allowance import claim
from velocirl.engine.naming import nearest

Initialiser = Callable[[np.random.Generator, int, int, float], NDArray[np.float32]]


def initialiser_from(name: str) -> Initialiser:
    """Return the initializer of a name; it raises for layers beyond the memory limit."""
    if name not in INITIALISERS:
        raise ValueError(f"unknown initialiser {name!r}{nearest(name, INITIALISERS)}")
    initialise = INITIALISERS[name]

    def initialised(generator: np.random.Generator, inputs: int, outputs: int, gain: float) -> NDArray[np.float32]:
        claim(4 * inputs * outputs, f"a layer of {inputs} by {outputs} weights")
        return initialise(generator, inputs, outputs, gain)

    return initialised


def orthogonal(generator: np.random.Generator, inputs: int, outputs: int, gain: float) -> NDArray[np.float32]:
    """Orthogonal columns (or rows, if there are fewer) of length `gain` (Saxe et al., 2014)."""
    normals = generator.standard_normal((max(inputs, outputs), min(inputs, outputs)))
    basis, triangle = np.linalg.qr(normals)
    # The signs make the matrix uniform among all orthogonal ones, independent of the decomposition's sign convention.
    basis *= np.where(np.diagonal(triangle) < 0, -gain, gain)
    return np.ascontiguousarray(basis if inputs >= outputs else basis.T, np.float32)


def xavier_uniform(generator: np.random.Generator, inputs: int, outputs: int, gain: float) -> NDArray[np.float32]:
    """Uniform in +-gain sqrt(6 / (inputs + outputs)) (Glorot and Bengio, 2010)."""
    return _uniform(generator, inputs, outputs, gain * sqrt(2 / (inputs + outputs)))


def xavier_normal(generator: np.random.Generator, inputs: int, outputs: int, gain: float) -> NDArray[np.float32]:
    """Normal with standard deviation gain sqrt(2 / (inputs + outputs)) (Glorot and Bengio, 2010)."""
    return _normal(generator, inputs, outputs, gain * sqrt(2 / (inputs + outputs)))


def he_uniform(generator: np.random.Generator, inputs: int, outputs: int, gain: float) -> NDArray[np.float32]:
    """Uniform in +-gain sqrt(3 / inputs) (He et al., 2015)."""
    return _uniform(generator, inputs, outputs, gain / sqrt(inputs))


def he_normal(generator: np.random.Generator, inputs: int, outputs: int, gain: float) -> NDArray[np.float32]:
    """Normal with standard deviation gain / sqrt(inputs) (He et al., 2015)."""
    return _normal(generator, inputs, outputs, gain / sqrt(inputs))


def zeros(generator: np.random.Generator, inputs: int, outputs: int, gain: float) -> NDArray[np.float32]:  # noqa: ARG001
    """Zeros, for a last layer whose initial outputs should be 0."""
    return np.zeros((inputs, outputs), np.float32)


def _uniform(generator: np.random.Generator, inputs: int, outputs: int, deviation: float) -> NDArray[np.float32]:
    bound = sqrt(3) * deviation
    return generator.uniform(-bound, bound, (inputs, outputs)).astype(np.float32)


def _normal(generator: np.random.Generator, inputs: int, outputs: int, deviation: float) -> NDArray[np.float32]:
    return (deviation * generator.standard_normal((inputs, outputs))).astype(np.float32)


INITIALISERS: dict[str, Initialiser] = {
    "orthogonal": orthogonal,
    "xavier_uniform": xavier_uniform,
    "xavier_normal": xavier_normal,
    "he_uniform": he_uniform,
    "he_normal": he_normal,
    "zeros": zeros,
}
