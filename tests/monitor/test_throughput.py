"""How fast updates come, who waits for whom, and what is said of it, against hand computations."""

import pytest

from velocirl import DQN
from velocirl.monitor import advice
from velocirl.monitor.advice import advise
from velocirl.monitor.gauges import gauges_of, learnt_figures
from velocirl.monitor.resource_use import ResourceUse
from velocirl.monitor.throughput import Throughput

WAITS = "learner/waiting_seconds", "collector/waiting_seconds"


def test_rates_are_those_since_the_report_before():
    seen = Throughput()
    assert seen.figures(2.0, 500, dict(zip(WAITS, (0.5, 1.0), strict=True))) == {}
    assert seen.figures(4.0, 900, dict(zip(WAITS, (0.75, 2.9), strict=True))) == {
        "time/batches_per_second": 200.0,
        "time/epoch_seconds": 5.0,
        "time/learner_waiting": 0.125,
        "time/collector_waiting": 0.95,
    }
    assert seen.figures(5.0, 900, {}) == {"time/batches_per_second": 0.0, "time/epoch_seconds": None}


def test_another_call_of_learn_counts_from_its_own_beginning():
    seen = Throughput()
    seen.figures(10.0, 100, {})
    assert seen.figures(0.5, 150, {})["time/batches_per_second"] == 100.0


GPU = {"device/peak_bytes": 1e9}
LEARNER, COLLECTOR = "learner/waiting_share", "collector/waiting_share"


@pytest.mark.parametrize(("gauges", "phases", "said"), [
    ({LEARNER: 0.34, COLLECTOR: 0.0}, {}, "updates wait for steps 34% of the time: step faster"),
    ({LEARNER: 0.01, COLLECTOR: 0.6}, {}, "steps wait for updates 60% of the time: make updates cheaper"),
    ({LEARNER: 0.01, COLLECTOR: 0.25}, {}, "steps wait for updates 25% of the time"),
    (GPU, {"rollout": 0.4, "update": 0.6}, "steps take 40% of the time and updates 60%: overlap=True does both at"),
])  # fmt: skip
def test_one_side_that_starves_is_told_with_its_figure(gauges, phases, said):
    (words,) = advise(gauges, phases)
    assert words.startswith(said)


@pytest.mark.parametrize(("phases", "others", "said"), [
    ({}, 0.9, "other programs keep 0.9 of 2 cores busy: training works on what is left"),
    ({"update/waiting": 0.85}, 1.0, "other programs keep 1.0 of 2 cores busy"),
    ({"update/waiting": 0.85}, 0.1, "updates wait for slow threads or ranks 85% of the time: try fewer"),
    ({"update/waiting": 0.85}, None, "updates wait for slow threads or ranks 85% of the time: try fewer"),
])  # fmt: skip
def test_busy_cores_and_waiting_threads_are_named(monkeypatch, phases, others, said):
    monkeypatch.setattr(advice, "available_cores", lambda: 2)
    (words,) = advise({}, phases, ResourceUse(cpu_percent=100.0, memory_bytes=1, other_cores=others))
    assert words.startswith(said)


def test_neighbours_that_take_little_are_not_named():
    assert advise({}, {"update/waiting": 0.1}, ResourceUse(cpu_percent=1.0, memory_bytes=1, other_cores=0.5)) == []


@pytest.mark.parametrize(("gauges", "phases"), [
    ({}, {}), ({LEARNER: 0.1, COLLECTOR: 0.1}, {}), ({LEARNER: 0.1, COLLECTOR: 0.6}, {}),
    ({}, {"rollout": 0.4, "update": 0.6}), (GPU, {"rollout": 0.05, "update": 0.95}),
])  # fmt: skip
def test_where_nobody_starves_nothing_is_said(gauges, phases):
    assert advise(gauges, phases) == []


def test_an_agent_tells_all_of_it():
    """In its metrics and as gauges, for the display, the heartbeat and whoever watches from elsewhere."""
    agent = DQN(
        "CartPole-v1", device="python", overlap=True, num_envs=4, train_every=4, batch_size=8, learning_starts=16,
        buffer_size=1000, hidden=(8,), seed=0,
    ).learn(500)  # fmt: skip
    timed = {"batches_per_second", "epoch_seconds", "learner_waiting", "collector_waiting"}
    told = {"collector/age_of_weights", "buffer/fill_share"}
    assert told | {f"time/{name}" for name in timed} <= agent.metrics.keys()
    shares = {"learner/waiting_share", "collector/waiting_share"}
    assert told | shares | {"batches_per_second", "epoch_seconds"} <= gauges_of(agent).keys()
    assert agent.metrics["buffer/fill_share"] == 0.5
    assert 0.9 < agent.metrics["collector/age_of_weights"] < 1.0  # one update, but for the first steps of an iteration
    assert agent.metrics["time/epoch_seconds"] == pytest.approx(
        1000 / agent.metrics["time/batches_per_second"], rel=0.01
    )
    assert learnt_figures(agent).keys() == {"loss", "td_error", "exploration_rate"}
