"""`velocirl monitor`: a run as another terminal sees it, whatever became of it."""

import io
import json
import re
import signal
import subprocess
import time

import msgspec
import psutil
import pytest
from rich.console import Console

from velocirl import PPO
from velocirl.cli.main import main
from velocirl.cli.monitor import command as module
from velocirl.cli.monitor.command import as_json, look, watch
from velocirl.cli.monitor.picture import show, show_lines, show_live
from velocirl.monitor.heartbeat import Heartbeat
from velocirl.monitor.heartbeat_file import NAME, HeartbeatState, Sample, read_heartbeat, write_heartbeat
from velocirl.monitor.resource_use import ResourceUse
from velocirl.runs.directory import Plan, create_run, open_run
from velocirl.training.persistence import ALGORITHMS

PLAN = Plan(total_steps=1_000_000, checkpoint_every=100_000)
STATE = HeartbeatState(
    time=0.0, pid=12, status="running", steps=450_000, start=0, total=1_000_000, steps_per_second=50_000.0,
    mean_return=123.4,
    phases={"update": 0.75, "rollout": 0.25, "rollout/policy": 0.2, "update/forward": 0.5},
    resources=ResourceUse(cpu_percent=180.4, memory_bytes=350_000_000, gpu_percent=55.0, gpu_memory_bytes=2 * 10**9),
    gauges={"queue/length": 1.0, "drops": 12.0, "waiting_seconds": 2.5},
    history=[Sample(1000.0 * n, float(n), 10**6 * n) for n in range(100)],
)  # fmt: skip


def state(**changes):
    return msgspec.structs.replace(STATE, **{"time": time.time(), **changes})


@pytest.fixture
def run(tmp_path):
    """A run that goes on, as far as anybody can see."""
    run = create_run(tmp_path / "watched", "CartPole-v1", "ppo", {}, 7, plan=PLAN)
    with run.hold():
        yield run


def terminal(width=80, **options):
    return Console(
        file=io.StringIO(), force_terminal=True, width=width, height=40, color_system=None, legacy_windows=False,
        highlight=False, **options,
    )  # fmt: skip


def shown(console):
    return re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", console.file.getvalue())


def wait_for(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


@pytest.fixture
def training(command, small, tmp_path):
    """A training that really goes on, in a process of its own."""
    where = tmp_path / "live"
    arguments = ["train", "CartPole-v1", *small, "--total-steps", "10B", "--run-dir", str(where), "--quiet"]
    process = subprocess.Popen([*command, *arguments], stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: (where / NAME).exists() and read_heartbeat(where).steps > 0)
        yield where, process
    finally:
        process.kill()
        process.communicate()


def test_a_training_is_watched_until_it_is_killed(training, capsys):
    where, process = training
    main(["monitor", str(where), "--once", "--json"])
    first = json.loads(capsys.readouterr().out)
    assert (first["status"], first["pid"], first["total_steps"]) == ("running", process.pid, 10**10)
    assert (first["run"], first["environment"], first["algorithm"], first["seed"]) == ("live", "CartPole-v1", "ppo", 3)
    assert first["resources"]["memory_bytes"] == pytest.approx(psutil.Process(process.pid).memory_info().rss, rel=0.2)
    assert first["resources"]["cpu_percent"] > 0.0
    assert sum(share for path, share in first["phases"].items() if "/" not in path) == pytest.approx(1.0, abs=0.01)
    assert first["steps_per_second"] > 0.0
    assert first["seconds_left"] == pytest.approx((10**10 - first["steps"]) / first["steps_per_second"], rel=0.01)
    wait_for(lambda: read_heartbeat(where).steps > first["steps"])
    main(["monitor", "--once", "--json"])  # the newest that is running
    later = json.loads(capsys.readouterr().out)
    assert later["path"] == str(where)
    assert later["steps"] > first["steps"]
    sights = watch(where, 0.1)
    assert next(sights).status == "running"
    process.kill()
    process.wait()
    last = as_json(list(sights)[-1])
    assert (last["status"], last["seconds_left"]) == ("interrupted", None)
    main(["monitor", str(where), "--once"])
    said = capsys.readouterr().out
    assert re.search(r"status +interrupted", said)
    assert "live was interrupted after " in said
    assert "go on with `velocirl resume live`" in said


def test_a_run_that_compiles_says_so(run, capsys):
    write_heartbeat(run.path, state(compiling=True, steps=0, time=time.time() - 12.0, phases={}, mean_return=None))
    main(["monitor", str(run.path), "--once", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert (found["status"], found["compiling"], found["steps"]) == ("running", True, 0)
    console = terminal()
    show(console, look(run.path))
    assert "compiling, for 12 s so far: the first figures come after that" in shown(console)
    lines = Console(file=io.StringIO(), width=200)
    show_lines(lines, [look(run.path)])
    assert lines.file.getvalue().startswith("compiling, for 12 s so far")
    write_heartbeat(run.path, state())
    assert not look(run.path).compiling


def test_a_training_is_seen_to_compile_before_it_begins(run):
    seen = []

    class Agent(PPO):
        def prepare(self):
            seen.append(look(run.path).compiling)
            super().prepare()

    try:
        agent = Agent("Counter-v0", num_envs=2, horizon=4, hidden=(4,), seed=0, device="python")
        agent.learn(16, [Heartbeat(run), lambda agent: seen.append(look(run.path).compiling)])
    finally:
        ALGORITHMS[PPO.name] = PPO
    assert seen == [True, False, False]


def test_a_training_that_is_stopped_says_so_in_lines(training):
    where, process = training
    sights, console = watch(where, 0.1), Console(file=io.StringIO(), width=200)
    show_lines(console, [next(sights)])
    process.terminate()
    assert process.wait(30) == 143
    show_lines(console, sights)
    first, *_, last = console.file.getvalue().splitlines()
    assert re.match(r" *[\d,]+ steps +0%  [\d.kM]+/s  .*left  return [\d.]+  CPU \d+%  memory \d+ MB", first)
    steps = open_run(where).rows()[-1]["time/total_timesteps"]
    ended = re.fullmatch(
        r"live has stopped after ([\d,]+) steps; return [\d.]+: go on with `velocirl resume live`", last
    )
    assert int(ended[1].replace(",", "")) >= steps
    assert read_heartbeat(where).status == "stopped"


def test_a_run_that_has_finished(train, capsys):
    run = train(steps=1280)
    main(["monitor", str(run.path)])
    *_, last = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"run has finished after 1,280 steps; return [\d.]+", last)
    main(["monitor", "run", "--json"])
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line).items() >= {"status": "finished", "steps": 1280, "progress": 1.0}.items()


def test_the_whole_picture_in_a_terminal(run):
    write_heartbeat(run.path, state())
    console = terminal(100)
    show(console, look(run.path))
    picture = shown(console)
    assert max(map(len, picture.splitlines())) == 100
    for expected in (
        "CartPole-v1  ppo  seed 7  watched", "45%", "450k of 1M steps", "50k/s", "11 s left", "GPU memory",
        "queue length 1   drops 12   waiting 2.5 s",
    ):  # fmt: skip
        assert expected in picture
    named = r"│ (status|return|steps/s|CPU|memory|GPU memory|GPU) +([\w.%]+(?: .B)?) "
    figures = dict(re.findall(named, picture))
    assert figures == {
        "status": "running", "return": "123.4", "steps/s": "50k", "CPU": "180%", "memory": "350 MB", "GPU": "55%",
        "GPU memory": "2 GB",
    }  # fmt: skip
    assert re.search(r"steps/s +50k +[▁▂▃▄▅▆▇█]{40}", picture)
    phases = re.findall(r"│ ( *)(\w+) +([\d.]+)%  █+", picture)
    assert phases == [
        ("", "rollout", "25.0"), ("  ", "policy", "20.0"), ("", "update", "75.0"), ("  ", "forward", "50.0"),
    ]  # fmt: skip


@pytest.mark.parametrize("width", [30, 40, 64, 80, 200])
def test_the_picture_fits_any_terminal(width, run):
    write_heartbeat(run.path, state(gauges={f"queue/{n}": n for n in range(64)}))
    console = terminal(width)
    show(console, look(run.path))
    assert max(map(len, shown(console).splitlines())) <= width
    assert "queue 63" in " ".join(shown(console).replace("│", " ").split())


def test_the_panel_moves_and_says_how_it_ended(run, monkeypatch):
    monkeypatch.setattr(module.time, "sleep", lambda seconds: None)
    write_heartbeat(run.path, state())
    sights = watch(run.path, 1.0)

    def going_on():
        yield next(sights)
        write_heartbeat(run.path, state(steps=900_000))
        yield next(sights)
        run.set_status("finished")
        write_heartbeat(run.path, state(steps=1_000_000, status="finished"))
        yield from sights

    console = terminal()
    show_live(console, going_on())
    frames = shown(console).split("╭")[1:]
    steps = [re.search(r"([\d.]+\w) of 1M", frame)[1] for frame in frames]
    assert list(dict.fromkeys(steps)) == ["450k", "900k", "1M"]
    assert shown(console).splitlines()[-1].strip() == "watched has finished after 1,000,000 steps; return 123.4"
    assert "\x1b[?25h" in console.file.getvalue()  # the cursor is back


def test_the_last_heartbeat_is_waited_for(run, monkeypatch):
    write_heartbeat(run.path, state())
    run.set_status("finished")
    slept = []

    def sleep(seconds):
        slept.append(seconds)
        write_heartbeat(run.path, state(steps=1_000_000, status="finished"))

    monkeypatch.setattr(module.time, "sleep", sleep)
    assert [sight.heartbeat.steps for sight in watch(run.path, 1.0)] == [1_000_000]
    assert slept == [module.ENDING]


def test_a_heartbeat_that_is_old_is_said_to_be(run, capsys):
    write_heartbeat(run.path, state(time=time.time() - 300.0))
    main(["monitor", str(run.path), "--once"])
    assert "last heard of 5:0" in capsys.readouterr().out


def test_before_the_first_heartbeat_there_is_none_yet(run, capsys):
    main(["monitor", "--once"])
    assert "watched is running and has no heartbeat yet" in capsys.readouterr().out
    main(["monitor", "--once", "--json"])
    said = json.loads(capsys.readouterr().out)
    assert (said["status"], said["steps"], said["total_steps"], said["resources"]) == ("running", None, 1_000_000, None)
    console = terminal(40)
    show(console, look(run.path))
    assert "has no heartbeat yet" in " ".join(shown(console).replace("│", " ").split())


def test_a_run_of_an_older_version_has_no_heartbeat(tmp_path, capsys):
    create_run(tmp_path / "old", "CartPole-v1", "ppo", {}, 7, plan=PLAN).set_status("finished")
    main(["monitor", str(tmp_path / "old")])
    assert capsys.readouterr().out == "old has finished (it has no heartbeat)\n"


@pytest.mark.parametrize("arguments", [[], ["--once"], ["--json"]])
def test_a_damaged_heartbeat_is_one_clear_error_and_stays_as_it_was(arguments, run, refused):
    (run.path / NAME).write_text('{"format": 1, "\x1b[2J\\u001b[2J": 3}')
    before = (run.path / NAME).read_bytes()
    message = refused("monitor", run.path, *arguments)
    assert f"{run.path / NAME} is no heartbeat of a run: " in message
    assert message.rstrip("\n").isprintable()
    assert (run.path / NAME).read_bytes() == before


def test_names_that_would_steer_a_terminal_are_spelled_out(tmp_path, capsys):
    evil = "\x1b]0;gone\x07\x1b[2J"
    run = create_run(tmp_path / f"run{evil}", f"Cart{evil}", f"ppo{evil}", {}, 7, plan=PLAN)
    with run.hold():
        write_heartbeat(run.path, state(phases={f"rollout{evil}": 0.5}, gauges={f"drops{evil}": 3.0}))
        sight = look(run.path)
        for console in (terminal(200), Console(file=io.StringIO(), width=200)):
            show(console, sight)
            show_lines(console, [sight])
            said = shown(console)
            assert all(line.isprintable() for line in said.splitlines())
            for name in ("Cart", "ppo", "rollout", "drops"):
                assert name + r"\x1b]0;gone\x07\x1b[2J" in said
    show_lines(console, [look(run.path)])  # interrupted by now
    assert r"run\x1b]0;gone\x07\x1b[2J was interrupted" in console.file.getvalue()
    main(["monitor", str(run.path), "--once", "--json"])
    assert capsys.readouterr().out.rstrip("\n").isprintable()


def test_plain_characters_where_there_are_no_others(run):
    write_heartbeat(run.path, state())
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict")
    show(Console(file=file, width=100), look(run.path))
    file.flush()
    assert b"####" in file.buffer.getvalue()


def test_when_nothing_runs_it_says_so(tmp_path, refused):
    assert "no run is going on: velocirl runs lists those there are" in refused("monitor")
    create_run(tmp_path / "killed", "CartPole-v1", "ppo", {}, 7, plan=PLAN)
    assert "no run is going on" in refused("monitor")


def test_mistakes(run, refused):
    assert "there is no run 'watchet': did you mean 'watched'?" in refused("monitor", "watchet")
    for interval in ("0", "nan", "1e9"):
        assert "--interval must be from 0.1 to 3600 seconds" in refused("monitor", "--interval", interval)
    assert "must be a number" in refused("monitor", "--interval", "soon")
    assert "there is no option --jsn: did you mean --json?" in refused("monitor", "--jsn")
    (run.path / "run.json").write_text("{}")
    assert "does not describe a run" in refused("monitor", run.path)


def test_an_interrupt_ends_it_without_a_word(run, command):
    write_heartbeat(run.path, state())
    with subprocess.Popen(
        [*command, "monitor", "watched", "--interval", "0.1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as watcher:
        assert "450,000 steps" in watcher.stdout.readline()
        watcher.send_signal(signal.SIGINT)
        _, complaints = watcher.communicate(timeout=30)
    assert (watcher.returncode, complaints) == (130, "")
