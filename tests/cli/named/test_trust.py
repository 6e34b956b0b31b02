"""Code that only a file names: it runs if this user has let these very bytes run before, and it is said."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from velocirl.cli.main import main
from velocirl.cli.named import environment_files
from velocirl.cli.named.environment_files import choose
from velocirl.cli.named.trust import NAMED
from velocirl.engine.disk.files import UnsafePathError
from velocirl.runs.directory import Plan
from velocirl.runs.groups import create_group
from velocirl.runs.metrics import STEP

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")


@pytest.fixture
def changed(my_pole, tmp_path):
    """Change the file, so that it leaves a mark when it runs."""

    def changed():
        marker = tmp_path / "imported"
        my_pole.write_text(f"open({str(marker)!r}, 'w').close()\n{my_pole.read_text()}")
        return marker

    return changed


def test_what_a_file_names_runs_as_it_was_named_before_and_that_is_said(my_pole, capsys):
    choose(f"{my_pole}:MyPole-v0")
    assert capsys.readouterr().err == ""
    assert choose(str(my_pole), named_by="a run").id == "MyPole-v0"
    assert capsys.readouterr().err == f"importing {my_pole}, which a run names\n"
    choose(str(my_pole), named_by="a run", quiet=True)
    assert capsys.readouterr().err == ""


def test_changed_content_is_not_trusted_until_it_is_said(my_pole, changed, capsys):
    choose(str(my_pole))
    marker = changed()
    with pytest.raises(ValueError, match=rf"a run wants {my_pole} imported.*has changed since you let it run.*--trust"):
        choose(str(my_pole), named_by="a run")
    assert not marker.exists()
    choose(str(my_pole), named_by="a run", trust=True)
    assert marker.exists()
    assert choose(str(my_pole), named_by="a run").id == "MyPole-v0"


def test_a_list_of_paths_is_not_believed(my_pole, data_home):
    """As an earlier version wrote it, or as somebody else would."""
    choose(str(my_pole))
    (data_home / NAMED).write_text(f'"{my_pole}"\n{{"code": "{my_pole}"}}\n{{"code": ')
    with pytest.raises(ValueError, match="you have not named before"):
        choose(str(my_pole), named_by="a run")


@pytest.mark.parametrize(("answer", "runs"), [("y", True), ("yes", True), ("", False), ("no", False)])
def test_at_a_terminal_it_is_asked(my_pole, changed, monkeypatch, answer, runs):
    choose(str(my_pole))
    marker = changed()
    ours, theirs = os.openpty()
    with open(theirs, "r+b", buffering=0) as raw:  # noqa: PTH123 - a descriptor, not a path
        monkeypatch.setattr(sys, "stdin", os.fdopen(os.dup(raw.fileno())))
        monkeypatch.setattr(sys, "stderr", os.fdopen(os.dup(raw.fileno()), "w"))
        os.write(ours, f"{answer}\n".encode())
        if runs:
            choose(str(my_pole), named_by="a \x1b[31mrun")
        else:
            with pytest.raises(ValueError, match="--trust"):
                choose(str(my_pole), named_by="a \x1b[31mrun")
        said = ""
        while "[y/N]" not in said:  # the answer's echo may come alone
            said += os.read(ours, 4096).decode()
        sys.stdin.close()
        sys.stderr.close()
    os.close(ours)
    assert r"a \x1b[31mrun wants" in said
    assert "has changed since you let it run. Go on? [y/N]" in said
    assert marker.exists() == runs


def test_what_runs_is_what_was_looked_at(my_pole, changed, monkeypatch):
    """A file that is swapped right after it was trusted is the attack."""
    choose(str(my_pole))
    trust, markers = environment_files.require_trust, []

    def swap(*arguments, **options):
        trust(*arguments, **options)
        markers.append(changed())

    monkeypatch.setattr(environment_files, "require_trust", swap)
    assert choose(str(my_pole), named_by="a run").id == "MyPole-v0"
    assert not markers[0].exists()


def test_bytecode_beside_a_file_does_not_run(my_pole, tmp_path):
    """Python would take it for the file's, as it has the file's size and time."""
    marker = tmp_path / "imported"
    text, status = my_pole.read_text(), my_pole.stat()
    code = compile(f"open({str(marker)!r}, 'w').close()\n{text}", str(my_pole), "exec")
    kept = Path(importlib.util.cache_from_source(my_pole))
    kept.parent.mkdir()
    from importlib._bootstrap_external import _code_to_timestamp_pyc

    kept.write_bytes(_code_to_timestamp_pyc(code, int(status.st_mtime), status.st_size))
    choose(str(my_pole))
    assert not marker.exists()


@needs_root
def test_a_list_of_somebody_else_is_refused(my_pole, data_home):
    choose(str(my_pole))
    os.chown(data_home / NAMED, 12345, 12345)
    for named_by in ("a run", None):
        with pytest.raises(UnsafePathError, match=f"{data_home / NAMED} belongs to user 12345"):
            choose(str(my_pole), named_by=named_by)


def test_a_list_that_others_could_write_is_begun_anew(my_pole, data_home):
    choose(str(my_pole))
    (data_home / NAMED).chmod(0o666)
    with pytest.warns(UserWarning, match="could be written by others"), pytest.raises(ValueError, match="--trust"):
        choose(str(my_pole), named_by="a run")
    choose(str(my_pole))
    assert (data_home / NAMED).stat().st_mode & 0o777 == 0o600


def test_pipes_in_the_place_of_files_do_not_hang(my_pole, data_home, refused, tmp_path):
    data_home.mkdir(parents=True, exist_ok=True)
    os.mkfifo(data_home / NAMED)
    choose(str(my_pole))
    os.mkfifo(tmp_path / "pipe.py")
    assert "is not a plain file" in refused("train", tmp_path / "pipe.py")


def test_a_run_of_a_file_that_was_edited_is_resumed_once_that_is_said(train, my_pole, refused, capsys):
    run = train(environment=str(my_pole), steps=256)
    my_pole.write_text(f"{my_pole.read_text()}\n# another thought\n")
    complaint = refused("resume", run.path, "--total-steps", 512)
    assert f"{run.path} wants {my_pole} imported, which is code that has changed since you let it run" in complaint
    assert "add --trust" in complaint
    assert "has changed" in refused("evaluate", run.path)
    main(["resume", str(run.path), "--total-steps", "512", "--trust", "--json"])
    assert capsys.readouterr().err.splitlines() == [
        f"importing {my_pole}, which {run.path} names",
        f"warning: {my_pole} is not as it was when {run.name} began",
    ]
    assert run.rows()[-1][STEP] == 512
    main(["evaluate", str(run.path), "--episodes", "1"])
    assert f"importing {my_pole}" in capsys.readouterr().err


def test_a_group_asks_before_its_processes_run(my_pole, changed, refused, tmp_path):
    choose(str(my_pole))
    marker = changed()
    plan = Plan(total_steps=100, checkpoint_every=100, environment_file=str(my_pole))
    group = create_group(tmp_path / "group", "MyPole-v0", "ppo", range(2), {}, plan)
    assert f"{group.path} wants {my_pole} imported" in refused("resume", group.path)
    assert not marker.exists()
