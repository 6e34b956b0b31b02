"""Which cases of a parametrised test run every time."""

import importlib.util
from itertools import product

import pytest


def slow_but(quick, names):
    """All of them, those that are not among the quick ones marked slow: each compiles loops of its own."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in names]


def every_pair(*lists):
    """All combinations of three or more lists, half of them marked slow: the others have every pair of values."""
    numbered = product(*(enumerate(values) for values in lists))
    return [
        pytest.param(*(value for _, value in one), marks=pytest.mark.slow if sum(k for k, _ in one) % 2 else ())
        for one in numbered
    ]


def on_cuda():
    """The marks of tests that train on a GPU."""
    missing = pytest.mark.skipif(not _cuda_available(), reason="needs a CUDA device and numba-cuda")
    return [pytest.mark.cuda, missing]


def _cuda_available():
    if importlib.util.find_spec("numba_cuda") is None or importlib.util.find_spec("torch") is None:
        return False
    import torch

    import velocirl.engine.targets.cuda as engine

    return bool(engine.cuda.is_available()) and torch.cuda.is_available()
