"""The history of benchmarks: what is kept, how it is found again, and what kills and other processes do to it."""

import signal
import stat
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from past_runs import ELSEWHERE, HERE, OURS, PEER, commit, planted_report, planted_result

from velocirl.bench.history.rows import describe, identity_of
from velocirl.bench.history.runs import History, default_path
from velocirl.bench.results import Measured
from velocirl.bench.units import SECONDS

MACHINE = identity_of(HERE)
SCRIPT = """
import os, resource, signal, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from past_runs import planted_report, planted_result
from velocirl.bench.history import writing as history_writing
from velocirl.bench.history.runs import History
path = Path({path!r})
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "history.sqlite"


@pytest.fixture
def start(path):
    """Start a process that does something with the history; `path`, `History` and planted reports are there for it."""

    def start(lines):
        tests = str(Path(__file__).parents[2])
        script = SCRIPT.format(tests=tests, path=str(path)) + textwrap.dedent(lines)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen([sys.executable, "-W", "error", "-c", script], **pipes)

    return start


def medians(history, **given):
    return [point.median for point in history.series("steps", machine=MACHINE, **given)]


def names(directory):
    return [path.name for path in directory.iterdir()]


def everything(path):
    history = History.open(path, create=False)
    return history._runs


def test_what_was_added_is_found_again(path):
    report = planted_report(3)
    with History.open(path) as history:
        assert history.add(report)
        (kept,) = history.series("steps", machine=MACHINE)
    (point,) = History.open(path).series("steps", machine=MACHINE)
    assert point == kept
    result = report.results[0]
    ours = result.contestants[0]
    assert point.samples == ours.samples
    assert point.estimate == ours.estimate
    assert (point.spread, point.unit, point.seconds) == (ours.spread, result.unit, 1.5)
    assert (point.contestant, point.peer, point.category) == (OURS, False, "environment")
    assert point.reference == 0.005
    run = point.run
    assert (run.commit, run.command, run.started) == (commit(3), "velocirl bench", report.started)
    assert (run.complete, run.quick, run.load) == (True, False, 0.1)
    assert run.versions == report.machine.versions
    assert run.settings["sample_seconds"] == report.settings.sample_seconds
    assert describe(run.machine) == "A Processor, 2 cores, 24 GiB"


def test_a_history_is_private_and_begun_with_its_directories(path, tmp_path, monkeypatch):
    monkeypatch.setenv("VELOCIRL_HOME", str(tmp_path / "some" / "home"))
    history = History.open()
    assert history.path == default_path() == tmp_path / "some" / "home" / "bench" / "history.sqlite"
    assert stat.S_IMODE(history.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(history.path.parent.stat().st_mode) == 0o700
    assert names(history.path.parent) == ["history.sqlite"]
    assert history.runs == []
    with pytest.raises(FileNotFoundError, match=r"no history .* yet: velocirl bench measures and begins one"):
        History.open(path, create=False)
    assert not path.exists()


def test_points_are_oldest_first_whenever_they_were_added(path):
    history = History.open(path)
    for number in (5, 1, 3):
        history.add(planted_report(number, [planted_result(median=1000.0 * number)]))
    assert medians(history) == medians(History.open(path)) == [1000.0, 3000.0, 5000.0]


def test_machines_are_never_mixed(path):
    history = History.open(path)
    history.add(planted_report(0))
    history.add(planted_report(1, [planted_result(median=9e6)], machine=ELSEWHERE))
    assert medians(history) == [1e6]
    assert [point.median for point in history.series("steps", machine=identity_of(ELSEWHERE))] == [9e6]
    assert history.machines() == [identity_of(ELSEWHERE), MACHINE]
    assert history.benchmarks() == {}  # this machine is neither
    with pytest.raises(ValueError, match="no benchmark 'steps' of this machine"):
        history.series("steps")


def test_only_what_was_measured_without_an_error_is_kept(path):
    history = History.open(path)
    missing = replace(planted_result("partly"), contestants=(Measured(OURS, (1.0, 2.0)), Measured("EnvPool")))
    broken = planted_result("broken", error="ValueError: no")
    assert history.add(planted_report(0, [planted_result(), missing, broken]))
    assert list(history.benchmarks(MACHINE)) == ["steps", "partly"]
    assert history.contestants("partly", MACHINE) == [OURS]
    assert not history.add(planted_report(1, [broken]))
    assert not history.add(planted_report(2, []))
    assert len(History.open(path).runs) == 1


def test_interrupted_and_quick_runs_are_marked_and_quick_ones_left_out(path):
    history = History.open(path)
    history.add(planted_report(0))
    history.add(planted_report(1, [planted_result(median=2e6, interrupted=True)], complete=False))
    history.add(planted_report(2, [planted_result(median=3e6), planted_result("other")], quick=True))
    assert medians(history) == [1e6, 2e6]
    assert medians(history, quick=True) == [1e6, 2e6, 3e6]
    assert list(history.benchmarks(MACHINE)) == ["steps"]
    assert list(history.benchmarks(MACHINE, quick=True)) == ["steps", "other"]
    assert [run.complete for run in history.runs] == [True, False, True]
    assert [run.quick for run in history.runs] == [False, False, True]
    assert [point.interrupted for point in history.series("steps", machine=MACHINE)] == [False, True]


def test_figures_in_another_unit_are_not_of_the_trend(path):
    history = History.open(path)
    history.add(planted_report(0, [planted_result(median=2.0, unit=SECONDS)]))
    history.add(planted_report(1))
    assert medians(history) == [1e6]


def test_contestants_and_the_nearest_names(path):
    history = History.open(path)
    history.add(planted_report(0))
    assert history.contestants("steps", MACHINE) == [OURS, PEER]
    assert history.contestants("steps", MACHINE, peers=False) == [OURS]
    assert history.series("steps", PEER, MACHINE)[0].peer
    with pytest.raises(ValueError, match="did you mean 'steps'"):
        history.series("step", machine=MACHINE)
    with pytest.raises(ValueError, match="did you mean 'Gymnasium'"):
        history.series("steps", "Gymnasum", MACHINE)


def test_texts_that_a_terminal_would_obey_are_kept_harmless(path):
    history = History.open(path)
    history.add(replace(planted_report(0, [planted_result("st\x1b[31meps")]), command="velocirl \udcff bench\n"))
    (run,) = History.open(path).runs
    assert run.command == "velocirl \ufffd bench\ufffd"
    assert list(History.open(path).benchmarks(MACHINE)) == ["st\ufffd[31meps"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"started": "yesterday"}, "started|isoformat"),
        ({"results": [planted_result("x" * 201)]}, "benchmark cannot be"),
        ({"machine": replace(HERE, load=float("nan"))}, "load cannot be nan"),
    ],
)
def test_what_could_not_be_read_again_is_not_written(path, change, reason):
    history = History.open(path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=f"cannot be kept in the history: .*({reason})"):
        history.add(replace(planted_report(), **change))
    assert path.read_bytes() == before


def test_negative_zero_and_odd_numbers_come_back(path):
    history = History.open(path)
    odd = Measured("counted", (-0.0, -0.0, -0.0)), Measured("small", (5e-324, 1e308, 0.1 + 0.2))
    history.add(planted_report(0, [replace(planted_result(), contestants=odd)]))
    assert History.open(path).series("steps", "small", MACHINE)[0].samples == (5e-324, 1e308, 0.1 + 0.2)
    assert History.open(path).series("steps", "counted", MACHINE)[0].median == 0.0


def test_a_run_that_others_added_meanwhile_is_seen(path):
    first, second = History.open(path), History.open(path)
    first.add(planted_report(0, [planted_result(median=1.0)]))
    second.add(planted_report(1, [planted_result(median=2.0)]))
    assert medians(second) == medians(History.open(path)) == [1.0, 2.0]


def test_two_processes_at_once_lose_nothing(path, start):
    lines = "for i in range(8): History.open(path).add(planted_report({}, [planted_result(median={} + i + 1.0)]))"
    writers = [start(lines.format(n, 100 * n)) for n in range(2)]
    for writer in writers:
        assert writer.communicate(timeout=60)[1] == ""
    expected = [100 * n + i + 1.0 for n in range(2) for i in range(8)]
    np.testing.assert_allclose(sorted(medians(History.open(path))), expected)
    assert names(path.parent) == [path.name]


def test_a_writer_killed_in_the_middle_leaves_the_run_absent(path, start):
    History.open(path).add(planted_report(0))
    before, content = path.read_bytes(), everything(path)
    killed = start("""
        insert = history_writing._insert

        def insert_and_die(connection, table, rows):
            connection.execute("PRAGMA cache_size = 1")  # so that pages are written before the end
            insert(connection, table, rows)
            if table == "figures":
                os.kill(os.getpid(), signal.SIGKILL)

        history_writing._insert = insert_and_die
        History.open(path).add(planted_report(1, [planted_result(f"steps{i}") for i in range(200)]))
    """)
    assert killed.wait(timeout=60) == -signal.SIGKILL
    killed.communicate()
    journal = path.with_name(path.name + "-journal")
    assert journal.stat().st_size > 0
    assert path.read_bytes() != before  # it was in the middle
    assert everything(path) == content
    assert path.read_bytes() == before
    assert not journal.exists()
    assert History.open(path).add(planted_report(1))
    assert len(everything(path)) == 2


@pytest.mark.slow
def test_kills_at_random_moments_leave_every_run_whole_or_absent(path, start):
    random, counted = np.random.default_rng(3), 0
    for _ in range(8):
        writer = start("""
            print("ready", flush=True)
            while True:
                History.open(path).add(planted_report(0, [planted_result(f"steps{i}") for i in range(40)]))
                print("one", flush=True)
        """)
        writer.stdout.readline()
        writer.stdout.readline()
        with pytest.raises(subprocess.TimeoutExpired):
            writer.wait(timeout=float(random.uniform(0.0, 0.3)))
        writer.kill()
        told = 1 + writer.communicate()[0].count("one")
        runs = everything(path)
        assert counted + told <= len(runs) <= counted + told + 1
        assert all(len(points) == 80 for _, points in runs)
        counted = len(runs)


def test_a_full_disk_leaves_what_there_was(path, start):
    History.open(path).add(planted_report(0))
    before, content = path.read_bytes(), everything(path)
    writer = start("""
        def limit(size):
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

        def attempt(size, act):
            limit(size)
            try:
                act()
            except OSError as error:
                print(error)

        history = History.open(path)
        large = planted_report(1, [planted_result(f"steps{i}") for i in range(300)])
        attempt(os.path.getsize(path), lambda: history.add(large))
        attempt(3000, lambda: history.add(large))
        attempt(1000, lambda: History.open(path.with_name("new.sqlite")))
    """)
    said, errors = writer.communicate(timeout=60)
    assert errors == ""
    said = said.splitlines()
    assert len(said) == 3
    assert all("could not be written" in line and "is the disk full?" in line for line in said)
    assert everything(path) == content
    assert path.read_bytes() == before
    assert names(path.parent) == [path.name]


def test_a_full_history_says_so(path, monkeypatch):
    history = History.open(path)
    monkeypatch.setattr("velocirl.bench.history.writing.MOST_BYTES", path.stat().st_size + 100)
    with pytest.raises(OSError, match="is full: move it away"):
        history.add(planted_report())
    assert History.open(path).runs == []
