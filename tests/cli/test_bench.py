import json
import re
import signal
import subprocess
import time
from dataclasses import replace
from textwrap import dedent

import pytest

from velocirl.bench import registry
from velocirl.bench.baselines import baseline_path
from velocirl.bench.history.runs import History
from velocirl.bench.machine.facts import this_machine
from velocirl.bench.measuring import QUICK
from velocirl.bench.reading import read_report
from velocirl.cli.main import main

from .conftest import COMMAND

GOOD = '''
import os
from velocirl.bench import Counted, benchmark


@benchmark(category="mine")
def speed():
    """A figure of one's own."""
    return Counted(lambda: float(os.environ.get("PLANTED", 100.0)))
'''
FAILING = '''

@benchmark(category="mine")
def broken():
    """One that fails."""
    raise RuntimeError("it is\\nbroken")
'''
SLOW = '''
import time


@benchmark(category="mine")
def slow():
    """One that takes long."""
    def count():
        time.sleep(0.3)
        return 5.0
    return Counted(count)
'''


@pytest.fixture(autouse=True)
def own_registry(monkeypatch):
    registry.find_benchmarks()  # the suite enters itself once
    monkeypatch.setattr(registry, "_benchmarks", dict(registry._benchmarks))


@pytest.fixture
def own(tmp_path):
    """A file of one's own benchmarks."""

    def write(text):
        path = tmp_path / "my_bench.py"
        path.write_text(dedent(text))
        return str(path)

    return write


def exit_code(*arguments):
    try:
        main(arguments)
    except SystemExit as end:
        return end.code
    return 0


def test_the_list_has_categories_in_their_order(capsys):
    main(["bench", "--list", "--all"])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0][:2] == ["category", "benchmark"]
    assert ["vector", "cartpole_4096"] in [line[:2] for line in lines]
    assert list(dict.fromkeys(line[0] for line in lines[1:])) == list(registry.CATEGORIES)
    main(["bench", "memory", "--list"])
    assert {line.split()[0] for line in capsys.readouterr().out.splitlines()} == {"category", "memory"}


def test_a_quick_run_really_measures(tmp_path, capsys):
    figures, tables, page = tmp_path / "figures.json", tmp_path / "BENCHMARKS.md", tmp_path / "report.html"
    options = ["--peers", "--quick", "--json", str(figures), "--markdown", str(tables), "--html", str(page)]
    main(["bench", "spaces", *options])
    content = json.loads(figures.read_text())
    assert [one["name"] for one in content["results"]] == ["flatten", "unflatten"]
    assert content["command"] == f"velocirl bench spaces {' '.join(options)}"
    for one in content["results"]:
        ours, peer = one["contestants"]
        assert len(ours["samples"]) == len(peer["samples"]) >= 3
        assert one["findings"][0]["estimate"]["low"] > 10.0  # whole batches against one value at a time
        assert ours["estimate"]["median"] > 1e6
    assert read_report(figures).results[0].name == "flatten"
    assert "velocirl / Gymnasium" in tables.read_text()
    assert "flatten" in page.read_text()
    assert "rows/s" in capsys.readouterr().out


def test_a_glance_is_at_the_standard_set_and_says_what_it_leaves_out(own, tmp_path, monkeypatch, capsys):
    found = registry.find_benchmarks([own(GOOD + SLOW.replace('"mine"', '"mine", quick=False'))])
    monkeypatch.setattr("velocirl.cli.bench.command.find_benchmarks", lambda *_, **__: found)
    figures, page = tmp_path / "figures.json", tmp_path / "report.html"
    main(["bench", "--quick", "--json", str(figures), "--html", str(page)])
    assert "left out of this glance: slow (velocirl bench measures them" in capsys.readouterr().out
    report = read_report(figures)
    assert ([one.name for one in report.results], report.left_out) == (["speed"], ("slow",))
    assert "Not measured: slow (no time at a glance)." in page.read_text()
    main(["bench", "slow", "--quick", "--json", str(figures)])  # who names it wants it
    assert [one.name for one in read_report(figures).results] == ["speed", "slow"]


@pytest.mark.slow
def test_the_table_of_speeds_of_this_machine_is_written_and_nothing_else(tmp_path, monkeypatch, capsys):
    machine = replace(this_machine(), gpu="")
    monkeypatch.setattr("velocirl.cli.bench.command.this_machine", lambda: machine)
    monkeypatch.setattr("velocirl.cli.bench.command.THOROUGH", QUICK)
    readme = tmp_path / "README.md"
    before = "# Mine\n\n<!-- speeds:begin -->\nold\n<!-- speeds:end -->\nrest\n"
    readme.write_text(before)
    main(["bench", "flatten", "--speeds", str(readme)])
    assert "nothing of its table was measured" in capsys.readouterr().out
    assert readme.read_text() == before
    main(["bench", "cartpole_64", "--speeds", str(readme)])
    text = readme.read_text()
    assert re.search(r"^\| 64 copies through `VectorEnv.step` \| [\d.]+[kM] steps/s \(", text, re.MULTILINE)
    assert "`velocirl bench cartpole_64 --peers` |" in text
    assert text.endswith("<!-- speeds:end -->\nrest\n")
    assert "old" not in text


@pytest.mark.slow
def test_without_peers_there_are_none(tmp_path):
    figures = tmp_path / "figures.json"
    main(["bench", "flatten", "--quick", "--json", str(figures)])
    assert [one["name"] for one in json.loads(figures.read_text())["results"][0]["contestants"]] == ["velocirl"]


def test_what_became_slower_is_said_and_ends_with_1_where_asked_for(own, tmp_path, monkeypatch, capsys):
    path = own(GOOD)
    assert exit_code("bench", path, "--quick", "--save", "before") == 0
    assert baseline_path("before").is_file()
    assert exit_code("bench", path, "--quick", "--compare", "before", "--fail-on-regression") == 0
    assert "1 of 1 figures as before" in capsys.readouterr().out
    monkeypatch.setenv("PLANTED", "85")
    figures = tmp_path / "figures.json"
    compare = ("bench", path, "--quick", "--compare", "before", "--json", str(figures))
    assert exit_code(*compare) == 0
    out = capsys.readouterr().out
    assert "-15.0%" in out
    assert "worse, fails" in out
    (change,) = json.loads(figures.read_text())["compared"]["changes"]
    assert (change["benchmark"], change["severity"]) == ("speed", "failure")
    assert exit_code(*compare, "--fail-on-regression") == 1
    assert exit_code(*compare, "--fail-on-regression", "--fail-at", "20") == 0
    assert "worse" in capsys.readouterr().out
    assert exit_code(*compare, "--fail-on-regression", "--fail-at", "20", "--warn-at", "16") == 0


def test_a_benchmark_that_raises_is_reported_the_rest_goes_on_and_it_ends_with_1(own, capsys):
    assert exit_code("bench", own(GOOD.replace("speed", "later") + FAILING), "--quick") == 1
    out = capsys.readouterr().out
    assert "RuntimeError: it is broken" in out
    assert "100" in out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["steping"], "there is no category and no benchmark 'steping': did you mean 'stepping'?"),
        (["--compare", "never"], "there is no baseline 'never'"),
        (["--fail-on-regression"], "--fail-on-regression needs a baseline: --compare NAME"),
        (["--warn-at", "50"], "a warning comes before a failure"),
        (["--fail-at", "much"], "--fail-at: must be a number, got 'much'"),
        (["--save", "../x"], "a baseline is named by letters"),
        (["--sav", "x"], "there is no option --sav: did you mean --save?"),
        (["no_such_file.py"], "there is no file"),
        (["--quick", "--speeds", "README.md"], "--quick is for a first impression, and --speeds for results"),
        (["--html", "/nowhere/at/all.html"], "/nowhere/at/all.html: there is no directory"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_mistakes_are_one_line_and_nothing_is_measured(options, message, capsys):
    assert exit_code("bench", *options) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert len(captured.err.splitlines()) == 1
    assert "measuring" not in captured.out


def test_a_damaged_baseline_is_refused_before_anything_is_measured(own, capsys):
    path = own(GOOD)
    main(["bench", path, "--quick", "--save", "before"])
    baseline_path("before").write_text("{")
    capsys.readouterr()
    for option in ("--compare", "--save"):
        assert exit_code("bench", path, "--quick", option, "before") == 2
        captured = capsys.readouterr()
        assert "is no report of benchmarks" in captured.err
        assert "measuring" not in captured.out
    assert baseline_path("before").read_text() == "{"


def test_an_interrupted_run_keeps_what_was_measured_and_marks_it(own, tmp_path, data_home):
    path, tables = own(GOOD + SLOW), tmp_path / "BENCHMARKS.md"
    tables.write_text("# Ours\n")
    main(["bench", path, "--quick", "--save", "before"])
    before = baseline_path("before").read_text()
    process = subprocess.Popen(
        [*COMMAND, "bench", path, "--save", "before", "--markdown", str(tables)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "One that takes long" in line:
            break
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "interrupted" in out
    assert baseline_path("before").read_text() == before
    assert tables.read_text() == "# Ours\n"
    kept = read_report(data_home / "bench" / "interrupted.json")
    assert not kept.complete
    assert [result.name for result in kept.results] == ["speed", "slow"]
    assert kept.results[1].interrupted
    assert 1 <= len(kept.results[1].contestants[0].samples) < 21


def test_every_run_is_added_to_the_history(own, capsys):
    path = own(GOOD)
    for _ in range(2):
        main(["bench", path, "--quick"])
    main(["bench", path, "--quick", "--no-history"])
    capsys.readouterr()
    main(["bench", "history", "--json", "--quick"])
    (trend,) = json.loads(capsys.readouterr().out)["trends"]
    assert trend["benchmark"] == "speed"
    assert len(trend["points"]) == 2


def test_a_history_that_cannot_be_added_to_loses_nothing_else(own, tmp_path, monkeypatch, capsys):
    figures = tmp_path / "figures.json"

    def full(self, report):
        raise OSError("no space left on device")

    monkeypatch.setattr(History, "add", full)
    assert exit_code("bench", own(GOOD), "--quick", "--json", str(figures), "--save", "before") == 2
    assert "no space left" in capsys.readouterr().err
    assert read_report(figures).complete
    assert baseline_path("before").is_file()


def test_a_damaged_history_is_refused_before_anything_is_measured(own, data_home, capsys):
    path = data_home / "bench" / "history.sqlite"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"SQLite format 3\0" + bytes(500))
    before = path.read_bytes()
    assert exit_code("bench", own(GOOD), "--quick") == 2
    captured = capsys.readouterr()
    assert len(captured.err.splitlines()) == 1
    assert "history.sqlite" in captured.err
    assert "measuring" not in captured.out
    assert path.read_bytes() == before
    assert exit_code("bench", own(GOOD), "--quick", "--no-history") == 0
