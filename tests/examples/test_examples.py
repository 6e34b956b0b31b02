"""The scripts in examples/ run as they stand, and do what they say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
RETURN = re.compile(r"(-?[\d.]+) \+- ")
# What the last returns that a script prints must reach, at least.
REACHED = {
    "coming_from_sb3": [450, 490],
    "own_plant": [-30, -22],
    "image_game": [10, 35],
    "curriculum": [0, 450],
    "own_torch_module": [450, 450],
    "hybrid_actions": [-20, -2.5],  # strokes, before and after
    "plant_controllers": [-30, -130, -70, -4, -5],  # random, shielded, PID, tuned, MPC
    "tables": [0.65, 0.65, 0.65, 0.9],
}


def run(*arguments):
    done = subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_example_is_run_here_and_named_in_the_readme():
    there_are = {path.stem for path in EXAMPLES.glob("*.py")}
    assert there_are == {*REACHED, "own_benchmark"}
    readme = (EXAMPLES.parent / "README.md").read_text()
    assert all(f"examples/{name}.py" in readme for name in there_are)


@pytest.mark.slow
@pytest.mark.parametrize("name", REACHED)
def test_an_example_learns(name):
    returns = [float(found) for found in RETURN.findall(run(EXAMPLES / f"{name}.py"))]
    assert len(returns) == len(REACHED[name])
    assert all(reached >= least for reached, least in zip(returns, REACHED[name], strict=True)), returns


@pytest.mark.slow
def test_the_benchmark_is_one():
    for command in ([], ["-m", "velocirl", "bench"]):
        options = ["--quick", "--peers"] if command else []
        assert "velocirl / Gymnasium SyncVectorEnv" in run(*command, EXAMPLES / "own_benchmark.py", *options)
