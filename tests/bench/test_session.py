import numpy as np
import pytest

from velocirl.bench import Comparison, Counted, Timed, UnavailableError, benchmark, ratio, registry
from velocirl.bench import suite as suite_package
from velocirl.bench.machine import Machine, this_machine
from velocirl.bench.measuring import QUICK, Settings
from velocirl.bench.registry import Benchmark, find_benchmarks
from velocirl.bench.results import NOT_MEASURED
from velocirl.bench.session import run_benchmarks
from velocirl.bench.units import STEPS

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
    found = find_benchmarks()
    assert {one.category for one in found} >= {
        "environments", "fused", "host", "memory", "spaces", "startup", "stepping"
    }  # fmt: skip
    (tmp_path / "added.py").write_text(
        "from velocirl.bench import Comparison, benchmark\n"
        "from velocirl.bench.units import STEPS\n"
        '@benchmark(category="mine")\n'
        "def added():\n"
        '    """What it measures.\n\n    What to know.\n    And more.\n    """\n'
        "    return Comparison(STEPS, {})\n"
    )
    monkeypatch.setattr(registry, "_benchmarks", dict(registry._benchmarks))
    monkeypatch.setattr(suite_package, "__path__", [*suite_package.__path__, str(tmp_path)])
    (added,) = find_benchmarks(["mine"])
    assert (added.name, added.title, added.notes) == ("added", "What it measures", "What to know. And more.")
    assert [one.name for one in find_benchmarks() if one.name != "added"] == [one.name for one in found]


def test_an_unknown_category_gets_a_suggestion():
    with pytest.raises(ValueError, match="'steping': did you mean 'stepping'"):
        find_benchmarks(["steping"])


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

    with pytest.raises(ModuleNotFoundError, match="nothing"):
        run(define)


def test_what_was_measured_is_closed_when_a_contestant_fails():
    closed = []

    def define():
        """Title."""
        contestants = {
            "good": lambda: Counted(lambda: 1.0, closing=lambda: closed.append("good")),
            "bad": lambda: Timed(lambda: 1 / 0, closing=lambda: closed.append("bad")),
        }
        return Comparison(STEPS, contestants)

    with pytest.raises(ZeroDivisionError):
        run(define)
    assert sorted(closed) == ["bad", "good"]


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
