"""The lines of an environment: a planted hot line is the hottest, and hits are counted."""

import gymnasium
import pytest
from gymnasium.spaces import Box, Discrete

from velocirl.bench.profiling.lines import _report, profile_lines
from velocirl.training.source import Source


def slow_part(x):
    total = 0.0
    for i in range(400):
        total += (x + i) % 3
    return total


def hot_step(state, params, action, rng):
    state.value += 1.0
    wasted = sum([k * k for k in range(3000)])  # the hot line
    return 1.0 + 0.0 * wasted, state.value >= 10.0


def step_with_a_helper(state, params, action, rng):
    state.value += 1.0
    return slow_part(state.value), state.value >= 10.0


def to_zero(state, params, rng):
    state.value = 0.0


def lines_of(report, name):
    (found,) = [function for function in report.functions if function.name.endswith(name)]
    return found


def test_a_planted_hot_line_is_the_hottest(define):
    report = profile_lines(Source(define(step=hot_step, reset=to_zero)), steps=250)
    function, line = report.hottest()
    assert function.name == "hot_step"
    assert line.text.endswith("# the hot line")
    assert line.share > 0.5
    assert report.steps == line.hits == 250
    assert report.native
    (reset,) = lines_of(report, "to_zero").lines
    assert reset.hits == 1 + 250 // 10  # at first, and after each 10 steps
    entries = [one for one in report.functions if one.called_by_training]
    assert sum(one.share for one in entries) == pytest.approx(1.0)
    assert sum(line.seconds for one in entries for line in one.lines) == pytest.approx(report.seconds)


def test_functions_that_the_step_calls_are_looked_into(define):
    report = profile_lines(Source(define(step=step_with_a_helper, reset=to_zero)), steps=20)
    helper = lines_of(report, "slow_part")
    assert not helper.called_by_training
    hits = {line.text.strip(): line.hits for line in helper.lines}
    assert hits["total += (x + i) % 3"] == 20 * 400
    assert helper.seconds < lines_of(report, "step_with_a_helper").seconds  # counted there too


class HotHost(gymnasium.Env):
    """Only the action 1 is legal; another one is an error."""

    observation_space, action_space = Box(-1, 1, (1,)), Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self._look(), {"action_mask": [False, True]}

    def _look(self):
        return self.observation_space.low * 0

    def step(self, action):
        assert action == 1
        self.time += 1
        wasted = sum([k * k for k in range(3000)])  # the hot line
        return self._look(), 1.0 + 0.0 * wasted, self.time == 5, False, {"action_mask": [False, True]}


def test_environments_of_gymnasium_with_their_masks():
    gymnasium.register("HotHost-v0", entry_point=HotHost)
    try:
        report = profile_lines(Source("gym:HotHost-v0"), steps=50)
    finally:
        gymnasium.registry.pop("HotHost-v0")
    function, line = report.hottest()
    assert function.name == "HotHost.step"
    assert line.text.endswith("# the hot line")
    assert line.hits == 50
    assert not report.native
    assert lines_of(report, "_look").lines[0].hits == 50 + 1 + 10
    assert not lines_of(report, "_look").called_by_training


def test_an_interrupt_gives_back_what_was_timed(define):
    calls = []

    def step(state, params, action, rng):
        calls.append(action)
        if len(calls) == 150:
            raise KeyboardInterrupt
        return 0.0, False

    report = profile_lines(Source(define(step=step, reset=to_zero)), seconds=60.0)
    assert report.interrupted
    assert lines_of(report, "step").lines[0].hits == 150


def test_by_the_clock():
    report = profile_lines(Source("CartPole-v1"), seconds=0.05)
    assert report.steps >= 100
    assert not report.interrupted
    assert {one.name for one in report.functions} == {"reset", "step", "observe"}


def test_shares_of_planted_times():
    timings = {("f.py", 1, "step"): [(2, 10, 300), (3, 10, 500)], ("f.py", 7, "helper"): [(8, 10, 400)]}
    report = _report(timings, 0.001, {("f.py", 1)}, 10, native=True)
    step, helper = report.functions
    assert (step.seconds, step.share, report.seconds) == (0.8, 1.0, 0.8)
    assert [(line.number, line.share, line.rank) for line in step.lines] == [
        (2, pytest.approx(0.375), 3),
        (3, pytest.approx(0.625), 1),
    ]
    assert (helper.share, helper.lines[0].rank) == (pytest.approx(0.5), 2)
