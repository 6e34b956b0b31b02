"""The benchmarks of memory: that a planted leak and a planted peak are found."""

import statistics

import pytest

from velocirl.bench.comparison import UnavailableError
from velocirl.bench.machine import resident
from velocirl.bench.machine.resident import told, told_in_turns, told_once
from velocirl.bench.suite.fleets import single
from velocirl.bench.suite.training import runs_memory
from velocirl.engine.fleets.lifecycle import ARRAYS

pytestmark = pytest.mark.skipif(not resident.PEAK.exists(), reason="only Linux tells the memory of a process")

LEAKING = """
kept = []
def thousand():
    kept.append(bytearray(b"x" * 1_000_000))
"""
TIDY = """
def thousand():
    for _ in range(1000):
        bytearray(b"x" * 1_000)
"""
PEAKING = """
def episode():
    bytearray(b"x" * 50_000_000)
    return 2
"""


def test_a_planted_leak_is_found():
    figures = runs_memory.leak_of(LEAKING, rounds=5)
    assert len(figures) == 5
    assert 0.9e6 < statistics.median(figures) < 1.2e6
    assert statistics.median(figures) > runs_memory.MOST_LEAKED


def test_what_is_let_go_is_no_leak():
    assert statistics.median(runs_memory.leak_of(TIDY, rounds=5)) <= runs_memory.MOST_LEAKED


def test_the_peak_of_an_episode_is_found_after_it_is_over():
    figures = told(runs_memory.EPISODE.format(prepare=PEAKING, rounds=3))
    assert all(45e6 < figure < 110e6 for figure in figures)  # for each of two: the text itself and its copy


def test_one_episode_takes_next_to_nothing():
    figures = told(runs_memory.EPISODE.format(prepare=runs_memory.SINGLE.format(environment="CartPole-v1"), rounds=3))
    assert all(0 <= figure < 1e6 for figure in figures)


def test_figures_stand_in_turns(monkeypatch):
    said = iter(["1 2\n3"])
    monkeypatch.setattr(resident, "run_python", lambda code: next(said))
    counted = told_in_turns("")()
    assert [counted.sample() for _ in range(4)] == [1, 2, 3, 1]


def test_a_process_that_is_asked_once(monkeypatch):
    monkeypatch.setattr(resident, "run_python", lambda code: "7.5\n")
    counted = told_once("")
    monkeypatch.setattr(resident, "run_python", lambda code: pytest.fail("asked again"))
    assert [counted.sample(), counted.sample()] == [7.5, 7.5]


def test_other_systems_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr(resident, "PEAK", tmp_path / "nothing")
    with pytest.raises(UnavailableError, match="which only Linux has"):
        told("print(1)")


def test_the_bytes_of_a_copy_are_those_of_its_arrays():
    import velocirl

    env = velocirl.make_vec("TicTacToe-v1", single.COPIES)
    assert (
        single.array_bytes("TicTacToe-v1") == sum(getattr(env.copies, name).nbytes for name in ARRAYS) / single.COPIES
    )
    env.close()


def test_one_environment_begins_anew_after_its_end():
    import gymnasium

    env = gymnasium.make("CartPole-v1")
    timed = single.stepping(env)
    for _ in range(200):  # Gymnasium warns where it is stepped beyond an end
        timed.call()
    timed.close()
