"""`velocirl dataset`: a data set from its recording to its picture."""

import json

import numpy as np
import pytest

import velocirl
from velocirl.buffers.data.info import DatasetInfo
from velocirl.cli.dataset import progress
from velocirl.cli.main import main
from velocirl.datasets import references


@pytest.fixture
def data(tmp_path, monkeypatch, capsys):
    def returns_of(model, source, seed, episodes, *_):
        return {"Random": 30.0}.get(type(model).__name__, 190.0) + np.linspace(-0.5, 0.5, episodes)

    monkeypatch.setattr(references, "returns_of", returns_of)
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
        "random 30 (29.9419 to 30.0581 in 100 episodes)",
        "time step 5 s",
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
    assert f"{out}: 5 steps in 1 episode, a new one after 15 s without a row" in said(capsys)
    np.testing.assert_allclose(velocirl.Dataset.load(out).observations[:, 0], 293.15 + np.arange(6), rtol=1e-6)
    assert "say which columns" in refused(capsys, "import", tmp_path / "plant.csv", "--out", tmp_path / "other.vds")


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


OWN_PLANT = """
from velocirl import Box, Environment, float32, record


@record
class State:
    level: float32


def reset(state, params, rng):
    state.level = 1.0


def step(state, params, action, rng):
    state.level += action[0]
    return 1.0, False


def observe(state, params, observation):
    observation[0] = state.level


Environment(
    "OwnTank-v0", state=State, observation=Box(0.0, 2.0, (1,)), action=Box(-1.0, 1.0, (1,)), reset=reset, step=step,
    observe=observe, signals={"level": "m"}, actuators={"valve": "1"}, time_step=60.0, max_steps=9,
    scenarios={"nominal": {}},
)
"""


def test_a_plant_of_ones_own_is_named_by_its_file(tmp_path, capsys):
    plant, out = tmp_path / "own_tank.py", tmp_path / "own.vds"
    plant.write_text(OWN_PLANT)
    mapping = {"time": "when", "observations": ["level"], "actions": ["valve"], "reward": "profit"}
    (tmp_path / "columns.json").write_text(json.dumps(mapping))

    def table(unit="cm", seconds=60):
        rows = "\n".join(f"{seconds * row},{100 + row},0.{row},{row}" for row in range(6))
        (tmp_path / "plant.csv").write_text(f"when,level [{unit}],valve [1],profit\n{rows}\n")

    table()
    command = ["import", tmp_path / "plant.csv", "--mapping", tmp_path / "columns.json", "--out", out]
    main(["dataset", *map(str, command), "--env", str(plant)])
    assert f"{out}: 5 steps in 1 episode," in said(capsys)
    info = velocirl.Dataset.load(out).info
    assert (info.environment, info.time_step, info.signals) == ("OwnTank-v0", 60.0, {"level": "m"})
    assert "own.vds exists: choose another path, or say overwrite=True" in refused(
        capsys, *command, "--env", f"{plant}:OwnTank-v0"
    )
    main(["dataset", "validate", str(out), "--env", f"{plant}:OwnTank-v0"])
    assert f"{out} is sound" in said(capsys)
    table(seconds=30)
    reason = refused(capsys, *command, "--env", plant, "--overwrite")
    assert "rows are 30 s apart, and OwnTank-v0 takes an action every 60 s: resample the table" in reason
    table(unit="m")
    reason = refused(capsys, *command, "--env", plant, "--overwrite")
    assert "column 'level' is 100 m in row 0, outside 0 to 2 m (6 of 6 rows); in " in reason
    assert len(velocirl.Dataset.load(out)) == 5  # as it was


def test_what_cannot_be_in_an_existing_data_set_is_told(tmp_path, capsys):
    reactor = velocirl.engine.registry.find("ChemicalReactor-v0")
    places = list(reactor.signals)
    rows = np.tile(reactor.observation.low + 0.5 * (reactor.observation.high - reactor.observation.low), (5, 1))
    rows[:, places.index("temperature")] = 85.0  # degC
    actions = np.tile(reactor.action.high, (4, 1))
    actions[2, 0] *= 1.5
    info = DatasetInfo(
        reactor.observation, reactor.action, environment=reactor.id, signals=reactor.signals,
        actuators=reactor.actuators, time_step=10.0,
    )  # fmt: skip
    episode = {"observations": rows, "actions": actions, "rewards": np.zeros(4)}
    path = velocirl.Dataset.from_episodes([episode], info).save(tmp_path / "odd.vds")
    with pytest.raises(SystemExit) as ended:
        main(["dataset", "validate", str(path)])
    assert ended.value.code == 2
    told = capsys.readouterr()
    low, high = (end[places.index("temperature")] for end in (reactor.observation.low, reactor.observation.high))
    lines = told.out.splitlines()
    assert lines[0] == (
        f"impossible: temperature is 85 K at row 0 of observations, outside {low:g} to {high:g} K (5 of 5 rows);"
        " in degC or degF they would be within it"
    )
    assert lines[1].startswith("impossible: ")
    assert "at row 2 of actions, outside" in lines[1]
    assert "impossible: rows are 10 s apart, and ChemicalReactor-v0 takes an action every 5 s" in lines
    assert "warning: every reward is 0: only imitation (bc) learns from it" in lines
    assert "odd.vds has what cannot be: see the 3 lines above" in told.err


def test_every_level_is_recorded_in_a_scenario(tmp_path, monkeypatch, capsys):
    def returns_of(model, source, seed, episodes, *_):
        return np.full(episodes, float(source.params.get("sensor_noise", 0.0)))

    monkeypatch.setattr(references, "returns_of", returns_of)
    path = tmp_path / "plant.vds"
    command = ["dataset", "create", "ChemicalReactor-v0", "--level", "random", "--steps", "20", "--out", str(path)]
    main([*command, "--scenario", "disturbed"])
    info = velocirl.Dataset.load(path).info
    disturbed = velocirl.engine.registry.find("ChemicalReactor-v0").scenarios["disturbed"]
    assert (info.scenario, dict(info.params)) == ("disturbed", dict(disturbed))
    assert info.references["operator"] == disturbed["sensor_noise"]
    assert "plant.vds exists" in refused(capsys, *command[1:])
    main([*command, "--scenario", "nominal", "--overwrite"])
    assert velocirl.Dataset.load(path).info.scenario == "nominal"
    assert "no scenario 'windy'" in refused(capsys, *command[1:], "--overwrite", "--scenario", "windy")
