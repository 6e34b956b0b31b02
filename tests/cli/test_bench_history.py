"""`velocirl bench history`: trends in words, lines, pictures and JSON."""

import io
import json
from dataclasses import replace

import pytest
from past_runs import ELSEWHERE, HERE, commit, planted_report, planted_result, stepping
from rich.console import Console

from velocirl.bench.history import runs as history_module
from velocirl.bench.history.runs import History, default_path
from velocirl.cli.bench import history as command
from velocirl.cli.main import main
from velocirl.runs.curves.characters import BLANK


@pytest.fixture(autouse=True)
def here(monkeypatch):
    """The machine of the planted runs is this one."""
    monkeypatch.setattr(history_module, "this_machine", lambda: HERE)


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A history of 24 runs: one benchmark became worse, another one did not, and there are others' runs."""
    path = tmp_path_factory.mktemp("template") / "history.sqlite"
    history = History.open(path)
    other = planted_result("idle", 5.0, category="memory")
    for number, median in enumerate(stepping(24, 14, 0.8)):
        history.add(planted_report(number, [planted_result(median=median), other]))
    history.add(planted_report(30, [planted_result("abroad", 7.0)], machine=ELSEWHERE))
    history.add(planted_report(31, [planted_result("glance", 8.0)], quick=True))
    return path


@pytest.fixture
def kept(template, data_home):
    """The same as one's own history."""
    path = default_path()
    path.parent.mkdir(parents=True)
    path.write_bytes(template.read_bytes())
    return path


@pytest.fixture
def show(capsys):
    def show(*arguments):
        command.bench_history(list(map(str, arguments)))
        return capsys.readouterr().out

    return show


def test_without_a_name_there_is_a_line_for_each_benchmark(kept, show):
    title, heading, first, second = show().splitlines()
    assert title == "A Processor, 2 cores, 24 GiB"
    assert heading.split() == [
        "category",
        "benchmark",
        "contestant",
        "runs",
        "first",
        "last",
        "latest",
        "last",
        "change",
    ]
    assert first.split()[:6] == ["environment", "steps", "velocirl", "24", "2026-01-01", "2026-01-24"]
    assert "worse since 0014ababab (2026-01-15)" in first
    assert second.split()[:4] == ["memory", "idle", "velocirl", "24"]
    assert second.rstrip().endswith("5.00 steps/s  none")


def test_the_command_of_bench(kept, capsys):
    main(["bench", "history", "idle"])
    assert capsys.readouterr().out.startswith("idle, velocirl\n")


def test_a_name_shows_runs_and_changes_as_plain_lines(kept, show):
    lines = show("steps").splitlines()
    assert lines[0] == "steps, velocirl"
    assert lines[2].startswith("24 runs from 2026-01-01 to 2026-01-24; the latest: ")
    assert lines[2].endswith("more is better")
    runs = [line for line in lines if line.startswith("run ")]
    assert len(runs) == 24
    assert f"run 15  2026-01-15T12:00:00+00:00  {commit(14)}  795k steps/s (" in runs[14]
    (change,) = (line for line in lines if "p = " in line)
    assert "worse from run 15 on, 2026-01-15 (0." in change
    assert change.endswith("it began with 0014ababab, the last run before is of 0013ababab")


def test_a_category_and_peers(kept, show):
    assert "idle, velocirl" in show("memory")
    shown = show("memory", "--peers")
    assert "idle, velocirl" in shown
    assert "idle, Gymnasium" in shown
    assert "no change of level" in shown


@pytest.mark.parametrize("ascii_only", [False, True])
def test_on_a_terminal_there_is_a_plot_with_marks(kept, monkeypatch, ascii_only):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii" if ascii_only else "utf-8")
    console = Console(file=stream, force_terminal=True, width=90, no_color=True, highlight=False)
    monkeypatch.setattr(command, "make_console", lambda: console)
    command.bench_history(["steps"])
    stream.seek(0)
    lines = stream.read().splitlines()
    assert any(line in ("k steps/s", "M steps/s") for line in lines)
    marks = next(line for line in lines if line.strip() == ("^" if ascii_only else "▲"))
    floor = next(line for line in lines if ("+-" if ascii_only else "└") in line)
    begin = floor.index("+" if ascii_only else "└") + 1
    assert marks.index(marks.strip()) == begin + round(15 / 24 * (len(floor) - begin - 1))
    drawn = "*" if ascii_only else chr(BLANK)
    assert any(letter == drawn or BLANK < ord(letter) < BLANK + 256 for line in lines for letter in line)
    assert all(len(line) <= 90 for line in lines if "│" in line or " |" in line)


def test_json_has_everything(kept, show):
    content = json.loads(show("steps", "--json", "--peers"))
    assert content["file"] == str(kept)
    ours, peer = content["trends"]
    assert (ours["contestant"], peer["contestant"], peer["peer"]) == ("velocirl", "Gymnasium", True)
    assert (ours["unit"], ours["more_is_better"], ours["machine"]) == ("steps/s", True, "A Processor, 2 cores, 24 GiB")
    assert [point["commit"] for point in ours["points"]] == [commit(number) for number in range(24)]
    assert len(ours["points"][0]["samples"]) == 3
    (change,) = ours["changes"]
    assert (change["place"], change["began"], change["before"]) == (14, commit(14), commit(13))
    assert change["ratio"]["low"] < change["ratio"]["median"] < 0.85
    assert len(json.loads(show("steps", "--json", "--last", 3))["trends"][0]["points"]) == 3


def test_other_machines_and_quick_runs_are_apart(kept, show):
    assert "abroad" not in show()
    shown = show("--machine", "all").splitlines()
    assert "Another Processor, 64 cores, 24 GiB, A GPU" in shown
    assert "A Processor, 2 cores, 24 GiB" in shown
    assert [line.split()[1] for line in show("--machine", "another").splitlines()[2:]] == ["abroad"]
    assert "glance" not in show()
    assert "glance" in show("--quick")
    assert "too few runs" in show("abroad", "--machine", "all")


def test_a_picture(kept, show, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "trend.png"
    assert f"picture  {path}" in show("steps", "--png", path)
    assert path.read_bytes().startswith(b"\x89PNG\r\n")
    assert path.stat().st_size > 10_000


def test_without_a_history_one_is_told_how_to_begin(show, tmp_path):
    shown = show()
    assert "there is no history" in shown
    assert "velocirl bench measures, and every run is kept" in shown
    assert not default_path().exists()
    assert json.loads(show("--json"))["trends"] == []
    History.open(tmp_path / "empty.sqlite")
    assert "has no thorough run of this machine yet" in show("--file", tmp_path / "empty.sqlite")


def test_runs_of_others_and_quick_ones_alone_are_named(show, tmp_path):
    path = tmp_path / "others.sqlite"
    history = History.open(path)
    history.add(planted_report(0, machine=ELSEWHERE))
    history.add(planted_report(1, quick=True))
    shown = show("--file", path)
    assert "it has 1 with --quick: velocirl bench history --quick" in shown
    assert "it has runs of Another Processor, 64 cores, 24 GiB, A GPU: velocirl bench history --machine all" in shown


def test_mistakes_are_one_line(kept, refused, tmp_path):
    assert "no benchmark and no category 'step': did you mean 'steps'?" in refused("bench", "history", "step")
    assert "did you mean --machine?" in refused("bench", "history", "--machin", "all")
    assert "--last must be at least 1" in refused("bench", "history", "--last", 0)
    assert "has no machine 'Pentium'" in refused("bench", "history", "--machine", "Pentium")
    assert "there is no directory" in refused("bench", "history", "steps", "--png", tmp_path / "no" / "x.png")
    assert "'more' is one word too many" in refused("bench", "history", "steps", "more")


def test_a_damaged_history_is_one_line_and_stays(kept, refused):
    content = bytearray(kept.read_bytes())
    content[content.index(b"velocirl bench")] ^= 1
    kept.write_bytes(content)
    assert "move it away, and a new one is begun" in refused("bench", "history")
    assert kept.read_bytes() == content


def test_names_with_markup_are_shown_as_they_are(show, tmp_path):
    path = tmp_path / "odd.sqlite"
    odd = replace(planted_result("[red]steps[/]"), category="[bold]x")
    History.open(path).add(planted_report(0, [odd]))
    shown = show("--file", path)
    assert "[red]steps[/]" in shown
    assert "[bold]x" in shown
    assert "[red]steps[/], velocirl" in show("[red]steps[/]", "--file", path)
