"""Flame graph as one self-contained HTML page: a box's width is its time, callers are above."""

from __future__ import annotations

import html
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

ROW = 19  # pixels
LEAST = 0.0005  # of the total time; narrower boxes would be invisible
PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 13px system-ui, sans-serif; margin: 24px; color: #252b36; background: #fff }}
h1 {{ font-size: 16px; margin: 0 0 4px }} p {{ margin: 0 0 14px; color: #69717d }}
#graph {{ position: relative; height: {height}px; overflow: hidden }}
#graph div {{ position: absolute; height: {inner}px; overflow: hidden; white-space: nowrap; cursor: pointer;
  padding: 0 3px; box-sizing: border-box; line-height: {inner}px; border-radius: 2px; font-size: 12px;
  border-right: 1px solid #fff }}
#graph div:hover {{ filter: brightness(0.9) }}
#said {{ min-height: 18px; margin-top: 10px; font-family: ui-monospace, monospace }}
</style></head><body>
<h1>{title}</h1><p>Callers above, what they call below; as wide as its time. Click on a box to see it whole.</p>
<div id="graph">{boxes}</div><p id="said"></p>
<script>
const graph = document.getElementById("graph"), boxes = [...graph.children], said = document.getElementById("said");
function show(left, width) {{
  for (const box of boxes) {{
    const from = Math.max(+box.dataset.left, left), to = Math.min(+box.dataset.left + +box.dataset.width, left + width);
    box.style.display = to - from > width * 1e-4 ? "" : "none";
    box.style.left = 100 * (from - left) / width + "%";
    box.style.width = 100 * (to - from) / width + "%";
  }}
}}
graph.addEventListener("click", event => {{
  const box = event.target.closest("#graph div");
  if (box) show(+box.dataset.left, +box.dataset.width);
}});
graph.addEventListener("mouseover", event => {{ said.textContent = event.target.title || ""; }});
</script></body></html>
"""


@dataclass(frozen=True)
class Box:
    """A function, its time including its callees, and the boxes below it."""

    name: str
    place: str
    seconds: float
    below: tuple[Box, ...] = ()


def flame_page(boxes: Sequence[Box], title: str) -> str:
    """Render boxes, side by side, as an HTML page."""
    total = sum(box.seconds for box in boxes)
    placed = list(_placed(boxes, 0.0, 0, total)) if total > 0 else []
    rows = 1 + max((depth for _, _, depth in placed), default=0)
    text = "".join(_drawn(box, left / total, depth, total) for box, left, depth in placed)
    return PAGE.format(title=html.escape(title), boxes=text, height=ROW * rows, inner=ROW - 1)


def _placed(boxes: Sequence[Box], left: float, depth: int, total: float) -> Iterator[tuple[Box, float, int]]:
    """Yield each visible box with its left edge in seconds and its depth."""
    for box in boxes:
        if box.seconds >= LEAST * total:
            yield box, left, depth
            yield from _placed(box.below, left, depth + 1, total)
        left += box.seconds


def _drawn(box: Box, left: float, depth: int, total: float) -> str:
    width = box.seconds / total
    name, place = html.escape(box.name), html.escape(box.place)
    said = f"{name}  {place}  {box.seconds:.3f} s, {width:.1%}"
    color = f"hsl({20 + zlib.crc32(box.name.encode()) % 40}, 85%, {68 + zlib.crc32(box.place.encode()) % 10}%)"
    style = f"left:{100 * left:.4f}%;width:{100 * width:.4f}%;top:{ROW * depth}px;background:{color}"
    data = f'data-left="{left:.6f}" data-width="{width:.6f}"'
    return f'<div style="{style}" {data} title="{said}">{name}</div>'
