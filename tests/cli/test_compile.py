"""`velocirl compile`: what training will need is compiled ahead of time, and nothing of it a second time."""

import importlib
import os
import re
import subprocess

import pytest

from velocirl.cli.main import main
from velocirl.engine.compiler import units
from velocirl.engine.disk.directories import cache_path
from velocirl.training.persistence import ALGORITHMS


@pytest.fixture
def run(command, tmp_path):
    """Run a command in a process of its own; give back what it printed."""

    def run(*arguments, **given):
        environment = {**os.environ, **given}
        finished = subprocess.run(
            [*command, *arguments], env=environment, capture_output=True, text=True, cwd=tmp_path, timeout=240
        )
        assert finished.returncode == 0, finished.stderr
        return finished.stdout

    return run


@pytest.mark.usefixtures("no_pictures_in_processes")
def test_from_nothing_everything_is_compiled_once(run, monkeypatch, tmp_path):
    home, compile_it = {"VELOCIRL_HOME": str(tmp_path / "home")}, ("compile", "Bandit-v0", "--algorithm", "q-learning")
    said = run(*compile_it, **home)
    found = re.fullmatch(r"Bandit-v0: q-learning, (\d+) files compiled, [\d.]+ s\n", said)
    monkeypatch.setenv("VELOCIRL_HOME", home["VELOCIRL_HOME"])
    directory = cache_path()
    compiled = {path.name for path in directory.iterdir()}
    assert int(found[1]) == len(compiled) > 0
    said = run(*compile_it, **home)
    assert re.fullmatch(r"Bandit-v0: q-learning, nothing left to compile, [\d.]+ s\n", said)
    run("train", *compile_it[1:], "--total-steps", "6400", "--quiet", **home)
    assert {path.name for path in directory.iterdir()} == compiled


def test_training_by_a_network_then_compiles_nothing_more(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    main(["compile", "CartPole-v1", "--device", "cpu"])
    assert capsys.readouterr().out.startswith("CartPole-v1: ppo, ")
    monkeypatch.setattr(units, "_LOADED", {})  # what lies in the cache counts, not what this process has
    monkeypatch.setattr(units, "_compile", None)
    main(["train", "CartPole-v1", "--total-steps", "4096", "--device", "cpu", "--quiet"])


def test_a_file_of_ones_own_and_several_environments(my_pole, capsys):
    main(["compile", str(my_pole), "CartPole-v1"])
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("MyPole-v0: ppo, ")
    assert second.startswith("CartPole-v1: ppo, ")


def test_of_all_algorithms_those_that_do_not_fit_are_named(monkeypatch, capsys):
    module = importlib.import_module("velocirl.cli.compile")
    monkeypatch.setattr(module, "ALGORITHMS", {name: ALGORITHMS[name] for name in ("ppo", "sac")})
    main(["compile", "CartPole-v1", "--algorithm", "all"])
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("CartPole-v1: ppo, ")
    assert second.startswith("CartPole-v1: sac does not fit: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "the following arguments are required: ENV"),
        (("CartPol-v1",), "there is no environment 'CartPol-v1': did you mean 'CartPole-v1'?"),
        (("CartPole-v1", "CartPol-v1"), "there is no environment 'CartPol-v1'"),
        (("CartPole-v1", "--algorithm", "pp"), "--algorithm: cannot be 'pp': did you mean 'ppo'?"),
        (("CartPole-v1", "--algorithm", "sac"), "CartPole-v1"),
        (("CartPole-v1", "--device", "gpu"), "--device: cannot be 'gpu'"),
        (("CartPole-v1", "--algoritm", "ppo"), "there is no option --algoritm: did you mean --algorithm?"),
    ],
)
def test_what_cannot_be_compiled_is_refused_at_once(arguments, message, refused, monkeypatch):
    module = importlib.import_module("velocirl.cli.compile")
    monkeypatch.setattr(module, "entries", list)
    for kind in ALGORITHMS.values():
        monkeypatch.setattr(kind, "prepare", lambda agent: pytest.fail("something was compiled"))
    assert message in refused("compile", *arguments)
