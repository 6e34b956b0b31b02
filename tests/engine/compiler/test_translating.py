"""Compiled functions that units share: one for all where the content is the same, and nowhere else."""

import numpy as np
import pytest

from velocirl import float32, record
from velocirl.engine.compiler import translating
from velocirl.engine.compiler.compiling import add_kernel, cpu_translator, learning_translator
from velocirl.engine.compiler.translating import Shared


def twice(x):
    return 2.0 * x


def helped(x):
    return twice(x) + 1.0


def times(factor):
    def scaled(x):
        return factor * x

    return scaled


def test_translators_of_a_kind_share_what_is_the_same():
    one, other = (cpu_translator(name, double=False) for name in ("one", "other"))
    assert one.scalar(helped) is other.scalar(helped)
    assert one.scalar(times(3)) is other.scalar(times(3))


@pytest.mark.parametrize(
    "other", [lambda: cpu_translator("other", double=True), lambda: learning_translator("other")], ids=["double", "fma"]
)
def test_another_kind_has_its_own(other):
    assert cpu_translator("one", double=False).scalar(helped) is not other().scalar(helped)


def test_another_content_is_another_function():
    translator = cpu_translator("one", double=False)
    assert translator.scalar(times(3)) is not translator.scalar(times(4))


def test_what_calls_a_function_of_a_translators_own_is_not_shared():
    one, other = learning_translator("one"), learning_translator("other")
    add_kernel(one, twice)
    assert one.scalar(helped) is not other.scalar(helped)
    assert one.scalar(times(3)) is other.scalar(times(3))


def test_what_was_used_longest_ago_is_forgotten(monkeypatch):
    monkeypatch.setattr(translating, "MOST_SHARED", 2)
    shared = Shared()
    shared.keep("a", 1)
    shared.keep("b", 2)
    assert shared.find("a") == 1
    shared.keep("c", 3)
    assert [shared.find(key) for key in "abc"] == [1, None, 3]


@record
class Short:
    value: float32


@record
class Long:
    value: float32
    speed: float32


def grow(state, params, action, rng):
    state.value += 1
    return state.value, False


def test_a_state_is_never_taken_for_one_that_begins_alike(define, apply):
    """Numba would, with a warning, which is an error here, wherever a function was compiled for the shorter one."""
    for state in (Short, Long):
        fields = {name: np.zeros(3) for name in state.dtype.names}
        assert apply(define(state=state, step=grow), **fields)["value"].tolist() == [1, 1, 1]
