"""What a person sees of training, and what it costs."""

import io
import re
import time
from types import SimpleNamespace

import psutil
import pytest
from rich.console import Console
from rich.text import Text
from watched_agent import advance, agent_at

from velocirl.monitor import display as display_module
from velocirl.monitor import watcher as module
from velocirl.monitor.display import Display
from velocirl.monitor.resource_use import ResourceUse
from velocirl.monitor.words import say_count, say_figure, say_seconds


def terminal(width=80):
    return Console(
        file=io.StringIO(), force_terminal=True, width=width, height=40, color_system=None, legacy_windows=False
    )


def shown(console):
    return re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", console.file.getvalue())


def wait_for(console, text):
    """Until another thread has shown it."""
    deadline = time.monotonic() + 10.0
    while text not in shown(console):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def last_frame(console):
    return shown(console)[shown(console).rindex("╭") :]


@pytest.mark.parametrize(
    ("value", "count", "figure"),
    [(950, "950", "950.0"), (12_345, "12.3k", "12,345.0"), (1_234_567, "1.23M", "1.23M"), (999_960, "1M", "999,960.0"),
     (-0.0031, "-0.0031", "-3.1e-03"), (0, "0", "0"), (2.5e9, "2.5B", "2.5B"), (0.25, "0.25", "0.250")],
)  # fmt: skip
def test_numbers_in_few_characters(value, count, figure):
    assert (say_count(value), say_figure(value)) == (count, figure)


def test_times_in_few_characters():
    assert [say_seconds(s) for s in (0.84, 9.96, 42.4, 59.6, 185, 3723)] == [
        "0.8 s",
        "10 s",
        "42 s",
        "1:00",
        "3:05",
        "1:02:03",
    ]


def test_the_panel_shows_progress_figures_curve_and_phases():
    console, agent = terminal(), agent_at()
    display = Display(console)
    display.start(agent)
    for n in range(500):
        advance(
            agent,
            **{
                "rollout/ep_rew_mean": float(n),
                "train/value_loss": 0.5,
                "train/learning_rate": 1e-3,
                "eval/mean_reward": 77.0,
            },
            **{"time/rollout_share": 0.25, "time/update_share": 0.75},
        )
        display.step(agent)
    display.finish(agent)
    frame = last_frame(console)
    for expected in ("CartPole-v1  ppo  seed 7", "50%", "50k of 100k steps", "1.23M/s", "rollout 25%   update 75%"):
        assert expected in frame
    figures = dict(re.findall(r"(return|evaluation|value loss|learning rate) +([\d.e-]+)", frame))
    assert figures == {"return": "499.0", "evaluation": "77.0", "value loss": "0.500", "learning rate": "1.0e-03"}
    assert re.search(r"400 ┤.*[⠁-⣿]", frame)
    assert re.search(r"0\.0 s left|[\d.]+ s left", frame)
    assert max(map(len, frame.splitlines())) <= 80


def test_what_an_environment_reports_is_shown_after_the_length_of_its_episodes():
    metrics = {"train/loss": 0.5, "rollout/ep_len_mean": 9.0, "episode/top_speed": 12.5, "episode/lost": None}
    console, agent = terminal(), agent_at()
    display = Display(console)
    display.start(agent)
    advance(agent, **metrics)
    display.finish(agent)
    figures = re.findall(r"(episode length|top speed|lost|loss) +([\d.]+)", last_frame(console))
    assert figures == [("episode length", "9.000"), ("top speed", "12.5"), ("loss", "0.500")]
    lines = Console(file=io.StringIO(), width=200)
    display = Display(lines)
    display.start(agent)
    display.finish(agent)
    assert "episode length 9.000  top speed 12.5  loss 0.500" in lines.file.getvalue()


def test_what_learns_from_a_memory_shows_its_warm_up_exploration_and_updates():
    console, agent = terminal(), agent_at()
    display = Display(console)
    display.start(agent)
    advance(agent, **{"train/n_updates": 0, "train/loss": None, "time/rollout_share": 1.0})
    display.finish(agent)
    frame = last_frame(console)
    assert "random actions, nothing is learnt yet" in frame
    assert "s left" in frame
    advance(
        agent,
        **{"rollout/exploration_rate": 0.25, "train/n_updates": 12_345, "train/loss": 0.5, "train/action_value": 1.5},
        **{"time/rollout_share": 1.0},
    )
    display.start(agent)
    display.finish(agent)
    frame = last_frame(console)
    assert "random actions" not in frame
    figures = dict(re.findall(r"(exploration|loss|action value|updates) +([\d.k]+)", frame))
    assert figures == {"exploration": "0.250", "loss": "0.500", "action value": "1.500", "updates": "12.3k"}


def test_the_time_left_is_told_by_the_speed_of_the_last_seconds(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])
    console, agent = terminal(), agent_at(total=10_000)
    display = Display(console)
    display.start(agent)
    for second in range(1, 41):  # 100 steps a second for 20 seconds, then a tenth of that
        now[0] += 1.0 if second <= 20 else 10.0
        advance(agent, **{"time/fps": 50.0})
        display.step(agent)
        if second == 20:
            assert "1:20 left" in last_frame(console)
    display.close()
    assert "10:00 left" in last_frame(console)


PARTS = {
    "time/update_share": 0.75, "time/rollout_share": 0.25, "time/rollout/environment_share": 0.05,
    "time/rollout/policy_share": 0.2,
}  # fmt: skip


class Steady:
    """ResourceUse that stand still, and a note of what was asked for."""

    def __init__(self, **given):
        self.resources, self.watching, self.closed = ResourceUse(**given), False, False

    def read(self):
        return self.resources

    def watch_gpu(self):
        self.watching = True

    def close(self):
        self.closed = True


def test_the_panel_shows_the_machine_the_learner_and_the_parts_of_phases():
    resources = Steady(cpu_percent=180.4, memory_bytes=350_000_000, gpu_percent=55.0, gpu_memory_bytes=2 * 10**9)
    console, agent = terminal(100), agent_at()
    agent.config.device = "cuda"
    agent._learner = SimpleNamespace(gauges=lambda: {"queue/length": 1, "learner/waiting_seconds": 2.5, "drops": 0})
    display = Display(console, resources=resources)
    display.start(agent)
    assert resources.watching
    advance(agent, **{"rollout/ep_rew_mean": 1.0}, **PARTS)
    display.finish(agent)
    lines = [line.strip("│ ") for line in last_frame(console).splitlines()]
    place = lines.index("rollout 25% (policy 20%, environment 5%)   update 75%")
    said = " ".join(" ".join(lines[place + 1 : -1]).split())
    assert said == "CPU 180% memory 350 MB GPU 55% GPU memory 2 GB queue length 1 learner waiting 2.5 s drops 0"
    assert resources.closed


def test_the_panel_reads_the_real_resources_by_itself():
    console, agent = terminal(), agent_at()
    display = Display(console)
    display.start(agent)
    display.close()
    ((amount, unit),) = re.findall(r"CPU \d+%   memory ([\d.]+) ([MG])B", last_frame(console))
    assert float(amount) * {"M": 1e6, "G": 1e9}[unit] == pytest.approx(psutil.Process().memory_info().rss, rel=0.2)
    assert "GPU" not in last_frame(console)


@pytest.mark.parametrize("width", [40, 64, 80, 200])
def test_the_panel_fits_any_terminal(width):
    console, agent = terminal(width), agent_at()
    display = Display(console)
    display.start(agent)
    agent._learner = SimpleNamespace(gauges=lambda: {f"queue/{n}": n for n in range(9)})
    advance(agent, **{"rollout/ep_rew_mean": 1.0, "train/value_loss": 0.5}, **PARTS)
    display.finish(agent)
    frame = last_frame(console)
    assert max(map(len, frame.splitlines())) <= width
    for said in ("policy", "CPU", "queue 8"):
        assert said in " ".join(frame.replace("│", " ").split())


def test_a_refresh_comes_by_the_clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])
    console, agent = terminal(), agent_at()
    display = Display(console)
    display.start(agent)
    frames = []
    for _ in range(100):
        now[0] += 0.01
        advance(agent, **{"rollout/ep_rew_mean": 1.0})
        display.step(agent)
        frames.append(shown(console).count("╭"))
    assert frames[-1] - 1 == pytest.approx(1.0 / 0.125, abs=1)
    display.close()


def test_elsewhere_there_is_a_line_every_two_seconds_and_a_last_one(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])
    console, agent = Console(file=io.StringIO(), width=200), agent_at()
    display = Display(console, lambda agent, seconds: [Text(f"over at {agent.steps} after {seconds:.1f}")])
    display.start(agent)
    for _ in range(40):
        now[0] += 0.125
        advance(agent, **{"rollout/ep_rew_mean": 12.5})
        display.step(agent)
    display.finish(agent)
    lines = console.file.getvalue().splitlines()
    assert [line.split()[0] for line in lines] == ["1,600", "3,200", "4,000", "over"]
    assert lines[0].split() == ["1,600", "steps", "2%", "1.23M/s", "return", "12.5"]
    assert lines[-1] == "over at 4000 after 5.0"


def test_it_is_said_that_it_compiles_and_how_long_that_took(monkeypatch):
    files = [set(), {"new"}]
    monkeypatch.setattr(module, "cached_files", lambda: files.pop(0))
    console, agent = terminal(), agent_at()
    agent.device_reason = "cpu: small"
    display = Display(console)
    display.prepare(agent)
    wait_for(console, "compiling for this processor, once")
    assert "╭" not in shown(console)
    display.start(agent)
    display.end()
    assert re.search(r"on cpu: small.*compiled for this processor in 0\.\d s, once", shown(console), re.DOTALL)
    files += [set(), set()]
    display.prepare(agent)
    display.start(agent)
    display.end()
    assert shown(console).count("compiled for") == 1  # what is only loaded is not worth a line


def test_elsewhere_it_is_said_in_a_line_that_it_compiles_once_that_takes_long(monkeypatch):
    monkeypatch.setattr(display_module, "LINE_EVERY", 0.01)
    console, agent = Console(file=io.StringIO(), width=200), agent_at()
    display = Display(console)
    display.prepare(agent)
    wait_for(console, "compiling for this processor, once ...")
    display.start(agent)
    display.end()
    monkeypatch.setattr(display_module, "LINE_EVERY", 60.0)
    display.prepare(agent)
    display.start(agent)
    display.end()
    assert shown(console).count("compiling") == 1


def test_what_is_over_soon_is_not_shown_and_what_takes_longer_is(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])
    console, agent = terminal(), agent_at(total=4000)
    display = Display(console, lambda agent, seconds: [Text("over")], after=2.0)
    display.prepare(agent)
    display.start(agent)
    seen = []
    for _ in range(40):
        now[0] += 0.1
        advance(agent, **{"rollout/ep_rew_mean": 12.5})
        display.step(agent)
        seen.append("╭" in shown(console))
    assert seen.index(True) == pytest.approx(20, abs=1)
    assert all(seen[21:])
    display.finish(agent)
    assert shown(console).rstrip().endswith("over")
    brief, agent = terminal(), agent_at(total=100)
    display = Display(brief, lambda agent, seconds: [Text("over")], after=2.0)
    display.prepare(agent)
    display.start(agent)
    advance(agent)
    display.step(agent)
    display.finish(agent)
    assert brief.file.getvalue() == ""


def test_compiling_that_takes_long_is_said_though_nothing_else_is_yet():
    console, agent = terminal(), agent_at()
    display = Display(console, after=0.05)
    display.prepare(agent)
    wait_for(console, "compiling for this processor, once")
    display.end()  # as where compiling failed
    written = len(console.file.getvalue())
    time.sleep(0.2)
    assert len(console.file.getvalue()) == written


def test_a_step_that_is_not_due_costs_less_than_5_microseconds():
    agent = agent_at()
    display = Display(Console(file=io.StringIO()))
    display.start(agent)
    agent.metrics = {"rollout/ep_rew_mean": 1.0}
    taken = []
    for _ in range(200):
        began = time.perf_counter()
        for _ in range(50):
            display.step(agent)
        taken.append((time.perf_counter() - began) / 50)
    assert min(taken) < 5e-6


def test_the_curve_of_a_long_run_stays_short_and_whole():
    agent = agent_at(total=10**9)
    display = Display(Console(file=io.StringIO()))
    display.start(agent)
    for n in range(20_000):
        advance(agent, **{"rollout/ep_rew_mean": float(n)})
        display.step(agent)
    assert 256 < len(display.steps) <= module.MOST_POINTS
    assert display.steps[0] < 100_000
    assert display.steps[-1] > 1_900_000
    assert [steps / 100 - 1 for steps in display.steps] == display.returns
    assert len(display.curve(60, 8)) == 8


def test_an_error_gives_the_terminal_back():
    console, agent = terminal(), agent_at()
    display = Display(console)
    display.start(agent)
    display.fail(agent, ValueError())
    display.close()
    assert console.file.getvalue().rstrip().endswith("\x1b[?25h")  # the cursor is back
