import errno
import io
import json
import os
import re

import pytest
from planted_report import PEAKS, planted_report, result
from rich.console import Console

from velocirl.bench.comparison import ratio
from velocirl.bench.files import require_writable, write_whole
from velocirl.bench.judging import judge
from velocirl.bench.machine.facts import Machine
from velocirl.bench.measuring import THOROUGH
from velocirl.bench.registry import Benchmark
from velocirl.bench.reports.markdown import BEGIN, END, write_section
from velocirl.bench.reports.terminal import (
    TerminalWatcher,
    say_duration,
    seconds_left,
    show_machine,
    show_result,
    show_summary,
)
from velocirl.bench.results import Measured, Report, Result
from velocirl.bench.units import STEPS

OURS = Measured("velocirl", (40e6, 41e6, 42e6), 1000)
PEER = Measured("Gymnasium", (10e6, 10e6, 15e6), 250)
MISSING = Measured("EnvPool", unavailable="envpool is not installed")


@pytest.fixture
def report():
    contestants = (OURS, PEER, MISSING)
    claims = (ratio("velocirl", "Gymnasium", at_least=3.0), ratio("velocirl", "EnvPool", at_least=40.0))
    findings = tuple(judge(claim, contestants, STEPS) for claim in claims)
    steps = Result("steps", "stepping", "Steps of many", "A note.", STEPS, contestants, findings, 1.5)
    machine = Machine("A Processor", 2, 24 * 2**30, "Linux 6", 1.9, "abcdef", {"python": "3.11.7", "numpy": "2.4.6"})
    return Report("velocirl bench stepping", "2026-01-02T03:04:05+00:00", machine, THOROUGH, [steps])


def test_json_is_valid_and_complete(report):
    content = json.loads(report.as_json())
    assert content["command"] == "velocirl bench stepping"
    assert content["machine"]["versions"]["numpy"] == "2.4.6"
    assert content["settings"]["sample_seconds"] == THOROUGH.sample_seconds
    (steps,) = content["results"]
    assert (steps["name"], steps["unit"]["name"], steps["unit"]["more_is_better"]) == ("steps", "steps/s", True)
    ours, peer, missing = steps["contestants"]
    assert ours["samples"] == [40e6, 41e6, 42e6]
    assert ours["iterations"] == 1000
    assert ours["estimate"]["median"] == 41e6
    assert ours["estimate"]["low"] <= 41e6 <= ours["estimate"]["high"]
    assert (ours["noisy"], peer["noisy"]) == (False, True)
    assert missing["samples"] == []
    assert missing["unavailable"] == "envpool is not installed"
    assert missing["estimate"] is None
    assert [finding["target"] for finding in steps["findings"]] == [3.0, 40.0]
    assert steps["findings"][0]["estimate"]["median"] == pytest.approx(4.0)
    assert steps["findings"][1]["verdict"] == "not measured"


def test_a_new_markdown_file_says_it_all(report, tmp_path):
    path = tmp_path / "BENCHMARKS.md"
    write_section(path, report)
    text = path.read_text()
    assert text.startswith("# Benchmarks\n")
    for part in (
        "`velocirl bench stepping`",
        "A Processor, 2 cores, 24 GiB",
        "python 3.11.7, numpy 2.4.6",
        "Commit: abcdef",
        "| Steps of many | velocirl / Gymnasium | at least 3.00x | 4.00x | 2.80 to 4.10 | **undecided** |",
        "| velocirl | 41.0M steps/s | 40.0 to 42.0 | 2.4% | 3 x 1,000 calls |",
        "| EnvPool | envpool is not installed |",
        "too noisy to conclude from (spread above 10%): Gymnasium 25%",
        "load average 1.90",
        "A note.",
    ):
        assert part in text
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in tables} == {7, 6}
    assert "### What to do next" in text  # it was noisy


def test_what_people_wrote_stays_and_the_section_is_replaced(report, tmp_path):
    path = tmp_path / "BENCHMARKS.md"
    before, after = "# Ours\n\nBy hand, with  spaces.\n\n", "\n\n## CUDA\n\n| H200 | 5.6G |\n"
    path.write_text(f"{before}{BEGIN}\nold figures\n{END}{after}")
    write_section(path, report)
    first = path.read_text()
    assert first.startswith(before + BEGIN)
    assert first.endswith(END + after)
    assert "old figures" not in first
    write_section(path, report)
    assert path.read_text() == first


def test_a_file_without_markers_gets_the_section_at_its_end(report, tmp_path):
    path = tmp_path / "BENCHMARKS.md"
    path.write_text("# Ours\n\nBy hand.\n")
    write_section(path, report)
    assert path.read_text().startswith(f"# Ours\n\nBy hand.\n\n{BEGIN}\n## ")


@pytest.mark.parametrize("text", [f"{BEGIN}\nno end", f"{END}\n{BEGIN}", f"{BEGIN}{END}{BEGIN}{END}"])
def test_unclear_markers_are_refused_and_nothing_is_lost(report, tmp_path, text):
    path = tmp_path / "BENCHMARKS.md"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"BENCHMARKS\.md: expected one"):
        write_section(path, report)
    assert path.read_text() == text


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "figures.json"
    path.write_text("old")

    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_a_link(tmp_path):
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("old")
    link.symlink_to(file)
    write_whole(link, "new")
    assert link.is_symlink()
    assert file.read_text() == "new"


def test_unwritable_places_are_refused_beforehand(tmp_path):
    with pytest.raises(IsADirectoryError, match="give the name of a file"):
        require_writable(tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no directory"):
        require_writable(tmp_path / "nowhere" / "file")


@pytest.mark.parametrize("terminal", [True, False])
def test_terminal_shows_figures_verdicts_and_warnings(report, terminal):
    output = io.StringIO()
    width = 80 if terminal else 200
    console = Console(file=output, force_terminal=terminal, width=width, no_color=True, highlight=False)
    show_machine(console, report.machine)
    show_result(console, report.results[0])
    show_summary(console, report)
    text = output.getvalue()
    assert ("\x1b" in text) == terminal
    text = re.sub(r"\x1b\[[\d;]*m", "", text)
    for part in ("41.0M steps/s", "40.0 to 42.0", "envpool is not installed", "at least 3.00x", "undecided", "25%"):
        assert part in text
    assert "targets: 1 undecided, 1 not measured" in text
    assert ("Steps of many" in text) == terminal  # elsewhere the line that said it is measured has named it


def shown(show, *, terminal=False, width=200):
    output = io.StringIO()
    show(Console(file=output, force_terminal=terminal, width=width, no_color=True, highlight=False))
    return re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", output.getvalue())


def named(name):
    return next(one for one in planted_report().results if one.name == name)


@pytest.mark.parametrize("terminal", [True, False])
def test_an_error_is_one_line(terminal):
    long = result("broken", "scaling", STEPS, [], error="RuntimeError: " + "[red]very[/red] " * 40)
    text = shown(lambda console: show_result(console, long), terminal=terminal, width=60)
    (line,) = (line for line in text.splitlines() if "error" in line)
    assert line.startswith("error: RuntimeError: [red]very[/red]")
    assert not terminal or len(line) <= 60


def test_a_benchmark_of_which_nothing_is_there_takes_one_line():
    text = shown(lambda console: show_result(console, named("cuda_loop")))
    assert text.split("\n") == ["not measured: no CUDA device", "", ""]


def test_an_interrupted_benchmark_is_marked():
    assert "interrupted: these are the rounds so far" in shown(
        lambda console: show_result(console, named("q_learning"))
    )


def test_shares_of_the_limit_are_shown_where_they_are_known():
    ours = named("random_loop")
    assert "84% of memory" in shown(lambda console: show_result(console, ours, PEAKS))
    assert "of the limit" not in shown(lambda console: show_result(console, ours))
    assert "of the limit" not in shown(lambda console: show_result(console, named("q_learning"), PEAKS))


def test_the_summary_tells_key_figures_gaps_and_what_to_do():
    lines = shown(lambda console: show_summary(console, planted_report())).splitlines()
    text = "\n".join(lines)
    assert any(re.match(r"Compile time training_start +7\.20 s +< 5\.00 s +> 30\.0 s +short", line) for line in lines)
    assert "no key figure for: safety checks" in text
    assert "not measured here: cuda_loop (no CUDA device)" in text
    assert "failed: broken: RuntimeError: the workers did not answer within 30 s" in text
    assert "interrupted: only 16 benchmarks were begun" in text
    assert "Use threads=1" in text
    assert "targets: 11 met, 2 missed, 2 not measured (200 s)" in text


def test_the_time_that_is_left():
    assert seconds_left([], 5, 1.0) is None
    assert seconds_left([10.0, 20.0], 3, 5.0) == 10.0 + 3 * 15.0
    assert seconds_left([10.0, 20.0], 3, 60.0) == 3 * 15.0  # the present one takes longer than others did
    assert seconds_left([10.0], -1, 1.0) is None  # measured once more, which nobody counted on
    assert [say_duration(seconds) for seconds in (3.2, 89.0, 200.0, 4800.0)] == ["3 s", "89 s", "3 min", "1 h 20 min"]


@pytest.mark.parametrize("terminal", [True, False])
def test_a_watcher_shows_each_result_beside_the_limits_and_counts_on(terminal):
    def define():
        """What is measured."""

    def watch(console):
        with TerminalWatcher(console, 2) as watcher:
            for _ in range(3):
                watcher.begin(Benchmark("environment", define))
                watcher.advance(0.5)
                assert watcher.remembering(lambda: PEAKS)() is PEAKS
                watcher.finish(named("random_loop"))

    text = shown(watch, terminal=terminal)
    assert text.count("84% of memory") == 3
    if terminal:
        assert "about 12 s left" in text
    else:
        assert "measuring 2/2 What is measured" in text
        assert "measuring again What is measured" in text


def test_markdown_tells_of_gaps_in_one_line_and_of_limits(tmp_path):
    path = tmp_path / "BENCHMARKS.md"
    write_section(path, planted_report())
    text = path.read_text()
    assert "Not measured here: cuda_loop: no CUDA device.\n" in text
    assert "CartPole-v1 on one CUDA device" not in text
    assert "> **Error** in broken: RuntimeError: the workers did not answer within 30 s" in text
    assert "> **Warning:** only a part of the run: it was interrupted" in text
    assert "| velocirl, 1 thread | 210M steps/s | 209 to 211 | 0.9% | 15 x 1,000 calls | 84% of memory |" in text
    assert "cold cache | 7.20 s (training_start) | < 5.00 s | > 30.0 s | **short** |" in text
    assert "- Use threads=1 for work of this size: 2 threads are slower (cartpole_4096: 0.83 times" in text
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({line.count("|") for line in table.splitlines()}) == 1


def test_what_a_file_says_cannot_leave_its_place_in_the_section(tmp_path):
    hostile = f"{END}\n<script>alert(1)</script> | more"
    contestants = [Measured(hostile, (1.0, 2.0, 3.0), 1)]
    path = tmp_path / "BENCHMARKS.md"
    report = planted_report(
        results=[result("bad", "training", STEPS, contestants, title=hostile, notes=hostile, error=hostile)]
    )
    write_section(path, report)
    write_section(path, report)  # the markers are still one of each
    text = path.read_text()
    assert "<script" not in text
    assert "&lt;script>alert(1)&lt;/script> \\| more" in text
