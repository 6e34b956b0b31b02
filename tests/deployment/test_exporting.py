import numpy as np
import pytest
from deployed import AGENTS, Compiled, assert_same, needs_cc, shaken

import velocirl
from velocirl.cli.main import main
from velocirl.deployment.controller import Network
from velocirl.deployment.deciding import decide, require_same
from velocirl.deployment.quantising import quantised
from velocirl.deployment.reading import read_controller


def test_the_format_is_that_of_the_ending_or_the_one_that_is_said(tmp_path, monkeypatch):
    agent = AGENTS["linear"]()
    monkeypatch.chdir(tmp_path)
    assert velocirl.export(agent, "one.json").read_text().startswith("{")
    assert velocirl.export(agent, "two.txt", format="c").read_text().startswith("/*")
    assert velocirl.export(agent, format="c").name == "cartpole_v1.c"
    assert "int tank_3_predict(" in velocirl.export(agent, "three.c", name="tank 3").read_text()
    for given, message in [
        ({"path": "four.txt"}, r"four.txt must end in .onnx, .c, .json, or say the format"),
        ({"path": "four", "format": "cc"}, "format cannot be 'cc': did you mean 'c'"),
        ({}, "say in which format it is to be exported: onnx, c, json"),
        ({"path": "four.c", "weights": "int4"}, "weights cannot be 'int4'"),
        ({"path": "nowhere/four.c"}, "there is no directory nowhere"),
    ]:
        with pytest.raises(ValueError, match=message):
            velocirl.export(agent, **given)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cartpole_v1.c", "one.json", "three.c", "two.txt"]


def test_a_file_that_could_not_be_written_leaves_what_was_there(tmp_path, monkeypatch):
    agent, path = AGENTS["linear"](), tmp_path / "controller.c"
    path.write_text("before")
    monkeypatch.setattr("velocirl.engine.disk.writing.os.fsync", no_space)
    with pytest.raises(OSError, match="could not be written"):
        velocirl.export(agent, path)
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("controller.c", "before")]


def no_space(handle):
    raise OSError(28, "No space left on device")


def test_what_was_read_wrongly_is_not_written():
    agent = shaken(AGENTS["limits"]())
    controller = read_controller(agent)
    require_same(controller, agent)
    assert isinstance(controller.policy, Network)
    controller.policy.layers[-1].biases[:] += 0.1
    with pytest.raises(RuntimeError, match="does not act as it does, so nothing is written"):
        require_same(controller, agent)


def test_weights_as_whole_numbers_are_off_by_half_a_scale_at_most():
    controller = read_controller(shaken(AGENTS["limits"]()))
    whole = quantised(controller)
    for exact, rounded in zip(controller.policy.layers, whole.policy.layers, strict=True):
        assert rounded.weights.dtype == np.int8
        assert (np.abs(exact.weights - rounded.real_weights) <= 0.5001 * rounded.scales[:, None]).all()


@needs_cc
def test_whole_weights_in_c_are_those_that_were_rounded(tmp_path):
    agent = shaken(AGENTS["limits"]())
    controller = quantised(read_controller(agent))
    path = velocirl.export(agent, tmp_path / "controller.c", weights="int8")
    space = agent.source.observation_space
    raw = np.random.default_rng(1).uniform(space.low, space.high, (200, 12)).astype(np.float32)
    assert_same(controller, Compiled(path, tmp_path, controller).all(raw), decide(controller, raw), raw)
    assert "signed char" in path.read_text()


def test_a_table_has_no_weights(tmp_path):
    agent = velocirl.QLearning("FrozenLake-v1", num_envs=4)
    with pytest.raises(
        ValueError, match="weights=int8 needs a network of dense layers alone, and this policy is a table"
    ):
        velocirl.export(agent, tmp_path / "table.c", weights="int8")


def test_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    model = AGENTS["linear"]().save(tmp_path / "model.safetensors")
    out = tmp_path / "controller.c"
    main(["export", str(model), "--out", str(out)])
    assert str(out) in capsys.readouterr().out
    first = out.read_text()
    assert first == velocirl.export(model, tmp_path / "other.c").read_text()
    assert "cartpole_v1_predict" in first
    main(["export", str(model), "--format", "json", "--out", str(tmp_path / "x"), "--weights", "int8"])
    assert (tmp_path / "x").read_text().startswith('{"format":"velocirl controller"')
    for wrong in (["--out", "x.h"], ["--format", "pt"], []):
        with pytest.raises(SystemExit):
            main(["export", str(model), *wrong])
    assert "say in which format" in capsys.readouterr().err
