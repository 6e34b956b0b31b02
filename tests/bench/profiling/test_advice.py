"""What to try next: which figures speak for what, and that none is given without one."""

import re

import pytest

from velocirl import PPO
from velocirl.bench.profiling import trials
from velocirl.bench.profiling.advice import RULES, Advice, Facts, advise, with_trial
from velocirl.bench.profiling.tree import PYTHON
from velocirl.bench.profiling.trials import try_advice, worth_trying
from velocirl.monitor.phases import ORDER

SETTINGS = {
    "num_envs": 32,
    "horizon": 64,
    "minibatch_size": 128,
    "threads": 2,
    "epochs": 4,
    "device": "cpu",
    "workers": None,
}


def advice_for(phases, **facts):
    facts.setdefault("settings", SETTINGS)
    return advise(phases, Facts(**{"seconds": 10.0, "cores": 2, "iterations": 100, **facts}))


@pytest.mark.parametrize(
    ("phases", "facts", "changes", "measured"),
    [
        ({"rollout": 9, "rollout/environment": 6}, {}, {}, "rollout/environment takes 60%"),
        ({"rollout": 9}, {"cores": 8}, {"threads": 8}, "rollout takes 90% of the time, on 2 of 8 cores"),
        ({"update": 9}, {"cores": 8}, {"threads": 8}, "update takes 90% of the time, on 2 of 8 cores"),
        (
            {"update": 9},
            {"settings": {"train_every": 4, "gradient_steps": 2, "batch_size": 64, "threads": 2}},
            {"train_every": 8},
            "update takes 90% of the time, 2 updates of 64 transitions every 4 steps",
        ),
        (
            {"rollout": 6, "update": 2},
            {"callbacks": 2},
            {},
            "take 20% of the time, iterations 100 ms each, 2 callbacks",
        ),
        ({"rollout": 9}, {"native": False}, {"workers": 2}, "rollout takes 90% of the time, in 1 process on 2 cores"),
        ({"rollout": 9, "rollout/policy": 5}, {}, {"num_envs": 128}, "rollout/policy takes 50% of the time with 32"),
        (
            {"update": 9, "update/waiting": 3},
            {},
            {"threads": 1},
            "update/waiting takes 30% of the time, with 2 threads",
        ),
        ({"update": 9, "update/optimiser": 3}, {}, {"minibatch_size": 256}, "30% of the time, with minibatches of 128"),
        ({"update": 9, "update/forward": 2, "update/backward": 3}, {}, {"epochs": 2}, "take 50% of the time"),
        ({"update": 9}, {"gpu": True}, {"device": "cuda"}, "update takes 90% of the time, on the CPU"),
        (
            {"update": 9},
            {"settings": {**SETTINGS, "num_envs": 1024, "device": "cuda"}},
            {"minibatch_size": 8192},
            "update takes 90% of the time, in 512 minibatches of 128",
        ),
        ({"rollout": 3, "update": 3}, {}, {"horizon": 128}, "take 40% of the time, iterations 100 ms each"),
        ({"rollout": 9}, {"settings": {"runtime": "serial"}}, {"runtime": "threads"}, "on 1 of 2 cores"),
        (
            {"update": 9, "update/sample": 4},
            {"settings": {"priority": "rank"}},
            {"priority": "none"},
            "update/sample takes 40% of the time, with rank priorities",
        ),
    ],
)
def test_each_rule_has_its_measurement(phases, facts, changes, measured):
    (first,) = [one for one in advice_for(phases, **facts) if one.changes == changes]
    assert measured in first.measurement
    for name, value in changes.items():
        assert f"--{name.replace('_', '-')} {value}" in first.text


def test_nothing_is_advised_where_nothing_stands_out_or_nothing_is_known():
    assert advice_for({"rollout": 3.9, "update": 4.9, "estimate": 1.1}) == []
    assert advice_for({}) == []
    assert advise({}, Facts()) == []
    everything = dict.fromkeys(ORDER, 1.0)  # and no settings: no rule may need one
    assert all(re.search(r"\d", one.measurement) for one in advise(everything, Facts(seconds=100.0)))


@pytest.mark.parametrize("gpu", [True, False])
@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("path", [path for path, _, _ in RULES])
def test_no_advice_without_a_number(path, native, gpu):
    phases = {path: 9.0, path.partition("/")[0]: 9.0} if path != PYTHON else {"rollout": 1.0}
    for one in advice_for(phases, native=native, gpu=gpu):
        assert re.search(r"\d%", one.measurement)


def test_more_threads_are_not_advised_where_they_wait_for_each_other():
    waiting = advice_for({"update": 9, "update/waiting": 3}, cores=8)
    assert [one.changes.get("threads") for one in waiting] == [1, None]


def test_the_line_of_an_environment_and_the_command_that_finds_it():
    phases = {"rollout": 9, "rollout/environment": 6}
    assert "velocirl profile train my.py --lines" in advice_for(phases, environment="my.py")[0].text
    assert "my.py:7 takes 80%" in advice_for(phases, hottest_line="my.py:7 takes 80% of it")[0].measurement


def test_growing_memory_is_told_unless_something_is_filling_up():
    phases = {"rollout": 4.0, "update": 4.5, "estimate": 1.0}
    (one,) = advice_for(phases, growth="grows: 2 MiB")
    assert one.measurement == "resident memory grows: 2 MiB"
    assert advice_for(phases, growth="grows: 2 MiB", filling=True) == []


def test_a_trial_is_told_whatever_comes_of_it():
    advice = Advice("more", "half of the time", {"num_envs": 64})
    better, worse = with_trial(advice, 1.5, 1.4, 1.7), with_trial(advice, 0.9, 0.8, 1.2)
    assert better.measurement == "half of the time; tried: 1.50 times the steps/s (1.40 to 1.70), faster"
    assert with_trial(advice, 1.1, 0.9, 1.3).measurement.endswith("(0.90 to 1.30), not clearly faster")
    assert worse.measurement.endswith("0.90 times the steps/s (0.80 to 1.20), no faster")


def test_what_would_have_to_be_compiled_is_not_tried():
    advice = [Advice("a", "1"), Advice("b", "2", {"runtime": "threads"}), Advice("c", "3", {"threads": 1})]
    assert worth_trying(advice, cached=True) == advice[1:]
    assert worth_trying(advice, cached=False) == advice[2:]


def test_a_real_trial_finds_that_many_copies_are_faster_than_one(monkeypatch):
    monkeypatch.setattr(trials, "SECONDS", 0.05)
    small = {"horizon": 16, "minibatch_size": 4096, "epochs": 1, "threads": 1, "seed": 3}

    def make_agent(changes):
        return PPO("CartPole-v1", **{**small, "num_envs": 1, **changes})

    bad, good = Advice("bad", "1", {"minibatch_size": -1}), Advice("good", "2", {"num_envs": 256})
    first, second = try_advice([bad, good], [bad, good], make_agent, 10**6)
    assert second == bad  # cannot be built, and so stays what it was
    assert first.text == "good"
    assert first.tried > 2.0
    assert try_advice([good], [good], make_agent, 10**6, needs_bytes=1e18) == [good]
