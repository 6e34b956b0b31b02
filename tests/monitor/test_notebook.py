"""Training in a notebook: one output, exchanged as it goes, whose texts are only ever texts."""

import re
import sys
import xml.etree.ElementTree as ET
from types import ModuleType, SimpleNamespace

import pytest
from rich.text import Text
from watched_agent import advance, agent_at

from velocirl.monitor import watcher as module
from velocirl.monitor.attention import in_notebook
from velocirl.monitor.notebook import NotebookDisplay, curve


@pytest.fixture
def cell(monkeypatch):
    """What a notebook was given to show: a list of outputs, each with all that it was exchanged for."""
    outputs = []

    def display(bundle, *, raw, display_id):
        assert raw
        assert display_id
        outputs.append([bundle])
        return SimpleNamespace(update=lambda bundle, raw: outputs[-1].append(bundle))

    ipython, displaying = ModuleType("IPython"), ModuleType("IPython.display")
    ipython.get_ipython, displaying.display = (lambda: SimpleNamespace(kernel=object())), display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", displaying)
    return outputs


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])
    return now


def words(bundle):
    """The texts of a picture; it is XML too, so that nothing in it is open."""
    return " ".join(" ".join(ET.fromstring(bundle["text/html"]).itertext()).split())


def test_a_kernel_is_a_notebook_and_a_terminal_is_none(cell, monkeypatch):
    assert in_notebook()
    sys.modules["IPython"].get_ipython = lambda: SimpleNamespace()  # IPython in a terminal
    assert not in_notebook()
    sys.modules["IPython"].get_ipython = lambda: None  # imported by somebody, and not running
    assert not in_notebook()
    monkeypatch.delitem(sys.modules, "IPython")
    assert not in_notebook()


def test_one_output_is_exchanged_and_shows_how_far_how_fast_and_how_long(cell, clock):
    agent, display = agent_at(), NotebookDisplay(lambda agent, seconds: [Text(f"over after {seconds:.0f} s")])
    display.prepare(agent)
    assert "compiling for this processor, once" in words(cell[0][-1])
    display.start(agent)
    for n in range(1, 41):
        clock[0] += 0.25
        advance(agent, **{"rollout/ep_rew_mean": float(n), "train/value_loss": 0.5, "time/update_share": 1.0})
        display.step(agent)
    display.finish(agent)
    (pictures,) = cell
    assert len(pictures) == pytest.approx(10.0 / 0.5, abs=5)
    last = words(pictures[-1])
    for said in (
        "CartPole-v1 ppo, seed 7",
        "4k of 100k steps · 1.23M/s · 4:00 left",
        "return 40.0",
        "value loss 0.500",
    ):
        assert said in last
    assert last.endswith("over after 10 s")
    assert pictures[-2]["text/plain"] == "CartPole-v1 ppo: 4k of 100k steps   1.23M/s   4:00 left"
    assert 'value="40" max="1000"' in pictures[-1]["text/html"]


def test_nothing_is_shown_of_what_is_over_soon(cell, clock):
    agent, display = agent_at(total=1000), NotebookDisplay(lambda *_: [Text("over")], after=2.0)
    display.prepare(agent)
    display.start(agent)
    for _ in range(10):
        clock[0] += 0.15
        advance(agent, **{"rollout/ep_rew_mean": 1.0})
        display.step(agent)
    display.finish(agent)
    assert cell == []


def test_the_curve_goes_through_the_returns():
    drawn = curve([0, 100, 200], [None, 10.0, 30.0])
    (places,) = re.findall(r'points="([^"]+)"', drawn)
    (x1, y1), (x2, y2) = (map(float, place.split(",")) for place in places.split())
    assert x1 < x2
    assert y1 > y2  # upwards
    assert ">10.0<" in drawn
    assert ">30.0<" in drawn
    assert curve([1], [2.0]) == curve([], []) == ""


def test_names_of_anybodys_are_texts(cell):
    agent, display = agent_at(), NotebookDisplay()
    agent.source.id = "<script>alert(1)</script>"
    agent.device_reason = "<b>"
    display.start(agent)
    display.end()
    assert "<script>" not in cell[0][-1]["text/html"]
    assert "<script>alert(1)</script>" in words(cell[0][-1])
