"""Work that is shared out among forks: all of it is done, in order, whatever happens to a fork."""

import gc
import os
import signal
import time

import pytest

from velocirl.engine.compiler.caching import forking
from velocirl.engine.compiler.caching.forking import share_out


def number_and_process(k):
    return f"{k} {os.getpid()}".encode()


@pytest.mark.parametrize("processes", [1, 3])
@pytest.mark.parametrize("count", [0, 1, 20])
def test_everything_is_done_and_comes_in_order(count, processes):
    assert share_out(lambda k: bytes([k, k]), count, processes) == [bytes([k, k]) for k in range(count)]


def test_forks_take_part(monkeypatch):
    monkeypatch.setattr(forking, "_next", slowly(forking._next))
    told = share_out(number_and_process, 40, 3)
    assert len({one.split()[1] for one in told}) > 1
    assert str(os.getpid()).encode() in {one.split()[1] for one in told}


def test_forks_collect_no_garbage(monkeypatch):
    """What a fork would collect may be on a GPU: its destructor aborts there, or never returns."""
    monkeypatch.setattr(forking, "_next", slowly(forking._next))
    told = {tuple(one.split()) for one in share_out(lambda k: b"%d %d" % (os.getpid(), gc.isenabled()), 40, 3)}
    here = str(os.getpid()).encode()
    assert (here, b"1") in told
    assert {one for process, one in told if process != here} == {b"0"}


def slowly(take):
    """Let nobody take everything before the others have begun."""

    def take_slowly(queue):
        time.sleep(0.02)
        return take(queue)

    return take_slowly


def fail():
    raise ValueError("not in a fork")


@pytest.mark.parametrize("mishap", [fail, lambda: os.kill(os.getpid(), signal.SIGKILL)], ids=["raises", "dies"])
def test_what_a_fork_cannot_do_is_done_here(mishap):
    here = os.getpid()

    def work(k):
        if os.getpid() != here:
            mishap()
        return bytes([k])

    assert share_out(work, 20, 3) == [bytes([k]) for k in range(20)]


def failing(k):
    if k == 7:
        raise ValueError("seven")
    return b""


@pytest.mark.parametrize("processes", [1, 3])
def test_what_cannot_be_done_at_all_is_raised_here_and_no_fork_is_left(monkeypatch, processes):
    forks = []
    fork = os.fork
    monkeypatch.setattr(os, "fork", lambda: forks.append(fork()) or forks[-1])
    with pytest.raises(ValueError, match="seven"):
        share_out(failing, 20, processes)
    assert len(forks) == processes - 1
    for process in forks:
        with pytest.raises(ChildProcessError):  # ended and waited for
            os.waitpid(process, os.WNOHANG)


def test_where_forks_are_not_safe_there_are_none(monkeypatch):
    monkeypatch.setattr(forking, "can_fork", lambda: False)
    monkeypatch.setattr(os, "fork", None)
    assert share_out(lambda k: bytes([k]), 3, 3) == [b"\0", b"\1", b"\2"]
