from dataclasses import replace

import numpy as np
import pytest
from choosing import every_pair
from planted_samples import OTHER_MACHINE, noisy, plain, report_of, result_of
from scipy.stats import mannwhitneyu

from velocirl.bench.regression import Thresholds, compare, ratio_of, worse_share
from velocirl.bench.units import BYTES, MEGABYTES, RETURN, SECONDS

USUAL = Thresholds()


def change_of(before, after, thresholds=USUAL):
    (change,) = compare(report_of(before), report_of(after), thresholds).changes
    return change


def severity(factor, *, seed=0, noise=0.02, thresholds=USUAL, rounds=15, **given):
    before = result_of(noisy(1e6, seed=2 * seed, noise=noise, rounds=rounds), **given)
    after = result_of(noisy(factor * 1e6, seed=2 * seed + 1, noise=noise, rounds=rounds), **given)
    return change_of(before, after, thresholds).severity


@pytest.mark.parametrize(
    ("factor", "expected"),
    [(1.0, "none"), (0.97, "none"), (0.93, "warning"), (0.85, "failure"), (0.5, "failure"), (1.2, "improved")],
)
def test_how_severe_a_change_of_speed_is(factor, expected):
    assert severity(factor) == expected


def test_a_longer_time_is_worse():
    before, after = result_of(noisy(1.0, seed=0), unit=SECONDS), result_of(noisy(1.2, seed=1), unit=SECONDS)
    assert change_of(before, after).severity == "failure"
    assert change_of(before, after).ratio.median == pytest.approx(1 / 1.2, rel=0.03)
    assert change_of(after, before).severity == "improved"


@pytest.mark.parametrize("unit", [BYTES, MEGABYTES])
def test_memory_may_grow_by_a_fifth(unit):
    def grown(factor):
        return change_of(result_of([100.0] * 7, unit=unit), result_of([factor * 100.0] * 7, unit=unit)).severity

    assert [grown(factor) for factor in (1.0, 1.15, 1.21, 0.5)] == ["none", "none", "failure", "improved"]


def test_thresholds_can_be_overridden():
    assert severity(0.93, thresholds=Thresholds(warn=0.1, fail=0.2)) == "none"
    assert severity(0.93, thresholds=Thresholds(warn=0.01, fail=0.05)) == "failure"


@pytest.mark.parametrize(
    "given", [{"warn": 0.2}, {"warn": 0.0}, {"fail": 1.5}, {"memory": 0.0}, {"warn": float("nan")}]
)
def test_thresholds_make_sense(given):
    with pytest.raises(ValueError, match=r"between 0% and 100%|by more than 0%"):
        Thresholds(**given)


def test_a_planted_slowdown_is_called_and_noise_is_not():
    slower = [severity(1 / 1.15, seed=seed, noise=0.05) for seed in range(40)]
    same = [severity(1.0, seed=seed, noise=0.05) for seed in range(40)]
    assert sum(one in ("warning", "failure") for one in slower) >= 38
    assert sum(one in ("warning", "failure") for one in same) <= 1


def test_the_speed_of_the_machine_cancels():
    """Everything takes twice as long, the fixed work too: nothing has changed."""
    before = result_of(noisy(1e6, seed=0))
    after = result_of(noisy(0.5e6, seed=1), reference=np.full(15, 0.010))
    assert change_of(before, after).severity == "none"
    assert change_of(before, result_of(noisy(0.5e6, seed=1))).severity == "failure"


def test_a_return_does_not_depend_on_the_speed_of_the_machine():
    before = result_of(noisy(500.0, seed=0), unit=RETURN)
    after = result_of(noisy(500.0, seed=1), unit=RETURN, reference=np.full(15, 0.010))
    assert change_of(before, after).severity == "none"


def busy(median, factor, *, company, seed):
    """A result whose figure by the processor is so many times that by the clock, with others at work."""
    own = list(noisy(factor * median, seed=seed + 1))
    return replace(result_of(noisy(median, seed=seed), by_processor=own), company=company)


def test_what_only_waited_for_other_programs_is_not_called():
    """By the clock 30% slower, by the processor as before."""
    before, after = busy(1e6, 1.0, company=0.0, seed=0), busy(0.7e6, 1 / 0.7, company=0.5, seed=2)
    change = change_of(before, after)
    assert change.severity == "inconclusive"
    assert "others may have been at work" in change.reason


def test_what_waits_on_a_machine_of_its_own_is_called():
    before, after = busy(1e6, 1.0, company=0.0, seed=0), busy(0.7e6, 1 / 0.7, company=0.02, seed=2)
    change = change_of(before, after)
    assert change.severity == "failure"
    assert "so it waits longer" in change.reason


def test_what_is_slower_by_clock_and_processor_is_called_beside_other_programs_too():
    before, after = busy(1e6, 1.5, company=0.5, seed=0), busy(0.8e6, 1.5, company=0.6, seed=2)
    assert change_of(before, after).severity == "failure"


def test_nothing_is_called_where_other_programs_take_too_much():
    before, after = busy(1e6, 1.5, company=0.0, seed=0), busy(0.8e6, 1.5, company=1.2, seed=2)
    change = change_of(before, after)
    assert change.severity == "inconclusive"
    assert "kept 1.2 cores busy" in change.reason
    change = change_of(after, before)
    assert change.severity == "inconclusive"
    assert "kept 1.2 cores busy while the baseline was taken" in change.reason


def beside(factor, company, *, seed=0, slowed=2.0, noise=0.05):
    """Samples of code that is so many times as fast, in rounds with this company, each core of which slows it down."""
    company = np.asarray(company, np.float64)
    samples = noisy(factor * 1e6, seed=seed, noise=noise, rounds=len(company)) / slowed**company
    own = plain(noisy(factor * 1e6, seed=seed + 1000, noise=noise, rounds=len(company)))
    reference = np.full(len(company), 0.005) * np.where(company > 0.25, 1.2, 1.0)
    given = {"company": float(company.mean()), "company_by_round": plain(company)}
    return result_of(
        samples, by_processor=own, reference=reference, reference_by_processor=np.full(len(company), 0.005), **given
    )


QUIET, BUSY = [0.02] * 15, [1.0] * 15
STARTS, STOPS, PAUSES = QUIET[:8] + BUSY[:7], BUSY[:7] + QUIET[:8], ([0.02] * 2 + [1.0]) * 5
SIDES = ("baseline", "run", "both")
COMPANY = {"quiet": QUIET, "starts": STARTS, "stops": STOPS, "pauses": PAUSES}
CALLED_WORSE, CALLED = ("warning", "failure"), ("warning", "failure", "improved")


@pytest.mark.parametrize(("factor", "busy_side", "company"), every_pair((1 / 1.15, 1.15), SIDES, COMPANY))
def test_planted_changes_are_called_beside_a_neighbour_that_comes_and_goes(factor, busy_side, company):
    company, expected = COMPANY[company], CALLED_WORSE if factor < 1 else ("improved",)
    sides = {"baseline": (company, QUIET), "run": (QUIET, company), "both": (company, company[::-1])}[busy_side]
    found = [
        change_of(beside(1.0, sides[0], seed=2 * seed), beside(factor, sides[1], seed=2 * seed + 1)).severity
        for seed in range(40)
    ]
    assert sum(one in expected for one in found) >= 36
    assert not sum(one in CALLED and one not in expected for one in found)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(one, other, marks=pytest.mark.slow if one > other else ())  # of two orders, one each time
        for one in (*COMPANY, "busy")
        for other in (*COMPANY, "busy")
    ],
)
def test_unchanged_code_is_not_called_whatever_the_neighbours_do(first, second):
    companies = {**COMPANY, "busy": BUSY}
    first, second = companies[first], companies[second]
    found = [
        change_of(beside(1.0, first, seed=2 * seed), beside(1.0, second, seed=2 * seed + 1)).severity
        for seed in range(40)
    ]
    assert sum(one in CALLED for one in found) <= 1


@pytest.mark.parametrize("factor", [0.5, 1.0, 2.0])
def test_a_busy_baseline_hides_nothing(factor):
    """Slower code beside it looks as before; that is not said."""
    change = change_of(beside(1.0, BUSY), beside(factor, QUIET, seed=1))
    assert change.severity == "inconclusive"
    assert "kept 1.0 cores busy while the baseline was taken: save it again" in change.reason


def test_some_company_of_the_slower_run_only_is_why_it_is_slower():
    some = [0.5] * 15
    slower = change_of(
        beside(1.0, QUIET), replace(beside(0.8, some, seed=1), contestants=beside(0.5, QUIET).contestants)
    )
    assert slower.severity == "inconclusive"
    assert "kept 0.5 cores busy during the slower one, 0.0 during the faster" in slower.reason
    faster = change_of(
        replace(beside(1.0, some), contestants=beside(0.5, QUIET).contestants), beside(1.0, QUIET, seed=1)
    )
    assert faster.severity == "inconclusive"
    assert "kept 0.5 cores busy during the slower one" in faster.reason


def test_what_is_faster_by_the_clock_only_is_not_called_beside_others():
    before, after = busy(0.7e6, 1 / 0.7, company=0.2, seed=2), busy(1e6, 1.0, company=0.0, seed=0)
    change = change_of(before, after)
    assert change.severity == "inconclusive"
    assert "others may have been at work" in change.reason
    alone = change_of(replace(before, company=0.02), after)
    assert alone.severity == "improved"
    assert "so it waits less" in alone.reason


def test_an_improvement_is_one_in_every_measurement():
    before = result_of(noisy(1e6, seed=0))
    steady = result_of(np.concatenate([noisy(1.2e6, seed=1), noisy(1.2e6, seed=2)]), measurements=(15, 15))
    lucky = result_of(np.concatenate([noisy(1.0e6, seed=1), noisy(1.2e6, seed=2)]), measurements=(15, 15))
    assert change_of(before, steady).severity == "improved"
    change = change_of(before, lucky)
    assert (change.severity, change.reason) == ("inconclusive", "in 1 of 2 measurements only")


def test_memory_does_not_depend_on_other_programs():
    others = {"company": 2.0, "company_by_round": [2.0] * 7}
    before = result_of([100.0] * 7, unit=BYTES, **others)
    assert change_of(before, result_of([130.0] * 7, unit=BYTES, **others)).severity == "failure"
    assert change_of(before, result_of([50.0] * 7, unit=BYTES, **others)).severity == "improved"


def test_wildly_scattered_samples_are_not_called():
    generator = np.random.default_rng(0)
    before, after = (result_of(1e6 * generator.uniform(0.2, 1.0, 7)) for _ in range(2))
    lowered = result_of(np.asarray(after.contestants[0].samples) * 0.9)
    assert change_of(before, lowered).severity in ("inconclusive", "none")


def test_few_samples_conclude_nothing():
    assert severity(0.5, rounds=2) == "inconclusive"


def test_another_machine_is_compared_by_ratios_to_peers_only():
    before = report_of(
        result_of(noisy(1e6, seed=0), peer=noisy(1e5, seed=1)), result_of(noisy(5.0, seed=2), name="alone")
    )
    fast = {"machine": OTHER_MACHINE}
    same = compare(before, report_of(result_of(noisy(3e6, seed=3), peer=noisy(3e5, seed=4)), **fast), USUAL)
    assert same.other_machine
    assert [(change.contestant, change.severity, change.by) for change in same.changes] == [
        ("velocirl / Gymnasium", "none", "peers")
    ]
    assert same.changes[0].ratio.median == pytest.approx(1.0, abs=0.05)
    worse = compare(before, report_of(result_of(noisy(3e6, seed=3), peer=noisy(4e5, seed=4)), **fast), USUAL)
    assert [change.severity for change in worse.regressions] == ["failure"]
    assert worse.failed
    assert compare(before, report_of(result_of(noisy(1.0, seed=5)), **fast), USUAL).changes == []


def test_what_is_new_and_what_is_missing_is_named():
    before = report_of(result_of([1.0] * 7, name="gone"), result_of([1.0] * 7, name="both"))
    after = report_of(result_of([1.0] * 7, name="both"), result_of([1.0] * 7, name="fresh"))
    compared = compare(before, after, USUAL)
    assert ([change.benchmark for change in compared.changes], compared.missing, compared.new) == (
        ["both"], ["gone"], ["fresh"]
    )  # fmt: skip


def test_the_size_of_an_effect_is_that_of_mann_and_whitney():
    generator = np.random.default_rng(1)
    before, after = generator.normal(1.0, 0.3, 12), generator.normal(0.9, 0.3, 17)
    before[3] = after[5]  # a tie
    statistic = mannwhitneyu(before, after).statistic
    assert worse_share(before, after) == pytest.approx(statistic / (12 * 17))


def test_the_interval_holds_the_ratio_that_was_planted():
    """In about 95 of 100 series; the mean of the faster half of even noise is known."""
    generator = np.random.default_rng(2)
    held = 0
    for _ in range(100):
        before, after = generator.uniform(0.9, 1.1, 30), 0.8 * generator.uniform(0.9, 1.1, 30)
        found = ratio_of(before, after)
        held += found.low <= 0.8 <= found.high
    assert held >= 88
