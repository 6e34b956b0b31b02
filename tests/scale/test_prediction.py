"""The model of training on many ranks: counted by hand, and found again from what it says itself."""

import pytest

from velocirl.scale.prediction import Link, Measured, Work, fit_link, fit_work

SIZES = (8, 10_000, 100_000, 1_000_000, 10_000_000)


def test_a_sum_by_a_ring_and_by_doubling():
    ring, doubling, quickest = (Link(one, 1e-3, 1e-8) for one in ("ring", "doubling", "quickest"))
    assert ring.sum_seconds(4, 1_000_000) == pytest.approx(6 * 1e-3 + 1.5 * 1e-2)
    assert doubling.sum_seconds(4, 1_000_000) == pytest.approx(2 * 1e-3 + 2 * 1e-2)
    assert doubling.sum_seconds(5, 1000) == pytest.approx(3 * 1e-3 + 3 * 1e-5)
    assert quickest.sum_seconds(4, 1_000_000) == ring.sum_seconds(4, 1_000_000)
    assert quickest.sum_seconds(256, 8) == doubling.sum_seconds(256, 8)


def test_an_iteration():
    link = Link("ring", 1e-3, 1e-8)
    work = Work("PPO", fixed=0.01, shared=0.4, sums={8: 3.0, 1_000_000: 2.0})
    sums = 3 * (2e-3 + 8e-8) + 2 * (2e-3 + 1e-2)
    assert work.computing(2) == pytest.approx(0.21)
    assert work.summing(link, 2) == pytest.approx(sums)
    assert work.share(link, 2) == pytest.approx(sums / (0.21 + sums))
    assert work.speedup(link, 2) == pytest.approx(0.41 / (0.21 + sums))
    assert (work.summing(link, 1), work.speedup(link, 1)) == (0.0, 1.0)
    assert work.grown(2.0).computing(2) == pytest.approx(0.41)


@pytest.mark.parametrize("pattern", ["ring", "doubling", "quickest"])
def test_a_link_is_found_from_what_was_measured(pattern):
    link = Link(pattern, 50e-6, 8e-9)
    points = [Measured(ranks, size, link.sum_seconds(ranks, size)) for ranks in (2, 4) for size in SIZES]
    found = fit_link(pattern, points)
    assert (found.latency, found.seconds_per_byte) == pytest.approx((50e-6, 8e-9), rel=1e-6)
    one = fit_link(pattern, [Measured(2, size, 1e-4) for size in SIZES])  # however many bytes there are
    assert one.sum_seconds(2, 8) > 0
    assert one.latency >= 0
    assert one.seconds_per_byte >= 0


def test_work_is_found_from_two_numbers_of_ranks():
    work = fit_work("SAC", {4: 0.11, 2: 0.21}, {8: 1.0})
    assert (work.fixed, work.shared) == pytest.approx((0.01, 0.4))
    noisy = fit_work("SAC", {2: 0.2, 4: 0.05}, {})  # more than shared out: nothing is fixed
    assert (noisy.fixed, noisy.shared) == pytest.approx((0.0, 0.4))
    assert fit_work("SAC", {2: 0.2, 4: 0.25}, {}).shared == 0.0
