"""`velocirl evaluate ... --data FILE`: a policy judged by recorded data."""

import json
from dataclasses import replace

from recorded import file_of

import velocirl
from velocirl import Dataset
from velocirl.cli.main import main

CONSTANT = ["evaluate", "Pendulum-v1", "--controller", "constant"]


def test_figures_and_words(capsys):
    arguments = [*CONSTANT, "--data", file_of("Pendulum-v1"), "--fits", "2", "--updates", "20"]
    main([*arguments, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert (found["model"], found["data"]) == ("constant", file_of("Pendulum-v1"))
    assert len(found["return"]["estimates"]) == 2
    main(arguments)
    said = capsys.readouterr().out
    assert "return over 20 steps" in said
    assert "deploying it: " in said


def test_an_agent_of_data_that_is_of_no_environment_is_judged_too(tmp_path, capsys):
    known = Dataset.load(file_of("Pendulum-v1"))
    data = Dataset(replace(known.info, environment=None), known.columns).save(tmp_path / "plant.vds")
    agent = velocirl.BC(data=data, hidden=(8,), device="python")
    agent.learn(2, progress=False, run_dir=tmp_path / "run")
    for name in (agent.save(tmp_path / "plant.safetensors"), tmp_path / "run"):
        main(["evaluate", str(name), "--data", str(data), "--fits", "1", "--updates", "20", "--json"])
        assert json.loads(capsys.readouterr().out)["return"]["policy"] == "bc"


def test_what_does_not_go_together_is_said(refused):
    data = ["--data", file_of("Pendulum-v1")]
    assert "--episodes does not go with --data" in refused(*CONSTANT, *data, "--episodes", "3")
    assert "--safety does not go with --data" in refused(*CONSTANT, *data, "--safety")
    assert "--fits goes with --data" in refused(*CONSTANT, "--fits", "2")
    assert "nowhere.vds" in refused(*CONSTANT, "--data", "nowhere.vds")
