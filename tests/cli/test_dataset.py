"""`velocirl dataset`: a data set from its recording to its picture."""

import json

import numpy as np
import pytest

import velocirl
from velocirl.cli.dataset import progress
from velocirl.cli.main import main
from velocirl.datasets import references


@pytest.fixture
def data(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(references, "mean_return", lambda model, *_: {"Random": 30.0}.get(type(model).__name__, 190.0))
    path = tmp_path / "plant.vds"
    main(["dataset", "create", "ChemicalReactor-v0", "--level", "operator", "--steps", "400", "--out", str(path)])
    assert f"{path}: 400 transitions in 2 episodes, return " in said(capsys)
    return path


def said(capsys):
    return " ".join(capsys.readouterr().out.split())


def refused(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main(["dataset", *map(str, arguments)])
    assert ended.value.code == 2
    return " ".join(capsys.readouterr().err.split())


def test_what_is_in_it_is_told(data, capsys):
    main(["dataset", "info", str(data)])
    text = said(capsys)
    for words in (
        "environment ChemicalReactor-v0",
        "level operator",
        "400 (",
        "2: 0 terminated, 2 cut off",
        "random 30",
    ):
        assert words in text
    assert "coolant_flow (actuator) kg/s" in text
    main(["dataset", "info", str(data), "--json"])
    found = json.loads(capsys.readouterr().out)
    whole = velocirl.Dataset.load(data)
    assert found["return"]["mean"] == pytest.approx(whole.returns().mean())
    for place, one in enumerate(found["actions"]):
        column = whole.actions[:, place].astype(float)
        low, high = whole.info.action_space.low[place], whole.info.action_space.high[place]
        assert one["mean"] == pytest.approx(column.mean())
        assert one["std"] == pytest.approx(column.std(), rel=1e-6, abs=1e-9)
        assert one["at_limits"] == pytest.approx(((column <= low) | (column >= high)).mean())
    assert found["checksum"] == whole.checksum


def test_it_is_checked_and_drawn(data, tmp_path, capsys):
    main(["dataset", "validate", str(data)])
    assert f"{data} is sound: 400 transitions in 2 episodes" in said(capsys)
    main(["dataset", "plot", str(data)])
    assert (tmp_path / "plant.png").read_bytes().startswith(b"\x89PNG")
    content = bytearray(data.read_bytes())
    content[-9] ^= 4
    data.write_bytes(content)
    assert "does not match" in refused(capsys, "validate", data)


def test_it_goes_to_minari_and_back(data, tmp_path, capsys):
    main(["dataset", "export", str(data), "--out", str(tmp_path / "plant-v0")])
    main(["dataset", "import", str(tmp_path / "plant-v0"), "--out", str(tmp_path / "back.vds")])
    assert (tmp_path / "back.vds").read_bytes() == data.read_bytes()
    assert "there already" in refused(capsys, "export", data, "--out", tmp_path / "plant-v0")


def test_what_the_agent_of_a_run_does_is_recorded(small, train, tmp_path, capsys):
    train(name="pole")
    path = tmp_path / "pole.vds"
    main(["dataset", "create", "pole", "--steps", "300", "--seed", "2", "--expert", "pole", "--out", str(path)])
    assert "pole.vds: 300 transitions in " in said(capsys)
    data = velocirl.Dataset.load(path)
    same = velocirl.record_dataset("pole", steps=300, seed=2, deterministic=True, references=data.info.references)
    np.testing.assert_array_equal(data.observations, same.observations)
    assert set(data.info.references) == {"random", "expert"}


def test_a_table_is_imported_by_its_mapping(tmp_path, capsys):
    rows = "\n".join(f"{10 * row},{20 + row},{row % 2},{row}" for row in range(6))
    (tmp_path / "plant.csv").write_text(f"when,T [degC],valve,profit\n{rows}\n")
    mapping = {"time": "when", "observations": [{"column": "T", "to": "K"}], "reward": "profit"}
    mapping["actions"] = [{"column": "valve", "low": 0, "high": 1}]
    (tmp_path / "columns.json").write_text(json.dumps(mapping))
    out = tmp_path / "plant.vds"
    main(
        [
            "dataset",
            "import",
            str(tmp_path / "plant.csv"),
            "--mapping",
            str(tmp_path / "columns.json"),
            "--out",
            str(out),
        ]
    )
    assert f"{out}: 5 steps in 1 episodes, a new one after 15 s without a row" in said(capsys)
    np.testing.assert_allclose(velocirl.Dataset.load(out).observations[:, 0], 293.15 + np.arange(6), rtol=1e-6)
    assert "say which columns" in refused(capsys, "import", tmp_path / "plant.csv", "--out", out)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "say what to do: velocirl dataset create | import"),
        (["creat"], "no command 'dataset creat': did you mean 'create'?"),
        (["create", "Pendulum-v1", "--level", "expert"], "say where it is to be written"),
        (["create", "--level", "random", "--out", "x.vds"], "say in which environment"),
        (["create", "Pendulum-v1", "--level", "best", "--out", "x.vds"], "cannot be 'best'"),
        (
            ["create", "Pendulum-v1", "--level", "random", "--controller", "random", "--out", "x.vds"],
            "--controller is for",
        ),
        (["create", "Pendulum-v1", "--medium", "run", "--out", "x.vds"], "--medium is for --level"),
        (["create", "Pendulum-v1", "--level", "random", "--out", "nowhere/x.vds"], "there is no directory nowhere"),
        (["info", "x.vds"], "No such file"),
        (["info"], "required: DATA"),
        (["plot", "x.vds", "--out", "x.jpg"], "must end in .png"),
        (["import", "x.vds", "--out", "y.vds"], "no data set in Minari's layout"),
        (["export", "x.vds"], "say where it is to be written"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(arguments, reason, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert reason in refused(capsys, *arguments)
    assert list(tmp_path.iterdir()) == []


def test_progress_is_shown_after_two_seconds_with_the_time_left(monkeypatch):
    from io import StringIO

    from rich.console import Console

    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    for after, shown in ((1.0, False), (3.0, True)):
        now[0], seen = 0.0, StringIO()
        with progress.showing_progress(Console(file=seen, force_terminal=True, width=100)) as told:
            update = told("recording")
            now[0] = after
            update(10, 100)
            update(20, 100)
        assert ("recording" in seen.getvalue()) == shown
        assert ("left" in seen.getvalue()) == shown
