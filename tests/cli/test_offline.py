"""The commands with an algorithm that learns from data."""

import dataclasses

import numpy as np
import pytest
from recorded import file_of, made_up

from velocirl import BC, Dataset
from velocirl.cli.main import main
from velocirl.cli.settings import read_request
from velocirl.runs.directory import open_run
from velocirl.training.agent import Agent

SMALL = ["--algorithm", "bc", "--device", "python", "--hidden", "8", "--batch-size", "8", "--seed", "1", "--quiet"]


@pytest.mark.parametrize("environment", [[], ["Pendulum-v1"]])
def test_a_run_is_trained_from_a_file_and_goes_on(environment, tmp_path):
    run = tmp_path / "run"
    data = ["--data", file_of("Pendulum-v1")]
    main(["train", *environment, *data, *SMALL, "--total-steps", "8", "--run-dir", str(run)])
    assert open_run(run).description.environment == "Pendulum-v1"
    main(["resume", str(run), "--total-steps", "16", "--quiet"])
    whole = BC(data=file_of("Pendulum-v1"), device="python", hidden=(8,), batch_size=8, seed=1).learn(16)
    np.testing.assert_array_equal(Agent.load(run, best=False).parameters, whole.parameters)


def test_data_without_an_environment_needs_one(tmp_path):
    data = made_up("Pendulum-v1", 1)
    path = Dataset(dataclasses.replace(data.info, environment=None), data.columns).save(tmp_path / "historian.vds")
    with pytest.raises(ValueError, match=r"historian\.vds names no environment: give one with the same spaces"):
        read_request(["--algorithm", "bc", "--data", str(path)])


def test_help_counts_updates(capsys):
    with pytest.raises(SystemExit):
        read_request(["--algorithm", "bc", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "Number of gradient updates" in shown
    assert "Evaluate every so many updates" in shown
