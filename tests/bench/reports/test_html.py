import dataclasses
import math
import re
from html.parser import HTMLParser

import pytest
from planted_report import (
    HOSTILE,
    hostile_report,
    measured,
    planted_baseline,
    planted_changes,
    planted_history,
    planted_report,
    result,
)

from velocirl.bench.history.runs import History
from velocirl.bench.machine.cost import Cost
from velocirl.bench.reading import read_report
from velocirl.bench.reports.html import html_report, write_html
from velocirl.bench.reports.html.key_figures import gauge, key_figure_section
from velocirl.bench.reports.html.limits import limit_section
from velocirl.bench.reports.html.phases import phase_section
from velocirl.bench.reports.html.roofline_plot import HEIGHT, roofline_plot
from velocirl.bench.reports.kpis import INDICATORS, readings
from velocirl.bench.results import Measured
from velocirl.bench.statistics import Estimate
from velocirl.bench.units import RETURN, ROWS, SECONDS, STEPS
from velocirl.monitor.markup import escaped, joined, table, tag
from velocirl.monitor.pages.words import with_code

VOID = {"meta", "link", "input"}
SECTIONS = ["key-figures", "changes", "next", "categories", "limits", "peers", "trends", "phases", "benchmarks"]


class Page(HTMLParser):
    """The elements, attributes and texts of a page whose tags must be balanced."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.texts = [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, name, attributes):
        self.elements.append((name, dict(attributes)))
        if name not in VOID:
            self.open.append(name)

    def handle_endtag(self, name):
        assert self.open.pop() == name

    def handle_data(self, data):
        if not {"script", "style"} & set(self.open):
            self.texts.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())

    def all(self, name):
        return [attributes for element, attributes in self.elements if element == name]


@pytest.fixture(scope="module")
def full():
    report, baseline, history = planted_report(), planted_baseline(), planted_history()
    return Page(html_report(report, changes=planted_changes(report, baseline), baseline=baseline, history=history))


def test_every_section_is_there_and_the_navigation_knows_it(full):
    assert [one["id"] for one in full.all("section")] == SECTIONS
    assert [one["href"] for one in full.all("a")] == [f"#{name}" for name in SECTIONS]
    assert len(full.all("svg")) > 60
    assert all(one.get("aria-label") is not None for one in full.all("svg"))


def test_the_head_says_what_was_measured_where_and_what_came_of_it(full):
    for part in (
        "AMD EPYC 9654 96-Core Processor, 2 cores, 24 GiB",
        "2026-11-16 00:30:00+00:00",
        "velocirl bench --peers --html report.html",
        "1e93572c0ffee",
        "numpy 2.4.6",
        "Only a part of the run: it was interrupted after 16 benchmarks.",
        "Ended by an error: 1. broken",
        "11/13 targets met 2 missed",
        "4/6 key figures within target 2 short",
        "3 regressions 1 improved",
    ):
        assert part in full.text


def test_figures_shares_and_reasons_are_told(full):
    slower = next(one for one in planted_changes(planted_report(), planted_baseline()) if one.severity == "failure")
    low, high = slower.ratio.low - 1.0, slower.ratio.high - 1.0
    for part in (
        "210M steps/s 84% of peak bandwidth",
        "ppo_4_epochs velocirl, 1 thread / Stable-Baselines3 319x",
        "update/backward 21.0%",
        "rollout, the rest 2.0%",
        f"-15.3% {low:+.1%} to {high:+.1%} failure",
        "17 of 21 figures are as they were",
        "RuntimeError: the workers did not answer within 30 s",
        "too noisy to conclude from (spread above 10%): velocirl, 2 threads 15%",
        "interrupted: these are the rounds so far",
        "envpool is not installed",
        "no CUDA device",
        "Use threads=1 for work of this size: 2 threads are slower",
        "began with 080808080808, the last run before is of 070707070707",
        "in the latest of 15 runs",
    ):
        assert part in full.text


def test_nothing_is_fetched_and_the_policy_allows_nothing_else():
    text = html_report(planted_report(results=planted_report().results[:5]))
    page = Page(text)
    assert "http:" not in text.replace("http-equiv", "")
    assert "https:" not in text
    assert {one["href"] for one in page.all("link")} == {"data:,"}
    assert not any("src" in attributes or "style" in attributes for _, attributes in page.elements)
    policy = page.all("meta")[1]["content"]
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy


def test_a_baseline_without_changes_and_no_baseline():
    empty = planted_report(results=[])
    assert "no baseline to compare with" in html_report(empty)
    same = Page(html_report(empty, baseline=empty))
    assert "0 regressions" in same.text
    assert "Compared with the run of 2026-11-16" in same.text


def test_trends_are_of_the_machine_of_the_report_and_need_two_runs(tmp_path):
    report = planted_report(results=[measured_one()])
    history = History.open(tmp_path / "history.sqlite")
    history.add(report)
    assert 'id="trends"' not in html_report(report, history=history)
    history.add(report)
    assert "too few runs to find changes: 2" in html_report(report, history=history)
    elsewhere = dataclasses.replace(report, machine=dataclasses.replace(report.machine, cores=64))
    assert 'id="trends"' not in html_report(elsewhere, history=history)


def test_an_empty_run_is_a_page_too():
    page = Page(html_report(planted_report(results=[], peaks=None)))
    assert [one["id"] for one in page.all("section")] == ["next", "benchmarks"]
    assert "Nothing was measured." in page.text


def test_what_was_not_measured_is_named_once_and_left_out(full):
    assert full.text.count("no CUDA device") == full.text.count("envpool is not installed") == 1
    assert full.text.count("not measured") == full.text.count("Safety checks") == 0
    assert "Not measured: cuda_loop (no CUDA device); EnvPool of cartpole_4096 (envpool is not installed)." in full.text
    glance = planted_report(results=[measured_one()], left_out=("leaks", "sparse_table"))
    assert "Not measured: leaks, sparse_table (no time at a glance)." in Page(html_report(glance)).text
    nothing = planted_report(results=[one for one in planted_report().results if one.name == "cuda_loop"])
    assert [one["id"] for one in Page(html_report(nothing)).all("section")] == ["next", "benchmarks"]


def measured_one():
    return result("small", "vector", STEPS, [measured("velocirl", 1.0)])


def test_what_a_hostile_report_says_is_shown_and_never_run(tmp_path):
    report = hostile_report()
    page = Page(html_report(report, baseline=report, changes=planted_changes(report, report)))
    assert len(page.all("script")) == 1
    assert page.all("img") == []
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)
    assert " ".join(HOSTILE.split()) in page.text
    # The same by way of a file.
    path = tmp_path / "report.json"
    path.write_text(report.as_json())
    assert len(Page(html_report(read_report(path))).all("script")) == 1


@pytest.mark.parametrize(
    "samples", [(0.0, 0.0, 0.0), (-1.0, 0.0, 2.0), (1e308, 1e308, 1e308), (5e-324,) * 3, (-3.0,) * 3]
)
@pytest.mark.parametrize("unit", [STEPS, SECONDS, RETURN])
def test_figures_of_any_size_and_sign_can_be_drawn(samples, unit):
    contestants = [Measured("velocirl", samples, 1), Measured("peer", (1.0, 2.0, 3.0), 1, peer=True)]
    page = Page(html_report(planted_report(results=[result("odd", "training", unit, contestants)])))
    for _, attributes in page.elements:
        for name in ("x", "y", "x1", "x2", "y1", "y2", "width", "height", "cx", "cy"):
            assert re.fullmatch(r"-?\d+(\.\d+)?%?", attributes.get(name, "0")), (name, attributes)


def test_odd_characters_of_a_report_are_replaced():
    assert escaped("a\x00b\ud800c\u202ed") == "a\ufffdb\ufffdc\ufffdd"
    html_report(planted_report(results=[result("\ud800", "x", STEPS, [measured("\x1b[31m", 1.0)])])).encode()


def test_code_in_words():
    assert with_code("a `step` of <it>") == "a <code>step</code> of &lt;it&gt;"
    assert with_code("one ` open") == "one ` open"


def test_limits_are_told_without_both_costs_and_the_roofline_with_them():
    one_cost = measured("velocirl", 5e4, cost=Cost(operations=3e5))
    bound = limit_section(planted_report(results=[result("forward", "network", ROWS, [one_cost])]))
    assert "Bound by arithmetic" in bound
    assert "<b>20%</b>" in bound
    assert "1 core 75.0 GFLOP/s, 2 cores 148 GFLOP/s" in bound
    assert "Roofline" not in bound
    assert "Roofline" in limit_section(planted_report())
    assert limit_section(planted_report(peaks=None)) == ""


def test_a_point_lies_below_its_roof_by_its_share():
    point = measured("velocirl", 5e4, cost=Cost(operations=3e5, bytes=3e3))  # 100 operations for each byte
    drawn = roofline_plot(planted_report(results=[result("forward", "network", ROWS, [point])]))
    (circle,) = Page(drawn).all("circle")
    slope, roof = (line for line in Page(drawn).all("line") if line["class"] == "roof")
    decade = (HEIGHT - 26.0 - 12.0) / 1.0  # of one from 10 to 100 GFLOP/s
    assert float(circle["cy"]) - float(roof["y1"]) == pytest.approx(decade * -math.log10(0.2), abs=0.02)
    assert slope["x2"] == roof["x1"]


def test_markup_escapes_all_but_its_own():
    inner = tag("b", "<i>", class_="a", text_anchor="middle", x=1.5, hidden=True, title=None)
    assert inner == '<b class="a" text-anchor="middle" x="1.5" hidden>&lt;i&gt;</b>'
    assert joined(inner, "&") == inner + "&amp;"
    assert tag("a", title='"><') == '<a title="&quot;&gt;&lt;"></a>'
    rows = Page(table(["name", "figure"], [["a", "1"]], numeric={1}))
    assert rows.all("td") == [{}, {"class": "number", "data-heading": "figure"}]


def test_a_file_is_written_whole_or_stays_as_it_was(tmp_path):
    path = tmp_path / "report.html"
    path.write_text("old")
    with pytest.raises(AttributeError):
        write_html(path, None)
    assert path.read_text() == "old"
    small = planted_report(results=[measured_one()])
    write_html(path, small)
    assert path.read_text(encoding="utf-8") == html_report(small)
    assert list(tmp_path.iterdir()) == [path]


def test_colours_of_key_figures():
    text = key_figure_section(planted_report())
    states = re.findall(r'class="pill (\w+)">(met|short|alert|not measured)<', text)
    assert states == [("good", "met")] * 3 + [("fair", "short")] * 2 + [("good", "met")]


@pytest.mark.parametrize("factor", [1e-9, 1.0, 3.0, 1e9])
@pytest.mark.parametrize("indicator", INDICATORS, ids=lambda one: one.name)
def test_the_needle_stands_in_its_zone(indicator, factor):
    """Good, fair and bad from left to right, whichever direction is better."""
    worse = 1.0 / factor if indicator.unit.more_is_better else factor
    (reading,) = readings(planted_report(results=[]), [indicator])
    figure = indicator.target * worse
    drawn = Page(gauge(dataclasses.replace(reading, estimate=Estimate(figure, figure, figure))))
    good, fair, bad = drawn.all("rect")
    (needle,) = drawn.all("line")
    edges = [float(one["x"].rstrip("%")) for one in (good, fair, bad)]
    assert edges[0] == 0.0
    assert edges == sorted(edges)
    at = float(needle["x1"].rstrip("%"))
    if factor < 1.0:
        assert at < edges[1]
    elif factor == 1.0:
        assert at == pytest.approx(edges[1], abs=0.1)
    elif factor == 1e9:
        assert at > edges[2]


def test_phases_fill_the_whole_bar():
    drawn = Page(phase_section(planted_report()))
    widths = [float(one["width"].rstrip("%")) for one in drawn.all("rect") if "segment" in one.get("class", "")]
    assert sum(widths) == pytest.approx(200.0, abs=0.5)  # two trainings
