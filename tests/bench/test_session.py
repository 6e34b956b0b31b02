import time
from types import FunctionType

import numpy as np
import pytest

from velocirl.bench import Comparison, Cost, Counted, Timed, UnavailableError, benchmark, ratio, registry, value
from velocirl.bench import suite as suite_package
from velocirl.bench.machine.facts import Machine, this_machine
from velocirl.bench.machine.peaks import Peak, Peaks, Share
from velocirl.bench.measuring import QUICK, Settings
from velocirl.bench.registry import Benchmark, at_a_glance, find_benchmarks
from velocirl.bench.results import NOT_MEASURED
from velocirl.bench.session import run_benchmarks
from velocirl.bench.units import NUMBER, RATE, SECONDS, STEPS

MACHINE = Machine("a processor", 2, 2**34, "a system", 0.1, "", {"python": "3"})


class Silent:
    def begin(self, benchmark): ...
    def advance(self, share): ...
    def finish(self, result): ...


def run(define):
    return run_benchmarks([Benchmark("test", define)], QUICK, MACHINE, Silent(), "a command").results[0]


def missing(name):
    raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def unavailable():
    raise UnavailableError("needs 99 cores, has 2")


def test_a_decorated_function_in_the_suite_is_found_by_itself(tmp_path, monkeypatch):
    found = find_benchmarks(everything=True)
    assert {one.category for one in found} == set(registry.CATEGORIES)
    (tmp_path / "added.py").write_text(
        "from velocirl.bench import Comparison, benchmark\n"
        "from velocirl.bench.units import NUMBER, RATE, SECONDS, STEPS\n"
        '@benchmark(category="mine")\n'
        "def added():\n"
        '    """What it measures.\n\n    What to know.\n    And more.\n    """\n'
        "    return Comparison(STEPS, {})\n"
    )
    monkeypatch.setattr(registry, "_benchmarks", dict(registry._benchmarks))
    monkeypatch.setattr(suite_package, "__path__", [*suite_package.__path__, str(tmp_path)])
    (added,) = find_benchmarks(["mine"])
    assert (added.name, added.title, added.notes) == ("added", "What it measures", "What to know. And more.")
    others = [one.name for one in find_benchmarks(everything=True) if one.name != "added"]
    assert others == [one.name for one in found]


def names(*words):
    return {one.name for one in find_benchmarks(words)}


def test_a_word_is_a_category_a_benchmark_or_a_file_of_the_suite():
    assert names("flatten") == {"flatten"}
    assert names("spaces") == {"flatten", "unflatten"}
    assert {one.category for one in find_benchmarks(["memory"])} == {"memory"}
    assert names("flatten", "memory") == {"flatten"} | names("memory")


def test_without_words_the_standard_ones_are_meant():
    every = find_benchmarks(everything=True)
    assert [one.name for one in find_benchmarks()] == [one.name for one in every if one.standard]


@pytest.mark.parametrize(
    ("word", "near"), [("steping", "stepping"), ("enviroment", "environment"), ("flaten", "flatten")]
)
def test_an_unknown_word_gets_a_suggestion(word, near):
    with pytest.raises(ValueError, match=f"no benchmark '{word}': did you mean '{near}'"):
        find_benchmarks([word])


def test_a_word_that_is_near_to_nothing_gets_the_categories():
    with pytest.raises(ValueError, match="the categories are compile, environment, vector"):
        find_benchmarks(["qqqqqqqq"])


OWN = '''
from velocirl.bench import Counted, Timed, benchmark


@benchmark(category="mine", batch_size=256)
def timed_function():
    """A function to time."""
    return lambda: sum(range(100))


@benchmark(category="mine")
def timed_work():
    """Work per second."""
    return Timed(lambda: sum(range(100)), amount=100)


@benchmark(category="mine")
def counted():
    """A number."""
    return Counted(lambda: 3.0)
'''


@pytest.fixture
def own_registry(monkeypatch):
    find_benchmarks()  # the suite enters itself once
    monkeypatch.setattr(registry, "_benchmarks", dict(registry._benchmarks))


@pytest.mark.usefixtures("own_registry")
def test_a_file_of_ones_own(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(OWN)
    found = find_benchmarks([str(path)])
    assert [one.name for one in found] == ["timed_function", "timed_work", "counted"]
    report = run_benchmarks(found, QUICK, MACHINE, Silent(), "a command")
    assert [result.unit for result in report.results] == [SECONDS, RATE, NUMBER]
    assert report.results[0].metadata == {"batch_size": 256}
    assert set(report.results[2].contestants[0].samples) == {3.0}
    per_call, per_second = (result.contestants[0].estimate.median for result in report.results[:2])
    assert 0.2 < per_second * per_call / 100 < 5.0  # the same work, seen from both sides


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("x = 1", "defines no benchmark"),
        ("x = 1\nraise RuntimeError('no')", "own.py:2: RuntimeError: no"),
        ("def f(:", "own.py:1: SyntaxError"),
        (None, "there is no file"),
    ],
    ids=["nothing", "raises", "syntax", "absent"],
)
def test_what_is_wrong_with_a_file_of_ones_own_is_said(tmp_path, text, fault):
    path = tmp_path / "own.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ValueError, match=fault):
        find_benchmarks([str(path)])


@pytest.mark.usefixtures("own_registry")
def test_two_files_cannot_both_name_a_benchmark(tmp_path):
    (tmp_path / "own.py").write_text(OWN.replace("timed_work", "flatten"))
    with pytest.raises(ValueError, match="spaces has a benchmark flatten already"):
        find_benchmarks([str(tmp_path / "own.py")])


def test_a_benchmark_needs_a_title():
    with pytest.raises(TypeError, match="untitled needs a docstring"):

        @benchmark(category="test")
        def untitled():
            return Comparison(STEPS, {})


def test_a_claim_names_contestants():
    with pytest.raises(ValueError, match="'nobody'; the contestants are a"):
        Comparison(STEPS, {"a": lambda: Counted(lambda: 1.0)}, [ratio("a", "nobody")])


def test_missing_peers_are_rows_that_say_so():
    def define():
        """Title."""
        contestants = {
            "ours": lambda: Counted(lambda: 2.0),
            "peer": lambda: missing("envpool"),
            "many cores": unavailable,
        }
        return Comparison(STEPS, contestants, [ratio("ours", "peer", at_least=1.0)])

    result = run(define)
    assert [one.unavailable for one in result.contestants] == [
        "", "envpool is not installed", "needs 99 cores, has 2"
    ]  # fmt: skip
    assert set(result.contestants[0].samples) == {2.0}
    assert result.findings[0].verdict == NOT_MEASURED


def test_a_missing_module_of_our_own_is_an_error():
    def define():
        """Title."""
        return Comparison(STEPS, {"ours": lambda: missing("velocirl.nothing")})

    assert run(define).error == "ModuleNotFoundError: No module named 'velocirl.nothing'"


def test_what_was_measured_is_closed_when_a_contestant_fails():
    closed = []

    def define():
        """Title."""
        contestants = {
            "good": lambda: Counted(lambda: 1.0, closing=lambda: closed.append("good")),
            "bad": lambda: Timed(lambda: 1 / 0, closing=lambda: closed.append("bad")),
        }
        return Comparison(STEPS, contestants)

    assert run(define).error == "ZeroDivisionError: division by zero"
    assert sorted(closed) == ["bad", "good"]


def failing():
    """A benchmark that cannot be made."""
    raise ValueError("something\nis wrong")


def good():
    """A good one."""
    return Counted(lambda: 1.0)


def test_a_benchmark_that_raises_is_reported_and_the_rest_goes_on():
    benchmarks = [Benchmark("test", failing), Benchmark("test", good)]
    report = run_benchmarks(benchmarks, QUICK, MACHINE, Silent(), "a command")
    assert report.complete
    assert [result.error for result in report.results] == ["ValueError: something is wrong", ""]
    assert [result.name for result in report.failures] == ["failing"]
    assert report.results[1].contestants[0].samples


def test_an_interrupt_keeps_whole_rounds_and_marks_them():
    calls = []

    def interrupting():
        calls.append(1)
        if len(calls) > 2:
            raise KeyboardInterrupt
        return 1.0

    def define():
        """Title."""
        contestants = {"calm": lambda: Counted(lambda: 2.0), "late": lambda: Counted(interrupting)}
        return Comparison(STEPS, contestants, [ratio("calm", "late")])

    seen = []
    watcher = Silent()
    watcher.finish = seen.append
    benchmarks = [Benchmark("test", good), Benchmark("test", define), Benchmark("test", failing)]
    report = run_benchmarks(benchmarks, QUICK, MACHINE, watcher, "a command")
    assert not report.complete
    assert [result.name for result in report.results] == ["good", "define"]
    assert [result.interrupted for result in report.results] == [False, True]
    assert [one.samples for one in report.results[1].contestants] == [(2.0,) * 2, (1.0,) * 2]
    assert report.results[1].findings[0].estimate.median == 2.0
    assert "interrupted" in report.results[1].warnings[-1]
    assert [result.name for result in seen] == ["good", "define"]


def test_after_its_time_what_is_not_done_is_left_out_and_named():
    def endless():
        """One that nobody waits for."""
        return Counted(lambda: time.sleep(10.0) or 1.0)

    benchmarks = [Benchmark("test", good), Benchmark("test", endless), Benchmark("test", failing)]
    start = time.perf_counter()
    report = run_benchmarks(benchmarks, QUICK, MACHINE, Silent(), "a command", seconds=1.0, left_out=["leaks"])
    assert time.perf_counter() - start < 5.0
    assert [result.name for result in report.results] == ["good"]
    assert (report.complete, report.left_out) == (True, ("leaks", "endless", "failing"))


def test_a_glance_has_the_first_of_each_category_first_and_says_what_it_leaves_out():
    def named(name, category, **given):
        return Benchmark(category, FunctionType(good.__code__, {}, name), **given)

    some = [
        named("a", "vector"), named("b", "vector"), named("long", "training", quick=False), named("c", "training"),
        named("d", "device"), named("e", "device"), named("f", "vector"), named("g", "training"),
    ]  # fmt: skip
    quick, left_out = at_a_glance(some, gpu=False)
    assert ("".join(one.name for one in quick), left_out) == ("acbgfde", ["long"])
    quick, _ = at_a_glance(some, gpu=True)
    assert "".join(one.name for one in quick) == "acdbegf"


def test_a_glance_reaches_every_category_of_the_standard_set():
    quick, left_out = at_a_glance(find_benchmarks(), gpu=True)
    assert {one.name for one in quick} | set(left_out) == {one.name for one in find_benchmarks()}
    assert {one.category for one in quick} == set(registry.CATEGORIES) - {"compile"}  # which takes processes
    assert len(left_out) < len(quick) / 2


def test_peers_are_measured_where_they_are_asked_for():
    def define():
        """Title."""
        contestants = {"ours": lambda: Counted(lambda: 2.0), "theirs": lambda: Counted(lambda: 1.0)}
        return Comparison(STEPS, contestants, [ratio("ours", "theirs"), value("ours")], peers=("theirs",))

    benchmarks = [Benchmark("test", define)]
    beside, alone = (
        run_benchmarks(benchmarks, QUICK, MACHINE, Silent(), "a command", peers=peers).results[0]
        for peers in (True, False)
    )
    assert [(one.name, one.peer) for one in beside.contestants] == [("ours", False), ("theirs", True)]
    assert [one.name for one in alone.contestants] == ["ours"]
    assert [finding.statement for finding in alone.findings] == ["ours"]


def test_a_peer_is_a_contestant():
    with pytest.raises(ValueError, match="the peers have 'nobody'; the contestants are a"):
        Comparison(STEPS, {"a": lambda: Counted(lambda: 1.0)}, peers=("nobody",))


def test_what_a_benchmark_may_return():
    def define():
        """Title."""
        return 3

    assert "must return a function to time, a Timed, a Counted or a Comparison, got 3" in run(define).error


def test_every_round_has_its_reference():
    result = run(good)
    assert len(result.reference) == len(result.reference_by_processor) == len(result.contestants[0].samples)
    assert 1e-4 < min(result.reference) < 0.2
    assert min(result.reference_by_processor) <= 1.05 * max(result.reference)


def test_the_limits_of_the_machine_are_measured_once_where_something_has_a_cost():
    calls = []

    def limits():
        calls.append(1)
        return Peaks([Peak("cpu", 1, 1e9, 1e9)])

    def costly():
        """Title."""
        return Comparison(STEPS, {"a": lambda: Counted(lambda: 1e6, cost=Cost(operations=500.0))})

    benchmarks = [Benchmark("test", good), Benchmark("test", costly), Benchmark("test", costly)]
    report = run_benchmarks(benchmarks, QUICK, MACHINE, Silent(), "", peaks=limits)
    assert len(calls) == 1
    share = report.share(report.results[1], report.results[1].contestants[0])
    assert share == Share(pytest.approx(0.5), "arithmetic")
    assert run_benchmarks(benchmarks[:1], QUICK, MACHINE, Silent(), "", peaks=limits).peaks is None


def test_a_faster_contestant_measures_faster():
    def define():
        """Title."""
        few, many = np.zeros(1_000), np.zeros(1_000_000)
        contestants = {"few": lambda: Timed(few.sum, amount=1.0), "many": lambda: Timed(many.sum, amount=1.0)}
        return Comparison(STEPS, contestants, [ratio("few", "many", at_least=5.0)])

    result = run(define)
    assert result.findings[0].estimate.low > 5.0
    assert all(len(one.samples) >= QUICK.fewest_rounds for one in result.contestants)
    assert result.contestants[0].iterations > result.contestants[1].iterations


def test_fingerprint_of_this_machine():
    machine = this_machine()
    assert machine.versions["numpy"] == np.__version__
    assert machine.cores >= 1
    assert machine.memory_bytes > 2**28
    assert machine.processor


def test_a_busy_machine_is_warned_about():
    busy = Machine("", 2, 0, "", 1.5, "")
    assert "load average 1.50 on 2 cores before the run, above 0.5 per core" in busy.warnings[0]
    assert Machine("", 2, 0, "", 0.9, "").warnings == []


def test_thorough_settings_take_more_than_quick_ones():
    thorough = Settings()
    assert thorough.fewest_rounds > QUICK.fewest_rounds
    assert thorough.sample_seconds > QUICK.sample_seconds
