import pytest
from planted_report import measured, result

from velocirl.bench.comparison import ratio
from velocirl.bench.reports.rivals import rivalries, times_as_good
from velocirl.bench.results import Measured
from velocirl.bench.units import SECONDS, STEPS

ONE, TWO = measured("one", 1e6, 0.0), measured("two", 2e6, 0.0)
PEER, OTHER = measured("a peer", 1e5, 0.0, peer=True), measured("another", 5e5, 0.0, peer=True)


def test_claimed_pairs_are_compared_and_a_peer_that_no_claim_names_with_the_first_of_ours():
    found = rivalries(
        result("it", "vector", STEPS, [ONE, TWO, PEER, OTHER], [ratio("two", "a peer"), ratio("one", "two")])
    )
    told = [(one.ours, one.theirs, one.ratio.median) for one in found]
    assert told == [("two", "a peer", pytest.approx(20.0)), ("one", "another", pytest.approx(2.0))]


def test_above_one_is_better_whatever_the_unit():
    in_seconds = result("it", "vector", SECONDS, [ONE, TWO])
    assert times_as_good(in_seconds, ONE, TWO).median == pytest.approx(2.0)
    assert times_as_good(result("it", "vector", STEPS, [ONE, TWO]), ONE, TWO).median == pytest.approx(0.5)


def test_ratios_are_taken_in_every_round():
    ours, theirs = Measured("ours", (1.0, 10.0, 100.0)), Measured("theirs", (2.0, 20.0, 200.0))
    found = times_as_good(result("it", "vector", STEPS, [ours, theirs]), ours, theirs)
    assert (found.low, found.median, found.high) == (0.5, 0.5, 0.5)


@pytest.mark.parametrize("samples", [(), (1.0, 2.0), (0.0, 1.0, 2.0), (-1.0, 1.0, 2.0), (1e-200, 1e-200, 1e200)])
def test_what_cannot_be_compared_is_not(samples):
    ours, theirs = Measured("ours", (1.0, 2.0, 3.0)), Measured("theirs", samples, peer=True)
    it = result("it", "vector", STEPS, [ours, theirs])
    assert times_as_good(it, ours, theirs) is None
    assert rivalries(it) == []
