"""Pictures of learning curves: what is drawn is what was measured."""

import importlib.util
from textwrap import dedent

import numpy as np
import pytest

from velocirl.runs.curves.curve import draw_curve, draw_seeds
from velocirl.runs.seeds import SeedResult, aggregate

STEP = "time/total_timesteps"
BLUE, ORANGE = (58, 122, 196), (229, 123, 58)
RISING = [{STEP: step, "rollout/ep_rew_mean": 5.0 * step} for step in range(100, 1100, 100)]
EVALUATED = [{STEP: step, "eval/mean_reward": 2000.0, "eval/std_reward": 500.0} for step in (200, 900)]


def pixels(path, color):
    """Where a picture has a colour: rows and columns."""
    image = pytest.importorskip("matplotlib.image")
    picture = np.round(255 * image.imread(path)[..., :3])
    return np.nonzero(np.all(np.abs(picture - color) < 3, axis=-1))


def test_the_picture_shows_the_returns(tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "curve.png"
    assert draw_curve(RISING, path, "CartPole-v1 $x")
    rows, columns = pixels(path, BLUE)
    assert np.ptp(columns) > 700  # of 1200
    assert np.corrcoef(columns, rows)[0, 1] < -0.999  # a straight line upwards: rows count from the top
    assert len(pixels(path, ORANGE)[0]) == 0
    assert list(tmp_path.iterdir()) == [path]


def test_the_picture_shows_evaluations_with_their_spread(tmp_path):
    pytest.importorskip("matplotlib")
    wide, narrow = tmp_path / "wide.png", tmp_path / "narrow.png"
    band = tuple(round(0.2 * channel + 0.8 * 255) for channel in ORANGE)
    draw_curve([*RISING, *EVALUATED], wide, "")
    draw_curve([*RISING, *({**row, "eval/std_reward": None} for row in EVALUATED)], narrow, "")
    for path in (wide, narrow):
        rows, columns = pixels(path, ORANGE)
        middle = rows[(columns > 400) & (columns < 800)]  # beside the legend
        assert np.ptp(middle) <= 3  # both evaluations gave the same
    assert np.ptp(pixels(wide, band)[0]) > 90
    assert len(pixels(narrow, band)[0]) == 0


@pytest.mark.parametrize(
    "rows", [[], [{STEP: 1, "rollout/ep_rew_mean": None}], RISING[:1], EVALUATED, [{STEP: 5, "train/loss": 1.0}]]
)
def test_a_run_that_has_just_begun_has_a_picture_too(tmp_path, rows):
    image = pytest.importorskip("matplotlib.image")
    assert draw_curve(rows, tmp_path / "curve.png", "title")
    assert image.imread(tmp_path / "curve.png").shape[:2] == (675, 1200)


def test_a_failure_keeps_the_old_picture(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    path = tmp_path / "curve.png"
    path.write_bytes(b"old")

    def fail(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="No space left on device"):
        draw_curve(RISING, path, "title")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_without_matplotlib_there_is_no_picture(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert draw_curve(RISING, tmp_path / "curve.png", "title") is False
    assert list(tmp_path.iterdir()) == []


def test_pyplot_is_left_alone_and_matplotlib_is_imported_only_to_draw(tmp_path, run_script):
    pytest.importorskip("matplotlib")
    script = tmp_path / "draw.py"
    script.write_text(
        dedent("""
        import sys
        from velocirl.runs.curves.curve import draw_curve

        before = "matplotlib" in sys.modules
        draw_curve([{"time/total_timesteps": 1, "rollout/ep_rew_mean": 2.0}], sys.argv[1], "title")
        print(before, "matplotlib" in sys.modules, "matplotlib.pyplot" in sys.modules)
        """)
    )
    assert run_script(script, str(tmp_path / "curve.png")) == "False True False\n"


def seeds_of(*levels):
    return [[{STEP: step, "rollout/ep_rew_mean": level} for step in (0, 500, 1000)] for level in levels]


def mean_of(seeds):
    return aggregate([SeedResult(number, "finished", rows) for number, rows in enumerate(seeds)])


def test_the_picture_of_seeds_has_their_mean_in_a_band_and_thin_lines(tmp_path):
    pytest.importorskip("matplotlib")
    path, single = tmp_path / "curve.png", tmp_path / "single.png"
    seeds = seeds_of(100.0, 300.0, 290.0)
    assert draw_seeds(seeds, mean_of(seeds), path, "CartPole-v1")
    band = tuple(round(0.2 * channel + 0.8 * 255) for channel in BLUE)
    rows, columns = pixels(path, BLUE)
    body = rows[(columns > 600) & (columns < 1100)]  # beside the legend
    assert np.ptp(body) <= 4  # one thick line, level
    shaded, across = pixels(path, band)
    shaded = shaded[(across > 600) & (across < 1100)]
    # By hand: the mean is 230 and its interval reaches 4.3027 * 112.69 / sqrt(3) = 279.9 to each side.
    assert (shaded.min() + shaded.max()) / 2 == pytest.approx(body.mean(), abs=3)
    assert np.ptp(shaded) > 400
    assert draw_seeds(seeds[:1], mean_of(seeds[:1]), single, "CartPole-v1")
    shaded, across = pixels(single, band)
    assert len(shaded[across > 600]) == 0  # a single seed says nothing of others


@pytest.mark.parametrize("seeds", [[], [[]], [[{STEP: 5, "rollout/ep_rew_mean": None}]], [RISING[:1]], [RISING, []]])
def test_seeds_that_have_just_begun_have_a_picture_too(tmp_path, seeds):
    image = pytest.importorskip("matplotlib.image")
    assert draw_seeds(seeds, mean_of(seeds), tmp_path / "curve.png", "title")
    assert image.imread(tmp_path / "curve.png").shape[:2] == (675, 1200)


def test_without_matplotlib_seeds_have_no_picture(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert draw_seeds([RISING], mean_of([RISING]), tmp_path / "curve.png", "title") is False
    assert list(tmp_path.iterdir()) == []
