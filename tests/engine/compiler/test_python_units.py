"""Units that are Python: called by address, and what becomes of what they raise."""

import signal
import sys

import pytest

from velocirl.engine.compiler.entering import unit_entry
from velocirl.engine.compiler.python_units import PythonUnit


def test_a_function_is_called_with_its_words():
    called = []
    unit = PythonUnit(lambda *words: called.append(words))
    assert unit_entry()(unit.frame, 3, 7, -1) == 0
    assert called == [(3, 7, -1)]
    unit.raise_fault()


def test_what_it_raises_is_kept_until_it_is_asked_for():
    def fail(first, stop, place):
        raise LookupError(f"{first} {stop} {place}")

    unit = PythonUnit(fail)
    assert unit_entry()(unit.frame, 1, 2, 3) == 1
    with pytest.raises(LookupError, match="1 2 3"):
        unit.raise_fault()
    unit.raise_fault()  # told once


def test_a_signal_whose_handler_raises_before_the_function_begins_interrupts(monkeypatch):
    """Python runs handlers as soon as it enters a function: before anything of it could catch what they raise."""
    called = []
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)

    def struck(first, stop, place):
        raise TimeoutError

    class Struck(PythonUnit):
        _call = staticmethod(struck)  # as if its first instruction had raised

    unit = Struck(lambda *words: called.append(words))
    assert unit_entry()(unit.frame, 0, 1, 0) == 1
    assert called == []
    with pytest.raises(KeyboardInterrupt):
        unit.raise_fault()
    unit.raise_fault()


def test_signals_while_it_is_called_often_end_in_exceptions_alone():
    def interrupt(number, frame):
        raise TimeoutError

    unit, enter, before = PythonUnit(lambda *_: None), unit_entry(), signal.signal(signal.SIGALRM, interrupt)
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    interrupted = 0
    try:
        while interrupted < 50:
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.002)  # once: the next one comes when this is caught
                while True:
                    enter(unit.frame, 0, 1, 0)
                    unit.raise_fault()
            except (TimeoutError, KeyboardInterrupt):
                interrupted += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        sys.unraisablehook = hook
