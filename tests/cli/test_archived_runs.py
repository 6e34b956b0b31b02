"""Runs that came as an archive: links and pipes in the place of their files lead nowhere and hang nobody."""

import os
import shutil
import signal
import stat
import warnings

import pytest

from velocirl.cli.main import main
from velocirl.monitor.heartbeat_file import NAME as HEARTBEAT
from velocirl.runs.config_file import CONFIG, write_config
from velocirl.runs.directory import CHECKPOINTS, CURVE, DESCRIPTION, EVENTS, METRICS, Plan, create_run, open_run
from velocirl.runs.groups import create_group
from velocirl.runs.state_file import DamagedStateError, read_state

PRECIOUS = b"precious\n"


@pytest.fixture(autouse=True)
def _patience():
    """Give up where a pipe is waited for."""

    def give_up(*_):
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def no_pictures():
    """Pictures and events are drawn, unlike in other tests."""


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    return tmp_path_factory.mktemp("archive") / "archived"


@pytest.fixture
def run(train, archive, tmp_path):
    """A run that can go on: a copy of one that was trained once."""
    if not archive.exists():
        trained = train("--total-steps", "256", "--checkpoint-every", "128", name="trained", steps=None)
        shutil.copytree(trained.path, archive)
    return open_run(shutil.copytree(archive, tmp_path / "archived"))


def resume(run):
    """How `velocirl resume` ends, and what it says."""
    try:
        main(["resume", str(run.path), "--total-steps", "512", "--quiet"])
    except SystemExit as end:
        return end.code
    return 0


@pytest.mark.parametrize(
    "name", [METRICS, DESCRIPTION, CONFIG, CURVE, HEARTBEAT, ".heartbeat.new", "checkpoints/best.safetensors"]
)
def test_links_in_the_place_of_files_are_not_written_through(run, tmp_path, capsys, name):
    target = tmp_path / "precious"
    target.write_bytes(PRECIOUS)
    place = run.path / name
    place.unlink(missing_ok=True)
    place.symlink_to(target)
    code = resume(run)
    assert target.read_bytes() == PRECIOUS
    refused = name in (METRICS, DESCRIPTION)  # which are read first
    assert (code != 0) == refused
    if refused:
        assert f"{place}" in (said := capsys.readouterr().err)
        assert "is not a plain file but a symbolic link" in said
        assert place.is_symlink()
    else:
        assert not place.is_symlink()
        assert open_run(run.path).checkpoints().latest().step == 512


@pytest.mark.parametrize("name", [METRICS, CONFIG, CURVE])
def test_links_to_nothing_make_no_file(run, tmp_path, name):
    place = run.path / name
    place.unlink()
    place.symlink_to(tmp_path / "made")
    resume(run)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("name", [CHECKPOINTS, "checkpoints/memory", EVENTS])
def test_linked_directories_lose_nothing(run, tmp_path, capsys, name):
    outside = tmp_path / "outside"
    shutil.copytree(run.path / CHECKPOINTS, outside)
    (outside / ".unfinished").touch()
    (outside / f"{0:015d}_{9:015d}_{'0' * 64}.rows").touch()
    (outside / ".x.unfinished").touch()
    before = sorted(one.name for one in outside.iterdir())
    place = run.path / name
    shutil.rmtree(place, ignore_errors=True)
    place.symlink_to(outside)
    code = resume(run)
    assert sorted(one.name for one in outside.iterdir()) == before
    assert code == (1 if name == "checkpoints/memory" else 2)
    assert f"{place} is not a directory but a symbolic link" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["evaluate", "resume"])
@pytest.mark.parametrize(
    "kind", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), lambda path: path.symlink_to(path)]
)
def test_checkpoints_that_are_no_files_are_passed_over(run, capsys, command, kind):
    *_, newest = run.checkpoints().steps().values()
    newest.unlink()
    kind(newest)
    (run.path / CHECKPOINTS / "best.safetensors").unlink(missing_ok=True)
    more = ["--latest", "--episodes", "1"] if command == "evaluate" else ["--total-steps", "512", "--quiet"]
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        main([command, str(run.path), *more])
    said = capsys.readouterr().err
    assert f"{newest} is not a plain file" in said
    assert f"set aside as {newest.name}.damaged" in said
    assert not stat.S_ISREG(newest.with_name(f"{newest.name}.damaged").lstat().st_mode)


def test_a_best_model_that_is_a_pipe_is_refused_at_once(run, refused):
    best = run.path / CHECKPOINTS / "best.safetensors"
    best.unlink(missing_ok=True)
    os.mkfifo(best)
    assert f"{best} is not a plain file" in refused("evaluate", run.path, "--best")


def test_a_model_that_is_a_pipe_is_refused_at_once(tmp_path, refused):
    os.mkfifo(tmp_path / "model.safetensors")
    assert "there is no run" in refused("evaluate", tmp_path / "model.safetensors")
    with pytest.raises(DamagedStateError, match="is not a plain file"):
        read_state(tmp_path / "model.safetensors")


def test_a_seed_that_is_a_link_to_another_run_is_not_gone_on_with(run, tmp_path, refused, capsys):
    where = tmp_path / "group"
    plan = Plan(total_steps=256, checkpoint_every=128)
    group = create_group(where, "CartPole-v1", "ppo", range(2), run.description.config, plan)
    write_config(group, "CartPole-v1")
    create_run(group.run_path(0), "CartPole-v1", "ppo", {}, 0, plan=plan)  # by which the group is listed
    seed = where / "seed-1"
    seed.symlink_to(run.path)
    before = run.metrics_path.read_bytes()
    for name in (where, seed):
        said = refused("resume", name, "--total-steps", "512")
        assert f"{seed} is not a directory but a symbolic link" in said
    assert run.metrics_path.read_bytes() == before
    main(["runs"])
    assert "is not a directory but a symbolic link" in capsys.readouterr().out
