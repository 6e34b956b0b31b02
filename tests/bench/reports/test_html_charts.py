from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from velocirl.bench.reports.html.svg import Mark, axis, bar, line_chart, stacked, strip
from velocirl.bench.statistics import Estimate
from velocirl.bench.units import TIMES
from velocirl.monitor.scales import Scale, linear, logarithmic

anything = st.floats(allow_nan=False, allow_infinity=False)


def elements(drawn, name):
    """The attributes of all elements of a kind, numbers without their units."""
    found = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attributes):
            if tag == name:
                found.append({key: _number(value) for key, value in attributes})

    Reader().feed(drawn)
    return found


def _number(text):
    try:
        return float(text.rstrip("%"))
    except ValueError:
        return text


def test_a_scale_is_a_straight_line_and_keeps_to_its_ends():
    scale = Scale(10.0, 20.0, 0.0, 100.0)
    assert [scale(value) for value in (10.0, 12.5, 20.0, 5.0, 99.0)] == [0.0, 25.0, 100.0, 0.0, 100.0]
    upside_down = Scale(0.0, 4.0, 180.0, 20.0)
    assert [upside_down(value) for value in (0.0, 1.0, 4.0)] == [180.0, 140.0, 20.0]


def test_a_logarithmic_scale_has_equal_decades():
    scale = logarithmic([0.2, 300.0], 0.0, 100.0)
    assert (scale.low, scale.high) == (0.1, 1000.0)
    assert [scale(value) for value in (0.1, 1.0, 10.0, 100.0, 1000.0)] == pytest.approx([0.0, 25.0, 50.0, 75.0, 100.0])
    assert scale.ticks() == pytest.approx([0.1, 1.0, 10.0, 100.0, 1000.0])
    assert scale(-5.0) == scale(0.0) == 0.0


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.0, 10.0, [0, 2, 4, 6, 8, 10]),
        (0.0, 4.2e6, [0, 1e6, 2e6, 3e6, 4e6]),
        (-1.0, 1.0, [-1, -0.5, 0, 0.5, 1]),
        (3.0, 3.0, []),
    ],
)
def test_marks_are_round(low, high, expected):
    assert Scale(low, high).ticks() == pytest.approx(expected)


@given(st.lists(anything, max_size=6), st.booleans(), anything)
def test_every_figure_has_a_place_on_every_scale(values, zero, value):
    for scale in (linear(values, 5.0, 95.0, zero=zero), logarithmic(values, 5.0, 95.0)):
        assert 5.0 <= scale(value) <= 95.0
        assert len(scale.ticks()) <= 21
        assert all(5.0 - 1e-6 <= scale(tick) <= 95.0 + 1e-6 for tick in scale.ticks())


@given(st.lists(st.floats(-1e12, 1e12), min_size=2, max_size=6, unique=True))
def test_larger_figures_stand_farther_along(values):
    scale = linear(values, 0.0, 100.0)
    places = [scale(value) for value in sorted(values)]
    assert places == sorted(places)
    assert 0.0 <= places[0] <= places[-1] <= 100.0


def test_a_bar_is_as_long_as_its_figure_with_its_interval_and_target():
    drawn = bar("it", Estimate(50.0, 40.0, 60.0), Scale(0.0, 200.0), "own", target=150.0)
    track, front = elements(drawn, "rect")
    assert (track["x"], track["width"]) == (0.0, 100.0)
    assert (front["x"], front["width"], front["class"]) == (0.0, 25.0, "bar own")
    whisker, low, high, target = elements(drawn, "line")
    assert (whisker["x1"], whisker["x2"]) == (20.0, 30.0)
    assert (low["x1"], high["x1"], target["x1"]) == (20.0, 30.0, 75.0)


@pytest.mark.parametrize(("ratio", "begin", "width"), [(10.0, 50.0, 25.0), (0.1, 25.0, 25.0), (1.0, 50.0, 0.2)])
def test_ratios_go_from_one_to_either_side(ratio, begin, width):
    _, front = elements(
        bar("it", Estimate(ratio, ratio, ratio), logarithmic([0.01, 100.0], 0.0, 100.0), "better"), "rect"
    )
    assert (front["x"], front["width"]) == (begin, width)


def test_bars_of_figures_below_zero_go_to_the_left():
    scale = linear([-100.0, 100.0], 0.0, 100.0, zero=True)
    _, front = elements(bar("it", Estimate(-50.0, -60.0, -40.0), scale, "own"), "rect")
    assert (front["x"], front["width"]) == (25.0, 25.0)


def test_samples_lie_where_they_belong():
    dots = elements(strip("it", [-0.1, 0.0, 0.05], Scale(-0.1, 0.1)), "circle")
    assert [dot["cx"] for dot in dots] == [0.0, 50.0, 75.0]


def test_parts_of_a_whole_follow_one_another():
    parts = elements(stacked("it", [("a", 0.5, "blue-0"), ("b", 0.3, "blue-1"), ("c", 0.2, "grey-0")]), "rect")
    assert [(part["x"], part["width"]) for part in parts] == [(0.0, 50.0), (50.0, 30.0), (80.0, 20.0)]


def test_a_line_chart_joins_its_points_and_marks_lie_between_them():
    points = [(Estimate(value, value - 1.0, value + 1.0), "run") for value in (10.0, 10.0, 20.0)]
    drawn = line_chart("it", points, [Mark(2, "good", "faster")], TIMES.say)
    dots = elements(drawn, "circle")
    assert [dot["cx"] for dot in dots] == [14.0, 55.5, 97.0]
    assert dots[0]["cy"] == dots[1]["cy"] > dots[2]["cy"]  # more is higher
    lines = elements(drawn, "line")
    (mark,) = (line for line in lines if line["class"] == "mark good")
    assert mark["x1"] == pytest.approx((55.5 + 97.0) / 2)
    paths = [line for line in lines if line["class"] == "path"]
    assert [(path["x1"], path["x2"]) for path in paths] == [(14.0, 55.5), (55.5, 97.0)]
    same = [(Estimate(value, value, value), "run") for value in (100.0, 101.0, 100.0)]
    heights = [dot["cy"] for dot in elements(line_chart("noise", same, [], TIMES.say), "circle")]
    assert 0.0 < max(heights) - min(heights) < 10.0  # a hundredth of the level does not fill the chart
    assert len(elements(line_chart("one", points[:1], [], TIMES.say), "circle")) == 1


def test_an_axis_keeps_its_words_within():
    anchors = [text["text-anchor"] for text in elements(axis(Scale(0.0, 10.0), str), "text")]
    assert (anchors[0], anchors[-1], set(anchors[1:-1])) == ("start", "end", {"middle"})
