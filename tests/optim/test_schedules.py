"""Schedules against those of torch, against hand-computed values, and as text."""

from math import cos, inf, nan

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim import lr_scheduler

from velocirl.optim.schedules import (
    SCHEDULES,
    Constant,
    Cosine,
    CosineRestarts,
    Exponential,
    Linear,
    Points,
    Polynomial,
    Schedule,
    Step,
    TwoPhase,
    Warmup,
    schedule_from,
)
from velocirl.optim.tabulation import tabulated

TOTAL = 70


def rates_of_torch(make, steps):
    """The learning rates of a scheduler of torch, from a first one of 1."""
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = make(optimiser)
    rates = []
    for _ in range(steps):
        rates.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        scheduler.step()
    return rates


@pytest.mark.parametrize(
    ("schedule", "make"),
    [
        (Constant(), lambda o: lr_scheduler.LambdaLR(o, lambda step: 1.0)),
        (Linear(), lambda o: lr_scheduler.LambdaLR(o, lambda step: 1 - step / TOTAL)),
        (Linear(end=0.2), lambda o: lr_scheduler.LinearLR(o, 1.0, 0.2, TOTAL)),
        (Linear(end=3.0), lambda o: lr_scheduler.LambdaLR(o, lambda step: 1 + 2 * step / TOTAL)),
        (Step(), lambda o: lr_scheduler.MultiStepLR(o, [18, 35, 53, 70], 0.5)),
        (Step(every=0.1, factor=0.7), lambda o: lr_scheduler.StepLR(o, TOTAL // 10, 0.7)),
        (Exponential(), lambda o: lr_scheduler.ExponentialLR(o, 0.01 ** (1 / TOTAL))),
        (Exponential(end=0.3), lambda o: lr_scheduler.ExponentialLR(o, 0.3 ** (1 / TOTAL))),
        (Cosine(), lambda o: lr_scheduler.CosineAnnealingLR(o, TOTAL)),
        (Cosine(end=0.1), lambda o: lr_scheduler.CosineAnnealingLR(o, TOTAL, eta_min=0.1)),
        (Polynomial(), lambda o: lr_scheduler.PolynomialLR(o, TOTAL, power=2.0)),
        (Polynomial(power=0.5), lambda o: lr_scheduler.PolynomialLR(o, TOTAL, power=0.5)),
    ],
    ids=lambda value: str(value) if isinstance(value, Schedule) else "torch",
)
def test_schedules_are_those_of_torch(schedule, make):
    progress = np.arange(TOTAL + 1) / TOTAL
    np.testing.assert_allclose([schedule(p) for p in progress], rates_of_torch(make, TOTAL + 1), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("schedule", "first", "growth"),
    [(CosineRestarts(cycles=7), 10, 1), (CosineRestarts(cycles=3, growth=2.0), 10, 2), (CosineRestarts(1), 70, 1)],
    ids=str,
)
@pytest.mark.parametrize("end", [0.0, 0.25])
def test_restarts_are_those_of_torch(schedule, first, growth, end):
    schedule = CosineRestarts(schedule.cycles, end, schedule.growth)
    rates = rates_of_torch(lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, first, growth, eta_min=end), TOTAL)
    np.testing.assert_allclose([schedule(step / TOTAL) for step in range(TOTAL)], rates, rtol=1e-9)
    assert schedule(1.0) == pytest.approx(end)  # where torch would begin once more


def test_shrinking_restarts():
    schedule = CosineRestarts(cycles=2, growth=0.5)  # two thirds of training, then one
    assert [schedule(p) for p in (0, 1 / 3, 2 / 3, 5 / 6, 1)] == pytest.approx([1.0, 0.5, 1.0, 0.5, 0.0])


def test_a_warm_up_goes_before_a_whole_schedule():
    """0, 0.5, then cosine from its beginning over the four fifths that are left."""
    schedule = Warmup(0.2, Cosine(end=0.1))
    assert [schedule(p) for p in (0.0, 0.1, 0.2, 0.6, 1.0)] == pytest.approx([0.0, 0.5, 1.0, 0.55, 0.1])
    assert Warmup(0.2, Linear(), start=0.4)(0.1) == pytest.approx(0.7)
    assert Warmup(0.5)(0.9) == 1.0
    assert Warmup(0.0, Linear())(0.25) == pytest.approx(0.75)


def test_two_phases_meet_in_the_middle():
    """1 to 0.2 over the first quarter, 0.2 to 0.1 over the rest; the same as interpolation between those three."""
    schedule = TwoPhase(0.25, 0.2, 0.1)
    assert [schedule(p) for p in (0.0, 0.125, 0.25, 0.625, 1.0)] == pytest.approx([1.0, 0.6, 0.2, 0.15, 0.1])
    progress = np.linspace(0, 1, 101)
    expected = np.interp(progress, [0.0, 0.25, 1.0], [1.0, 0.2, 0.1])
    np.testing.assert_allclose([schedule(p) for p in progress], expected, rtol=1e-12)
    assert [TwoPhase()(p) for p in (0.0, 0.5, 1.0)] == pytest.approx([1.0, 0.1, 0.0])
    assert TwoPhase(0.5, 2.0, 0.5)(0.5) == pytest.approx(2.0)  # it may rise as well


def test_steps_fall_on_their_boundaries():
    """0.3 / 0.1 is 2.9999999999999996, and is still the third step."""
    assert Step(every=0.1, factor=0.5)(0.3) == 0.125
    assert CosineRestarts(cycles=10)(0.3) == pytest.approx(1.0)


unit = st.floats(0, 1)
ends = st.floats(0, 10)
simple = (
    st.builds(Constant)
    | st.builds(Linear, ends)
    | st.builds(Step, st.floats(0.01, 1), st.floats(0.01, 1))
    | st.builds(Exponential, st.floats(1e-6, 10))
    | st.builds(Cosine, ends)
    | st.builds(CosineRestarts, st.integers(1, 15), ends, st.floats(0.5, 2))
    | st.builds(Polynomial, st.floats(0.1, 10), ends)
    | st.builds(TwoPhase, st.floats(0.01, 0.99), ends, ends)
)
schedules = simple | st.builds(Warmup, st.floats(0, 0.99), simple, ends)


@given(schedules)
def test_any_schedule_is_what_its_text_says(schedule):
    assert schedule_from(str(schedule)) == schedule


@given(schedules, unit)
def test_multipliers_stay_between_the_extremes(schedule, progress):
    own = schedule.then if isinstance(schedule, Warmup) else schedule
    # A factor may be taken a hundred times, so the least value of a step schedule is 0.
    extremes = [1.0, getattr(own, "end", 0.0 if isinstance(own, Step) else 1.0), getattr(schedule, "start", 1.0)]
    extremes.append(getattr(own, "middle", 1.0))
    assert min(extremes) - 1e-9 <= schedule(progress) <= max(extremes) + 1e-9


@given(simple.filter(lambda schedule: not isinstance(schedule, (Step, Constant))))
def test_schedules_begin_at_one_and_end_at_their_end(schedule):
    assert schedule(1.0) == pytest.approx(schedule.end, abs=1e-9)
    assert schedule(0.0) == pytest.approx(1.0)


@pytest.mark.parametrize("schedule", [Linear(end=0.3), Cosine(), Step(), Warmup(0.1, Polynomial())], ids=str)
def test_progress_outside_of_training_is_its_nearest_end(schedule):
    assert schedule(-0.5) == schedule(0.0)
    assert schedule(1.5) == schedule(1.0)
    with pytest.raises(ValueError, match="progress must be a number from 0 to 1, not NaN"):
        schedule(nan)


@pytest.mark.parametrize(
    ("text", "schedule"),
    [
        ("constant", Constant()),
        ("linear(0.1)", Linear(end=0.1)),
        ("linear(each_call=true)", Linear(each_call=True)),
        ("step(every=0.1, factor=0.9)", Step(0.1, 0.9)),
        ("exponential", Exponential(end=0.01)),
        ("Cosine(end=0.1)", Cosine(end=0.1)),
        ("cosine_restarts(3, growth=2)", CosineRestarts(cycles=3, growth=2.0)),
        ("polynomial(power=3)", Polynomial(power=3.0)),
        ("two_phase(0.3, middle=0.2, end=0.01)", TwoPhase(0.3, 0.2, 0.01)),
        ("warmup(0.1) two_phase", Warmup(0.1, TwoPhase())),
        ("warmup(0.05)", Warmup(0.05, Constant())),
        ("warmup(0.05) cosine", Warmup(0.05, Cosine())),
        ("  warmup(fraction=0.05, start=0.1)   linear(end=0.2) ", Warmup(0.05, Linear(end=0.2), start=0.1)),
    ],
)
def test_text(text, schedule):
    assert schedule_from(text) == schedule
    assert schedule_from(schedule) is schedule


def test_the_text_of_a_schedule_is_short():
    assert str(Cosine()) == "cosine"
    assert str(Linear(each_call=True)) == "linear(each_call=true)"
    assert str(CosineRestarts(cycles=5, end=0.1)) == "cosine_restarts(cycles=5, end=0.1)"
    assert str(Warmup(0.05, Cosine(end=0.1))) == "warmup(0.05) cosine(end=0.1)"
    assert str(Warmup(0.05, start=0.2)) == "warmup(0.05, start=0.2) constant"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cosin", "there is no schedule 'cosin': did you mean 'cosine'?"),
        ("warmpu(0.1) cosine", "there is no schedule 'warmpu': did you mean 'warmup'?"),
        ("xyz", "there is no schedule 'xyz'; there are constant, linear, step"),
        ("cosine(ned=0.1)", "cosine has no argument 'ned': did you mean 'end'?"),
        ("constant(1)", "constant takes at most 0 arguments"),
        ("constant(end=1)", "constant has no argument 'end'; it has none"),
        ("warmup cosine", "warmup needs its argument 'fraction': write warmup(fraction=...)"),
        ("warmup(0.1, then=cosine)", "warmup has no argument 'then'"),
        ("linear cosine", "linear fills all of training, so nothing can follow it"),
        ("cosine_restarts(cycles=2.5)", "cosine_restarts: cycles must be a whole number, not '2.5'"),
        ("cosine(end=inf)", "Cosine: end must be at least 0 and finite, not inf"),
        ("warmup(0.1) + cosine", "cannot read the schedule 'warmup(0.1) + cosine' at '+ cosine'"),
        (" ", "cannot read the schedule ' '"),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_hint(text, message):
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the message is checked below, without a pattern
        schedule_from(text)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Linear(end=-0.1), "Linear: end must be at least 0"),
        (lambda: Cosine(end=nan), "end"),
        (lambda: Exponential(end=0.0), "Exponential: end must be above 0 and finite; linear or cosine reach 0"),
        (lambda: Step(every=0.0), "every"),
        (lambda: Step(every=1.5), "every"),
        (lambda: Step(factor=0.0), "factor"),
        (lambda: CosineRestarts(cycles=0), "cycles must be from 1 to 100, not 0"),
        (lambda: CosineRestarts(growth=0.0), "growth"),
        (
            lambda: CosineRestarts(cycles=100, growth=2.0),
            "growth must be nearer to 1 where there are 100 cycles, not 2.0",
        ),
        (lambda: CosineRestarts(end=inf), "end"),
        (lambda: Polynomial(power=0.0), "power"),
        (lambda: Polynomial(end=-1.0), "end"),
        (
            lambda: TwoPhase(fraction=0.0),
            "TwoPhase: fraction must be a share of training, above 0 and below 1, not 0.0",
        ),
        (lambda: TwoPhase(fraction=1.0), "fraction"),
        (lambda: TwoPhase(middle=-0.1), "middle must be at least 0 and finite"),
        (lambda: TwoPhase(middle=nan), "middle"),
        (lambda: TwoPhase(end=inf), "end"),
        (lambda: Warmup(1.0), "fraction"),
        (lambda: Warmup(0.1, start=-1.0), "start"),
        (lambda: Warmup(0.1, "cosine"), "then must be a schedule, for example Cosine"),
    ],
)
def test_impossible_arguments_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_every_schedule_is_found_by_its_name():
    kinds = {kind.name: kind for kind in Schedule.__subclasses__() if kind is not Points}  # those have no name
    assert kinds == SCHEDULES
    assert len(kinds) == 9


def test_points_are_values_with_straight_lines_between_them():
    schedule = schedule_from("0:3e-4,0.5:1e-4,1:0")
    assert schedule == Points(((0.0, 3e-4), (0.5, 1e-4), (1.0, 0.0)))
    progress = np.linspace(0, 1, 101)
    expected = np.interp(progress, [0, 0.5, 1], [3e-4, 1e-4, 0])
    np.testing.assert_allclose([schedule.value(7.0, p) for p in progress], expected, rtol=1e-12, atol=1e-18)
    assert schedule_from(str(schedule)) == schedule


def test_points_hold_outside_of_theirs_and_jump_where_two_are_at_one_progress():
    schedule = Points(((0.2, 1.0), (0.5, 1.0), (0.5, 0.25), (0.8, 0.5)))
    assert [schedule(p) for p in (0.0, 0.2, 0.4999, 0.5, 0.65, 0.8, 1.0)] == [1, 1, 1, 0.25, 0.375, 0.5, 0.5]


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ((), "from 1 to 10,000 points, got 0"),
        (((0.0, 1.0), (1.5, 0.0)), "at a progress from 0 to 1, got 1.5"),
        (((0.5, 1.0), (0.2, 0.0)), "in the order of progress, got 0.2 after 0.5"),
        (((0.0, nan),), "finite values, got nan"),
    ],
)
def test_impossible_points(points, message):
    with pytest.raises(ValueError, match=message):
        Points(points)


def test_points_that_cannot_be_read():
    with pytest.raises(
        ValueError, match=r"cannot read '1:x' as a point of a schedule: write progress:value, as in 0:3e"
    ):
        schedule_from("0:1,1:x")


@pytest.mark.parametrize(
    ("function", "most"),
    [
        (lambda left: 3e-4 * left, 2),
        (lambda left: 1e-4 if left < 0.3 else 1e-3, 4),
        (lambda left: cos(3 * left) ** 2, 500),
        (lambda left: 2.5, 2),
        (lambda left: np.float32(left) ** 2, 500),
    ],
)
def test_a_function_becomes_points_near_it(function, most):
    """It is given the progress that remains, and may jump."""
    schedule = tabulated(function)
    assert len(schedule.points) <= most
    progress = [k / 9973 for k in range(9974)]
    largest = max(abs(function(1 - p)) for p in progress)
    np.testing.assert_allclose(
        [schedule(p) for p in progress], [function(1 - p) for p in progress], atol=3e-5 * largest
    )
    assert schedule_from(str(schedule)) == schedule


def test_functions_that_are_no_schedules():
    with pytest.raises(ValueError, match=r"gives finite numbers, got 'x' for 1\.0"):
        tabulated(lambda left: "x")
    noise = np.random.default_rng(0)
    with pytest.raises(ValueError, match="changes too often to be sampled: give points, or a name"):
        tabulated(lambda left: noise.random())
