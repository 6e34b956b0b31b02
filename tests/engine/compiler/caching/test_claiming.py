"""What several processes need at the same time is compiled by one of them, and by another where that one is gone."""

import threading
import time

import numpy as np
import pytest

from velocirl.engine.compiler import units
from velocirl.engine.compiler.caching import claiming
from velocirl.engine.compiler.caching.cache import clear_cache, entries, find_code, keep_code
from velocirl.engine.compiler.caching.claiming import claimed, wait_for
from velocirl.engine.compiler.compiling import learning_translator


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("VELOCIRL_HOME", str(tmp_path / "home"))


def test_each_is_claimed_by_one_and_free_again_afterwards():
    with claimed(["a", "b"]) as first:
        with claimed(["b", "c"]) as second:
            assert (first, second) == ({"a", "b"}, {"c"})
        with claimed(["c"]) as third:
            assert third == {"c"}
    with claimed(["a", "b"]) as fourth:
        assert fourth == {"a", "b"}
    assert entries() == []


def test_whoever_waits_waits_until_then_and_not_forever(monkeypatch):
    began = time.monotonic()
    with claimed(["a"]):
        monkeypatch.setattr(claiming, "PATIENCE", 0.1)
        wait_for(["a", "b"])
        assert time.monotonic() - began >= 0.1
        monkeypatch.setattr(claiming, "PATIENCE", 60.0)
        waiting = threading.Thread(target=wait_for, args=(["a"],))
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive()
    waiting.join(30)
    assert not waiting.is_alive()


def double(arguments, first, stop, place):
    (numbers,) = arguments
    for i in range(first, stop):
        numbers[i] = 2 * numbers[i]
    return 0


def test_a_unit_that_another_process_compiles_is_waited_for(monkeypatch):
    numbers = np.ones(4, np.float32)

    def bind():
        return units.bind_unit(double, (numbers,), learning_translator("test"))

    monkeypatch.setattr(units, "_LOADED", {})
    bind()(0, 4)
    ((path, *_),) = entries()
    code = find_code(path.name)
    clear_cache()
    monkeypatch.setattr(units, "_LOADED", {})
    monkeypatch.setattr(units, "_compile", None)  # it cannot be compiled here
    begun = threading.Event()

    def other():
        with claimed([path.name]):
            begun.set()
            time.sleep(0.2)
            keep_code(path.name, code)

    thread = threading.Thread(target=other)
    thread.start()
    begun.wait()
    bind()(0, 4)
    thread.join()
    assert numbers.tolist() == [4.0] * 4


def test_what_the_other_did_not_finish_is_compiled_here(monkeypatch):
    monkeypatch.setattr(units, "_LOADED", {})
    monkeypatch.setattr(claiming, "PATIENCE", 0.1)
    numbers = np.ones(4, np.float32)
    bound = units.bind_unit(double, (numbers,), learning_translator("test"))
    (key,) = [order.key for held, order in units._WAITING if held() is bound]
    with claimed([units._file(key)]):
        bound(0, 4)
    assert numbers.tolist() == [2.0] * 4
    assert [entry.path.name for entry in entries()] == [units._file(key)]


def test_where_nothing_can_be_written_everybody_compiles(monkeypatch, tmp_path):
    monkeypatch.setenv("VELOCIRL_HOME", str(tmp_path / "home"))
    (tmp_path / "home").write_text("not a directory")
    with claimed(["a"]) as ours:
        assert ours == set()
    wait_for(["a"])
