"""`velocirl plot`: several runs in one plot, in a terminal, a picture, a page and as figures."""

import csv
import io
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from rich.console import Console

from velocirl.cli.main import main
from velocirl.cli.plot.command import choose_metric, show
from velocirl.runs.curves.comparing import find_subjects, plot_of
from velocirl.runs.curves.curve import PALETTE
from velocirl.runs.directory import Plan, create_run
from velocirl.runs.groups import create_group
from velocirl.runs.metrics import STEP

RETURN = "rollout/ep_rew_mean"
PLAN = Plan(total_steps=1000, checkpoint_every=100)


@pytest.fixture
def make(tmp_path):
    """A run whose return goes up by a slope, and its loss down."""

    def make(path="one", algorithm="ppo", seed=0, slope=1.0, *, evaluated=False, points=20):
        run = create_run(tmp_path / path, "CartPole-v1", algorithm, {}, seed, plan=PLAN)
        with run.metrics() as log:
            for n in range(1, points + 1):
                row = {STEP: 50 * n, "time/time_elapsed": 0.1 * n, RETURN: slope * n, "train/loss": 1.0 / n}
                log.append({**row, **({"eval/mean_reward": 2.0 * slope * n} if evaluated and n % 5 == 0 else {})})
        run.set_status("finished")
        return str(run.path)

    return make


@pytest.fixture
def group(make, tmp_path):
    found = create_group(tmp_path / "group", "CartPole-v1", "dqn", range(5), {}, PLAN)
    for seed in range(5):
        make(f"group/seed-{seed}", "dqn", seed, slope=10.0 + seed)
    return str(found.path)


def lines_of(capsys, *arguments):
    main(["plot", *arguments])
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out.splitlines()


def test_one_run_is_plotted_in_a_terminal(make, capsys):
    make()
    lines = lines_of(capsys)  # the newest
    assert lines[0] == "mean episode return: CartPole-v1  ppo"
    assert any("⠉" in line or "⠤" in line or "⡠" in line for line in lines)
    assert lines[-1] == "one: 20.0 after 1k steps"
    assert lines[-2].strip() == "environment steps"


def test_without_colours_each_run_has_a_sign(make, group, capsys):
    lines = lines_of(capsys, make(), group)
    assert lines[0] == "mean episode return: CartPole-v1"
    assert lines[-2] == "* one: 20.0 after 1k steps"
    assert re.fullmatch(
        r"o group, 5 seeds: 240\.0 \([\d.]+ to [\d.]+, the interquartile .*\) after 1k steps", lines[-1]
    )
    drawn = "\n".join(lines[1:-3])
    assert drawn.count("*") > 20
    assert drawn.count("o") > 20


def test_in_a_terminal_each_run_has_a_colour_and_evaluations_are_dots(make):
    subjects = find_subjects([make("one", evaluated=True), make("two", slope=3.0)])
    console = Console(file=io.StringIO(), force_terminal=True, width=80, color_system="standard", legacy_windows=False)
    show(console, plot_of(subjects, RETURN))
    text = console.file.getvalue()
    assert re.search(r"\x1b\[94m[⠁-⣿]", text)
    assert re.search(r"\x1b\[33m[⠁-⣿]", text)
    assert re.search(r"\x1b\[94m●", text)
    assert max(len(re.sub(r"\x1b\[[\d;]*m", "", line)) for line in text.splitlines()[:-2]) <= 80
    assert "one: 20.0 after 1k steps; evaluation 40.0" in text


def test_any_figure_by_its_name_the_end_of_it_or_what_displays_call_it(make, refused, capsys):
    subjects = find_subjects([make()])
    assert [choose_metric(word, subjects) for word in ("train/loss", "loss", "return", RETURN)] == [
        "train/loss", "train/loss", RETURN, RETURN,
    ]  # fmt: skip
    lines = lines_of(capsys, "--metric", "loss", "--x", "time", "--smooth", "2")
    assert lines[0] == "train/loss: CartPole-v1  ppo"
    assert lines[-1] == "one: 0.051 after 2.0 s"
    assert "there is no figure 'los' in these runs: did you mean 'loss'?" in refused("plot", "--metric", "los")


def test_the_picture_has_every_line_and_the_band_of_the_seeds(make, group, tmp_path, capsys):
    image = pytest.importorskip("matplotlib.image")
    path = tmp_path / "curves.png"
    assert lines_of(capsys, make("a $x$"), group, "--out", str(path))[-1] == f"png   {path}"
    picture = np.round(255 * image.imread(path)[..., :3])
    for color in PALETTE[:2]:
        wanted = [int(color[n : n + 2], 16) for n in (1, 3, 5)]
        assert np.count_nonzero(np.all(np.abs(picture - wanted) < 3, axis=-1)) > 500
    band = [round(0.18 * int(PALETTE[1][n : n + 2], 16) + 0.82 * 255) for n in (1, 3, 5)]
    assert np.count_nonzero(np.all(np.abs(picture - band) < 3, axis=-1)) > 500


class Page(HTMLParser):
    """Counts elements by tag and class, and notes what would be fetched."""

    def __init__(self):
        super().__init__()
        self.found, self.fetched, self.text = [], [], []

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.found.append((tag, given.get("class") or ""))
        self.fetched += [value for name, value in attributes if name in ("src", "href") and not value.startswith("#")]

    def handle_data(self, data):
        self.text.append(data)


def test_the_page_needs_nothing_else_and_shows_names_as_text(make, group, tmp_path, capsys):
    path = tmp_path / "curves.html"
    lines_of(capsys, make("<b>one", evaluated=True), group, "--out", str(path))
    page = Page()
    page.feed(path.read_text())
    assert page.fetched == ["data:,"]
    assert [tag for tag, _ in page.found].count("b") == 2  # where both lines end, and not in the name
    kinds = [kind for tag, kind in page.found if tag in ("polyline", "polygon")]
    assert kinds == ["curve line-0", "curve dashed line-0", "band line-1", "curve line-1"]
    said = " ".join(" ".join(page.text).split())
    for text in ("<b>one", "group, 5 seeds", "interquartile mean", "Dashed lines are evaluations", "240.0", "40.0"):
        assert text in said
    assert "Content-Security-Policy" in path.read_text()


def test_json_and_csv_have_the_points(make, group, tmp_path, capsys):
    table = tmp_path / "points.csv"
    main(["plot", make(evaluated=True), group, "--json", "--out", str(table)])
    found = json.loads(capsys.readouterr().out)
    one, several = found["lines"]
    assert (found["metric"], found["x"], one["name"], several["seeds"]) == (RETURN, "steps", "one", 5)
    assert one["x"] == [50.0 * n for n in range(1, 21)]
    assert one["y"] == one["low"] == one["high"] == [float(n) for n in range(1, 21)]
    assert one["evaluation"]["y"] == [10.0, 20.0, 30.0, 40.0]
    assert several["y"] == pytest.approx([12.0 * n for n in range(1, 21)])
    assert all(low <= y <= high for low, y, high in zip(*(several[name] for name in ("low", "y", "high")), strict=True))
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert len(rows) == 44
    assert rows[0] == {"name": "one", "figure": RETURN, "steps": "50.0", "value": "1.0", "low": "1.0", "high": "1.0"}
    assert [row["figure"] for row in rows].count("evaluation") == 4


def test_runs_of_one_algorithm_are_put_together(make, capsys):
    names = [make(f"run{n}", seed=n, slope=1.0 + n) for n in range(4)]
    assert lines_of(capsys, *names, "--group")[-1].startswith("ppo CartPole-v1, 4 seeds: 50.0 (")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "there is no run 'nowhere'"),
        (["--x", "place"], "--x: cannot be 'place'"),
        (["--smooth", "0"], "--smooth must be at least 1, got 0"),
        (["--out", "/nowhere/at/all.png"], "there is no directory"),
        (["--out", "curves.gif"], "curves.gif must end in .png (a picture), .html (a page) or .csv (a table)"),
        (["--png", "curves.png"], "there is no option --png: here there is --out FILE.png"),
        ([], "there are no runs yet"),
    ],
)
def test_mistakes_are_one_line(arguments, message, refused):
    assert message in refused("plot", *arguments)


def test_what_cannot_be_plotted_is_said(make, refused, capsys, monkeypatch):
    empty, whole = make("empty", points=0), make("whole")
    assert "empty: no run has a figure of 'rollout/ep_rew_mean' yet" in refused("plot", empty)
    main(["plot", whole, empty])
    assert capsys.readouterr().err == "warning: empty has no figure of 'rollout/ep_rew_mean': left out\n"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert 'a .png needs matplotlib: pip install "velocirl[plots]"' in refused("plot", whole, "--out", "x.png")
