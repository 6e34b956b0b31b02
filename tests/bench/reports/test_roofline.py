import pytest
from planted_report import PEAKS, measured, planted_report, result

from velocirl.bench.machine.cost import Cost
from velocirl.bench.reports.roofline import points, share_in, units_per_second
from velocirl.bench.results import Measured
from velocirl.bench.units import ROWS, SECONDS, STEPS


def test_shares_are_those_of_the_report_itself():
    report = planted_report()
    for one in report.results:
        for contestant in one.contestants:
            assert share_in(one, contestant, report.peaks) == report.share(one, contestant)


def test_of_a_time_as_of_a_rate():
    rate = measured("rate", 2e5, 0.0, cost=Cost(operations=1.5e5))  # 30 of 75 GFLOP/s
    time = measured("time", 5e-6, 0.0, cost=Cost(operations=1.5e5))
    assert share_in(result("it", "network", ROWS, [rate]), rate, PEAKS).of_peak == pytest.approx(0.4)
    assert share_in(result("it", "network", SECONDS, [time]), time, PEAKS).of_peak == pytest.approx(0.4)


@pytest.mark.parametrize("samples", [(), (0.0,) * 3, (-1.0,) * 3, (5e-324,) * 3, (1e308,) * 3])
def test_there_is_no_share_of_what_is_no_speed(samples):
    one = Measured("odd", samples, cost=Cost(operations=1.0))
    assert units_per_second(result("it", "network", SECONDS, [one]), one) is None
    assert share_in(result("it", "network", SECONDS, [one]), one, PEAKS) is None


def test_points_need_both_costs_and_are_ours():
    both, one_only = Cost(operations=200.0, bytes=50.0), Cost(operations=200.0)
    contestants = [
        measured("ours", 1e7, 0.0, cost=both),
        measured("half known", 1e7, 0.0, cost=one_only),
        measured("theirs", 1e7, 0.0, cost=both, peer=True),
        measured("unknown", 1e7, 0.0),
    ]
    report = planted_report(results=[result("it", "vector", STEPS, contestants)])
    (point,) = points(report)
    assert (point.contestant, point.intensity) == ("ours", 4.0)
    assert point.operations_per_second == pytest.approx(2e9)
    assert (point.share.bound, point.share.of_peak) == ("memory", pytest.approx(1e7 * 50 / 12e9))
    assert points(planted_report(peaks=None)) == []
