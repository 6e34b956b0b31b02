"""Files that somebody has sent: what they say is shown and never obeyed, and what is no file hangs nobody."""

import io
import json
import os
import signal
from contextlib import suppress

import pytest
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from velocirl.bench.reading import DamagedReportError, read_report
from velocirl.cli.main import main
from velocirl.engine.disk.directories import data_directory
from velocirl.engine.disk.files import NotPlainFileError
from velocirl.monitor.console import ShowingConsole
from velocirl.monitor.heartbeat_file import NAME as HEARTBEAT
from velocirl.monitor.heartbeat_file import HeartbeatState, write_heartbeat
from velocirl.monitor.resource_use import ResourceUse
from velocirl.runs.directory import INDEX, DamagedRunError, Plan, create_run, list_runs, open_run
from velocirl.runs.groups import create_group, open_group
from velocirl.runs.metrics import STEP, DamagedMetricsError, MetricsLog, read_rows

TITLE = "\x1b]0;mine\x07\x9b2J"  # sets a terminal's title, and clears it
SHOWN = r"\x1b]0;mine\x07\x9b2J"
PLAN = Plan(total_steps=5000, checkpoint_every=500)


@pytest.fixture(autouse=True)
def _patience():
    """What waits for a pipe would wait for ever."""

    def give_up(*_):
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("put", [
    lambda text: text, Text, Panel, lambda text: Panel("", title=text), lambda text: Text.assemble((text, "bold")),
])  # fmt: skip
def test_a_terminal_is_shown_what_it_would_obey(put):
    printed = io.StringIO()
    console = ShowingConsole(file=printed, force_terminal=True, width=100, color_system="standard", highlight=False)
    table = Table("name")
    table.add_row(put(f"name {TITLE}"))
    console.print(table)
    console.print(put(f"text {TITLE}\nsecond line"), style="red", markup=False)
    said = printed.getvalue()
    assert "\x07" not in said
    assert "\x9b" not in said
    assert "\x1b]" not in said
    assert said.count(r"\x1b]0;") == 2
    assert "\x1b[" in said  # its own commands stay


@pytest.fixture
def hostile(tmp_path):
    """A run whose every text is more than a text."""
    run = create_run(tmp_path / f"run [red]{TITLE}", f"Cart[/bold]{TITLE}\nerror: all is lost", f"ppo{TITLE}", {}, 3,
                     plan=PLAN)  # fmt: skip
    with run.metrics() as log:
        log.append({STEP: 100, f"train/{TITLE}": 1.0, "rollout/ep_rew_mean": 3.0})
    figures = {f"rollout{TITLE}": 0.5, f"[bold]{TITLE}": 0.5}
    state = HeartbeatState(
        time=1.0, pid=1, status="stopped", steps=1, start=0, total=9, steps_per_second=1.0, mean_return=None,
        phases=figures, resources=ResourceUse(cpu_percent=1.0, memory_bytes=1), gauges=figures, history=[],
    )  # fmt: skip
    write_heartbeat(run.path, state)
    return run


@pytest.mark.parametrize("command", [["runs"], ["monitor", "--once"], ["evaluate"], ["resume"], ["table"]])
def test_what_a_run_says_of_itself_is_shown_and_not_obeyed(hostile, capsys, command):
    where = [] if command == ["runs"] else [str(hostile.path)]
    with suppress(SystemExit):  # it has no checkpoint
        main([*command, *where])
    said = "".join(capsys.readouterr())
    assert SHOWN in said
    assert all(one.isprintable() for one in said.splitlines())
    assert "\nerror: all" not in said
    assert "[red]" in said or "[/bold]" in said  # which rich would take for its own


def test_a_damaged_run_is_quoted_and_not_obeyed(hostile, capsys):
    document = json.loads((hostile.path / "run.json").read_text())
    (hostile.path / "run.json").write_text(json.dumps({**document, "status": f"[red]{TITLE}\nerror: lost"}))
    main(["runs"])
    said = capsys.readouterr().out
    assert "damaged" in said
    assert all(one.isprintable() for one in said.splitlines())
    assert "\nerror" not in said


def piped(path):
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def test_pipes_in_the_place_of_a_runs_files_hang_nobody(tmp_path, capsys, refused):
    run = create_run(tmp_path / "run", "CartPole-v1", "ppo", {}, 3, plan=PLAN)
    piped(run.metrics_path)
    with pytest.raises(DamagedMetricsError, match="is not a plain file"):
        read_rows(run.metrics_path)
    with pytest.raises(OSError, match="is not a plain file"):
        MetricsLog(run.metrics_path)
    main(["runs"])
    assert "is not a plain file" in capsys.readouterr().out
    piped(run.path / HEARTBEAT)
    assert "is not a plain file" in refused("monitor", run.path, "--once")
    piped(run.path / "run.json")
    assert "is not a run" in refused("resume", run.path)
    group = create_group(tmp_path / "group", "CartPole-v1", "ppo", range(2), {}, PLAN)
    piped(group.path / "summary.json")
    assert open_group(group.path).summary() is None
    piped(group.path / "group.json")
    with pytest.raises(DamagedRunError, match="is not a plain file"):
        open_group(group.path)


def test_pipes_in_the_place_of_other_files_hang_nobody(tmp_path, refused):
    create_run(tmp_path / "run", "CartPole-v1", "ppo", {}, 3)
    piped(data_directory() / INDEX)
    assert "is not a plain file" in refused("runs")
    (data_directory() / INDEX).unlink()
    piped(tmp_path / "pipe")
    piped(tmp_path / "pipe.json")
    assert "is not a plain file" in refused("train", "--config", tmp_path / "pipe")
    assert "there is no baseline" in refused("bench", "--compare", tmp_path / "pipe.json", "--no-history")
    with pytest.raises(NotPlainFileError):
        read_report(tmp_path / "pipe.json")
    assert "is not a plain file" in refused("bench", "gae", "--markdown", tmp_path / "pipe", "--no-history")


DEEP = "[" * 100 + "]" * 100


def test_what_is_nested_deeper_than_any_document_is_refused(tmp_path, refused):
    run = create_run(tmp_path / "run", "CartPole-v1", "ppo", {}, 3, plan=PLAN)
    document = (run.path / "run.json").read_text()
    (run.path / "run.json").write_text(document.replace('"config": {}', f'"config": {{"deep": {DEEP}}}'))
    with pytest.raises(DamagedRunError, match="nested deeper"):
        open_run(run.path)
    group = create_group(tmp_path / "group", "CartPole-v1", "ppo", range(2), {}, PLAN)
    (group.path / "group.json").write_text(DEEP)
    with pytest.raises(DamagedRunError, match="nested deeper"):
        open_group(group.path)
    (tmp_path / "report.json").write_text(f'{{"format": {DEEP}}}')
    with pytest.raises(DamagedReportError, match="nested deeper"):
        read_report(tmp_path / "report.json")
    (data_directory() / INDEX).write_text(f'{DEEP}\n{{"path": "/a", "path": "{run.path}"}}\n')
    assert list_runs() == []
    (tmp_path / "deep.toml").write_text(f"environment = {'[' * 5000}")
    assert "is not TOML" in refused("train", "--config", tmp_path / "deep.toml")


def test_a_document_too_large_for_any_is_not_read(tmp_path):
    run = create_run(tmp_path / "run", "CartPole-v1", "ppo", {}, 3, plan=PLAN)
    os.truncate(run.path / "run.json", 2**40)  # a hole: it takes no room on the disk
    with pytest.raises(DamagedRunError, match="more than 67108864 bytes"):
        open_run(run.path)
    run.metrics_path.touch()
    os.truncate(run.metrics_path, 2**40)
    with pytest.raises(DamagedMetricsError, match="more than 2147483648 bytes"):
        read_rows(run.metrics_path)
