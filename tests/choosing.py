"""Which cases of a parametrised test run every time."""

import pytest


def slow_but(quick, names):
    """All of them, those that are not among the quick ones marked slow: each compiles loops of its own."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in names]
