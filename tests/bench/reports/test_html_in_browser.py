"""The page in a real browser: what is drawn, what is fetched, and what the browser complains about."""

import html
import json
import re

import pytest
from browser import BROWSER, browse
from planted_report import (
    HOSTILE,
    hostile_report,
    planted_baseline,
    planted_changes,
    planted_history,
    planted_report,
)

from velocirl.bench.reports.html import write_html

DARK = "--blink-settings=preferredColorScheme=0"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no browser: install the package chromium"),
]

# A page around the report's own, which looks at it from outside: the report's policy lets nobody else's script in.
LOOKING = """<!doctype html><meta charset="utf-8"><iframe src="report.html" width="{width}" height="900"></iframe>
<pre id="seen"></pre><script>
const frame = document.querySelector("iframe");
frame.addEventListener("load", () => {{
  const page = frame.contentDocument, inner = frame.contentWindow;
  const size = (one) => {{ const box = one.getBoundingClientRect(); return [box.width, box.height]; }};
  const all = (words) => [...page.querySelectorAll(words)];
  const shown = () => all(".block").filter((one) => one.getBoundingClientRect().height > 0).length;
  const seen = {{
    sections: Object.fromEntries(all("section").map((one) => [one.id, size(one)])),
    drawings: all("svg").map(size),
    marks: all("rect, circle, line").length,
    background: inner.getComputedStyle(page.body).backgroundColor,
    overflow: page.documentElement.scrollWidth - page.documentElement.clientWidth,
    fetched: inner.performance.getEntriesByType("resource").map((one) => one.name),
    hacked: inner.hacked ?? null,
    scripts: all("script").length,
    text: page.body.innerText,
    blocks: shown(),
  }};
  const find = page.getElementById("find"), table = page.querySelector(".contestants");
  const first = () => table.tBodies[0].rows[0].cells[0].textContent;
  seen.order = [first()];
  for (let click = 0; click < 2; click++) {{ table.querySelectorAll("th")[1].click(); seen.order.push(first()); }}
  find.value = "CartPole_4096";
  find.dispatchEvent(new Event("input"));
  seen.found = shown();
  document.getElementById("seen").textContent = JSON.stringify(seen);
}});
</script>"""


def look(folder, width, *options):
    """What is seen of the report in a folder through a window of a width; nothing may be complained about."""
    outside = folder / "outside.html"
    outside.write_text(LOOKING.format(width=width), encoding="utf-8")
    output, complaints = browse(outside, "--window-size=1400,1000", "--dump-dom", *options)
    assert complaints == []
    found = re.search(r'<pre id="seen">(.*?)</pre>', output, re.DOTALL)
    assert found is not None
    return json.loads(html.unescape(found[1]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    report, baseline = planted_report(), planted_baseline()
    changes = planted_changes(report, baseline)
    write_html(folder / "report.html", report, changes=changes, baseline=baseline, history=planted_history())
    return folder


@pytest.mark.parametrize("width", [1280, 375])
def test_everything_is_drawn_and_nothing_is_fetched(folder, width):
    seen = look(folder, width)
    assert len(seen["sections"]) == 9
    assert all(across > 250 and down > 80 for across, down in seen["sections"].values())
    assert len(seen["drawings"]) > 60
    assert all(across >= 10 and down >= 10 for across, down in seen["drawings"])
    assert seen["marks"] > 500
    assert seen["fetched"] == []
    assert seen["overflow"] == 0  # nobody has to scroll sideways
    assert "Use threads=1" in seen["text"]
    assert "319x" in seen["text"]
    # What the page's own script adds: tables are sorted, first up, then down, and benchmarks are found.
    assert seen["order"] == ["import numba, gymnasium", "import numba, gymnasium", "first step, cold cache"]
    assert (seen["blocks"], seen["found"]) == (15, 1)  # one was not measured


def test_it_is_dark_where_that_is_preferred(folder):
    light, dark = look(folder, 1280), look(folder, 1280, DARK)
    assert [sum(map(int, re.findall(r"\d+", one["background"]))) > 380 for one in (light, dark)] == [True, False]


@pytest.mark.parametrize(("width", "height"), [(1280, 2000), (500, 2000)])
def test_a_picture_of_it_can_be_taken(folder, width, height):
    picture = folder / f"{width}.png"
    browse(folder / "report.html", f"--window-size={width},{height}", f"--screenshot={picture}")
    content = picture.read_bytes()
    assert content.startswith(b"\x89PNG")
    assert [int.from_bytes(content[at : at + 4], "big") for at in (16, 20)] == [width, height]
    assert len(content) > 50_000  # an empty page has 12,000


def test_it_can_be_printed(folder):
    paper = folder / "report.pdf"
    browse(folder / "report.html", f"--print-to-pdf={paper}", DARK)
    assert paper.read_bytes().startswith(b"%PDF")
    assert 3 <= len(re.findall(rb"/Type\s*/Page\b", paper.read_bytes())) <= 20


def test_what_a_hostile_report_says_does_not_run(tmp_path):
    report = hostile_report()
    write_html(tmp_path / "report.html", report, changes=planted_changes(report, report), baseline=report)
    seen = look(tmp_path, 1280)
    assert (seen["hacked"], seen["scripts"], seen["fetched"]) == (None, 1, [])
    assert HOSTILE in seen["text"]


def test_the_policy_stops_what_escaping_would_let_through(folder, tmp_path):
    """The second lock by itself: a script and an image that somebody got into the page."""
    text = (folder / "report.html").read_text(encoding="utf-8")
    smuggled = "<script>window.hacked = 1</script><img src='http://example.com/x.png'></body>"
    (tmp_path / "report.html").write_text(text.replace("</body>", smuggled), encoding="utf-8")
    _, complaints = browse(tmp_path / "report.html", "--dump-dom")
    assert len(complaints) == 2
    assert all("Content Security Policy" in line for line in complaints)
