"""`velocirl check`, and what commands say of environments that raise or break Gymnasium's contract."""

import gymnasium
import pytest
from breaches import NoneReward, Sound
from endless import Endless

from velocirl.cli.main import main


def exit_code(*arguments):
    try:
        main(list(arguments))
    except SystemExit as ending:
        return ending.code
    return 0


class Stuck(Endless):
    def step(self, action):
        raise ValueError("the motor is stuck")


class OldStep(Endless):
    def step(self, action):
        return 1, 1.0, False, {}


@pytest.fixture(autouse=True)
def _registered():
    kinds = {"Stuck-v0": Stuck, "OldStep-v0": OldStep, "NoneReward-v0": NoneReward, "Sound-v0": Sound}
    for name, kind in kinds.items():
        gymnasium.register(name, kind, max_episode_steps=50)
    yield
    for name in kinds:
        del gymnasium.registry[name]


def test_check_says_what_it_checked(capsys):
    assert exit_code("check", "gym:Sound-v0") == 0
    assert "gym:Sound-v0 is sound, as far as random actions show:" in capsys.readouterr().out


def test_check_lists_problems_with_their_lines_and_exits_with_1(capsys):
    assert exit_code("check", "gym:NoneReward-v0", "gym:Sound-v0") == 1
    captured = capsys.readouterr()
    assert captured.err.startswith(
        "gym:NoneReward-v0 has 1 problem:\n- NoneReward: step returns the reward None; return"
    )
    assert "breaches.py:" in captured.err
    assert "gym:Sound-v0 is sound" in captured.out


TRAINING = ["--algorithm", "q-learning", "--total-steps", "100", "--num-envs", "1"]


def test_training_shows_the_environments_own_exception_from_its_own_line_on(capsys, tmp_path):
    assert exit_code("train", "gym:Stuck-v0", *TRAINING, "--run-dir", str(tmp_path / "run")) == 1
    lines = capsys.readouterr().err.splitlines()
    trace = lines[lines.index("Traceback (most recent call last):") :]
    assert "test_check_command.py" in trace[1]
    assert trace[-2:] == ["ValueError: the motor is stuck", "raised by copy 0 of Stuck-v0"]
    assert not any("velocirl/vector" in line for line in lines)


def test_training_says_in_one_line_what_breaks_the_contract(capsys, tmp_path):
    assert exit_code("train", "gym:OldStep-v0", *TRAINING, "--run-dir", str(tmp_path / "run")) == 2
    error = capsys.readouterr().err
    assert "error: OldStep: step returns 4 values, as in old versions of Gym" in error
    assert "test_check_command.py:" in error
    assert "Traceback" not in error
