"""Pages of trajectories and reports of safety in a real browser: nothing is fetched, complained about or cut off."""

import re

import pytest
from browser import BROWSER, browse
from heated_tank import heat_fully, make_tank, open_fully

import velocirl

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no browser: install the package chromium"),
]

LOOKING = """<!doctype html><meta charset="utf-8"><iframe src="{name}" width="{width}" height="900"></iframe>
<pre id="seen"></pre><script>
document.querySelector("iframe").addEventListener("load", (event) => {{
  const page = event.target.contentDocument, inner = event.target.contentWindow;
  const cards = [...page.querySelectorAll(".panels .card")];
  const outside = cards.filter((card) => [...card.querySelectorAll("text, polyline")].some((one) => {{
    const [box, frame] = [one.getBoundingClientRect(), card.getBoundingClientRect()];
    return box.left < frame.left || box.right > frame.right + 1;
  }}));
  document.getElementById("seen").textContent = [
    page.documentElement.scrollWidth - page.documentElement.clientWidth,
    inner.performance.getEntriesByType("resource").length, cards.length, outside.length,
    [...page.querySelectorAll(".scroll")].filter((one) => one.scrollWidth > one.clientWidth).length,
    page.querySelectorAll(".limit").length > 0].join(" ");
}});
</script>"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder, tank = tmp_path_factory.mktemp("pages"), make_tank()
    velocirl.rollout(open_fully, tank, 3, device="python").save(folder / "record.html")
    options = {"seeds": 2, "episodes": 2, "responses": True, "device": "python"}
    velocirl.evaluate_safety(heat_fully, tank, ["nominal", "narrow"], **options).save(folder / "report.html")
    return folder


@pytest.mark.parametrize("width", [1280, 375])
@pytest.mark.parametrize(("name", "cards"), [("record.html", 7), ("report.html", 17)])
def test_everything_is_drawn_within_its_card(folder, name, cards, width):
    outside = folder / "outside.html"
    outside.write_text(LOOKING.format(name=name, width=width))
    output, complaints = browse(outside, "--window-size=1400,1000", "--dump-dom")
    assert complaints == []
    seen = re.search(r'<pre id="seen">(.*?)</pre>', output)
    assert seen is not None
    assert seen[1] == f"0 0 {cards} 0 0 true"
