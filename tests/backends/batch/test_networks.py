"""The step of an optimiser as a device decides on it: scalar functions in plain Python, by hand."""

from types import SimpleNamespace

import numpy as np
import pytest

from velocirl.backends.batch.networks import (
    APPLIES,
    GROWTH_INTERVAL,
    LARGEST_SCALE,
    Learnt,
    descent,
    move,
    scale_gradient,
)
from velocirl.optim.optimisers import FACTORS, optimiser_from
from velocirl.program.clock import (
    COUNTS,
    FAULT,
    GATHERED,
    GOOD,
    LEARNING_RATE,
    LOSS_SCALE,
    MAX_NORM,
    MAX_VALUE,
    NEXT_SCALE,
    NUMBERS,
    STOPPED,
    Clock,
)

SIZE = 5


def clock_of(agents=1):
    """Nothing is counted, scales are 1, nothing is limited."""
    clock = Clock(np.zeros((agents, COUNTS), np.int64), np.zeros((agents, NUMBERS)))
    clock.numbers[:, [LOSS_SCALE, NEXT_SCALE]] = 1
    return clock


def learnt_of(agents=1, optimiser="sgd", scaling=0, size=SIZE):
    rule, count = optimiser_from(optimiser), agents * size
    return Learnt(
        parameters=np.arange(count, dtype=np.float32),
        gradient=np.ones(count, np.float32),
        moments=np.zeros((max(rule.slots, 1), count), np.float32),
        settings=rule.settings(),
        factors=np.zeros((agents, FACTORS), np.float32),
        undecayed=np.zeros((0, 2), np.int64),
        undecayed_settings=rule.settings(),
        undecayed_factors=np.zeros((agents, FACTORS), np.float32),
        norm=np.zeros(agents),
        norms=np.zeros((agents, 2)),
        steps=np.zeros(agents, np.int64),
        size=size,
        scaling=scaling,
    )


def judged(norm, scale=1.0, scaling=0, good=0, stopped=0, fault=0):
    """One step of one agent."""
    clock, learnt = clock_of(), learnt_of(scaling=scaling)
    functions = descent(optimiser_from("sgd").rule, alone=True)
    learnt.norm[0] = norm
    clock.numbers[0, [LOSS_SCALE, NEXT_SCALE, LEARNING_RATE]] = scale, scale, 0.5
    clock.counts[0, [GOOD, STOPPED, FAULT, GATHERED]] = good, stopped, fault, 3
    with np.errstate(invalid="ignore"):  # NumPy warns of what compiled code does not
        functions.prepare_step(0, 0, 0, learnt, clock)
    for p in range(SIZE):
        functions.descend(p, p, 0, learnt, clock)
    assert clock.numbers[0, LOSS_SCALE] == scale  # other networks are scaled by it until the update is over
    return SimpleNamespace(
        counts=clock.counts[0], scale=clock.numbers[0, NEXT_SCALE], moved=learnt.parameters - np.arange(SIZE),
        steps=learnt.steps[0], norms=learnt.norms[0, 0], taken=learnt.norms[0, 1], applies=learnt.factors[0, APPLIES],
    )  # fmt: skip


def test_a_step():
    after = judged(norm=2.0)
    assert (after.steps, after.taken, after.norms, after.applies) == (1, 1, 2, 1)
    np.testing.assert_array_equal(after.moved, -0.5)  # learning rate 0.5, gradient 1
    assert after.counts[FAULT] == 0
    assert after.scale == 1


@pytest.mark.parametrize("norm", [np.inf, np.nan, -np.inf])
def test_without_scaling_an_infinite_gradient_is_a_fault(norm):
    after = judged(norm=norm, scale=8.0)
    assert (after.counts[FAULT], after.steps, after.taken, after.applies) == (1, 0, 0, 0)
    assert not after.moved.any()
    assert after.scale == 8


@pytest.mark.parametrize("norm", [np.inf, np.nan])
def test_an_overflow_of_fp16_halves_the_scale_and_skips_the_step(norm):
    after = judged(norm=norm, scale=2.0**16, scaling=1, good=1999)
    assert after.scale == 2.0**15
    assert (after.counts[FAULT], after.steps, after.counts[GOOD], after.taken) == (0, 0, 0, 0)
    assert not after.moved.any()


def test_an_overflow_at_scale_one_is_a_fault():
    after = judged(norm=np.inf, scale=1.0, scaling=1)
    assert (after.counts[FAULT], after.scale) == (1, 1.0)
    assert not after.moved.any()


def test_the_scale_grows_after_many_good_steps():
    assert judged(norm=1.0, scale=4.0, scaling=1, good=GROWTH_INTERVAL - 2).scale == 4
    grown = judged(norm=1.0, scale=4.0, scaling=1, good=GROWTH_INTERVAL - 1)
    assert (grown.scale, grown.counts[GOOD], grown.steps) == (8, 0, 1)
    assert judged(norm=1.0, scale=LARGEST_SCALE, scaling=1, good=GROWTH_INTERVAL).scale == LARGEST_SCALE
    assert judged(norm=1.0, scale=4.0, good=GROWTH_INTERVAL).scale == 4


@pytest.mark.parametrize("flag", ["stopped", "fault"])
def test_after_a_stop_no_step_is_taken(flag):
    after = judged(norm=1.0, **{flag: 1})
    assert (after.steps, after.taken, after.applies) == (0, 0, 0)
    assert not after.moved.any()


def test_agents_side_by_side_are_judged_apart():
    clock, learnt = clock_of(agents=3), learnt_of(agents=3)
    functions = descent(optimiser_from("sgd").rule, alone=False)
    learnt.norm[:] = np.nan, 0.25, 2.0
    clock.numbers[:, LEARNING_RATE], clock.numbers[:, MAX_NORM] = 1, 0.5
    for s in range(3):
        functions.prepare_step(s, s, 0, learnt, clock)
    for p in range(3 * SIZE):
        functions.descend(p, p, 0, learnt, clock)
    moved = (learnt.parameters - np.arange(15)).reshape(3, 5)
    np.testing.assert_allclose(moved, [[0] * 5, [-1] * 5, [-0.25] * 5], rtol=1e-5)  # a norm of 2 is held to 0.5
    assert clock.counts[:, FAULT].tolist() == [1, 0, 0]


@pytest.mark.parametrize(("gathered", "scale", "limit", "expected"), [
    (1, 1.0, 0.0, 6.0), (3, 1.0, 0.0, 2.0), (3, 4.0, 0.0, 0.5), (2, 1.0, 1.5, 1.5), (2, 1.0, 5.0, 3.0),
    (0, 1.0, 0.0, 6.0),
])  # fmt: skip
def test_scaling_of_the_gradient(gathered, scale, limit, expected):
    """The sum over minibatches, times the loss scale, becomes the mean; then each number is clipped."""
    clock, learnt = clock_of(), learnt_of()
    learnt.gradient[:] = 6.0, -6.0, 0.0, 6.0, -6.0
    clock.counts[0, GATHERED], clock.numbers[0, [LOSS_SCALE, MAX_VALUE]] = gathered, (scale, limit)
    for p in range(SIZE):
        scale_gradient(p, p, 0, learnt, clock)
    np.testing.assert_allclose(learnt.gradient, [expected, -expected, 0, expected, -expected])


def test_target_networks_of_agents_that_go_on_come_closer():
    clock, learnt, target = clock_of(agents=3), learnt_of(agents=3), np.full(15, 100, np.float32)
    clock.counts[1, STOPPED], clock.counts[2, FAULT] = 1, 1
    for p in range(15):
        move(p, p, 0, learnt.parameters, target, np.array([0.25]), clock, SIZE)
    np.testing.assert_allclose(target, [75.0, 75.25, 75.5, 75.75, 76.0, *[100.0] * 10])


def test_a_number_of_each_agent_takes_its_own_steps():
    """Of two numbers of each of three agents, the second; the last agent's update was stopped."""
    clock, learnt = clock_of(agents=3), learnt_of(agents=3, size=2)._replace(steps=np.zeros(6, np.int64))
    functions = descent(optimiser_from("sgd").rule, alone=False)
    clock.numbers[:, LEARNING_RATE], clock.counts[2, STOPPED] = 0.5, 1
    for s in range(3):
        functions.step_number(s, s, 0, np.array([2.0, -4.0, 1.0], np.float32), learnt, 1, clock)
    np.testing.assert_allclose(learnt.parameters, [0, 1 - 1, 2, 3 + 2, 4, 5])
    assert learnt.steps.tolist() == [0, 1, 0, 1, 0, 0]
