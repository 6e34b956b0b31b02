"""Flame graphs: what was busy is wide, and a page needs nothing from elsewhere."""

import re
import time
from types import SimpleNamespace

import pytest

from velocirl.bench.profiling.flame import boxes_of, draw_flame
from velocirl.bench.profiling.flame_page import Box, flame_page
from velocirl.bench.profiling.watching import Training


def frame(function, seconds, *children, synthetic=False):
    return SimpleNamespace(
        function=function, time=seconds, children=children, is_synthetic=synthetic, file_path_short="f.py", line_no=1
    )


def test_calls_of_one_function_are_one_box_and_compiled_loops_are_named():
    frames = [
        frame("learn", 3.0, frame("iterate", 2.0, frame("_Closure.12ab", 1.5)), frame("[self]", 1.0, synthetic=True)),
        frame("learn", 2.0, frame("iterate", 0.5, frame("_Closure.34cd", 0.25)), frame("talk", 1.5)),
    ]
    loop = Box("compiled loop", "", 1.75)
    iterate, talk = Box("iterate", "f.py:1", 2.5, (loop,)), Box("talk", "f.py:1", 1.5)
    assert boxes_of(frames) == (Box("learn", "f.py:1", 5.0, (iterate, talk)),)


def places(page):
    """Name, left, width (shares) and row of each box of a page."""
    found = re.findall(r'top:(\d+)px[^>]*data-left="([\d.]+)" data-width="([\d.]+)"[^>]*>([^<]*)</div>', page)
    return {name: (float(left), float(width), int(top) // 19) for top, left, width, name in found}


def test_boxes_lie_below_their_callers_as_wide_as_their_time():
    root = Box("learn", "", 4.0, (Box("<genexpr>", "a.py:3", 2.0, (Box("deep", "", 1.0),)), Box("tail", "", 1.0)))
    page = flame_page([root, Box("tiny", "", 0.0001)], 'a "title" & <more>')
    assert places(page) == {
        "learn": (0.0, pytest.approx(1.0, abs=1e-4), 0),
        "&lt;genexpr&gt;": (0.0, pytest.approx(0.5, abs=1e-4), 1),
        "deep": (0.0, pytest.approx(0.25, abs=1e-4), 2),
        "tail": (pytest.approx(0.5, abs=1e-4), pytest.approx(0.25, abs=1e-4), 1),
    }
    assert "<title>a &quot;title&quot; &amp; &lt;more&gt;</title>" in page
    assert "<more>" not in page
    assert flame_page([], "nothing").count("<div") == 1


def burn(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def learn():
    burn(0.3)
    time.sleep(0.1)
    return Training(seconds=0.4, steps=40, iterations=1)


def test_a_real_one(tmp_path):
    flame, training = draw_flame(learn, tmp_path, "burning", rate=125.0)
    assert training.steps == 40
    assert flame.slowdown == pytest.approx(0.25)  # 100 steps/s under the sampler, 125 without it
    assert flame.samples > 50
    assert flame.seconds == pytest.approx(0.4, abs=0.2)
    page = (tmp_path / flame.file).read_text()
    found = places(page)
    assert found["learn"] == (0.0, 1.0, 0)
    assert found["burn"][1] > 0.5
    for text in (page, (tmp_path / flame.calls).read_text()):
        assert "googleapis" not in text
        assert not re.search(r'(src|href)="?https?:', text)
