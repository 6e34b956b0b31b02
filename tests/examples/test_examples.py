"""The scripts in examples/ run as they stand, and do what they say."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
RETURN = re.compile(r"(-?[\d.]+) \+- ")
# What the last returns that a script prints must reach, at least.
REACHED = {
    "coming_from_sb3": [450, 450],  # at most 500, less for a cart that is not in the middle
    "own_plant": [-30, -22],
    "image_game": [10, 35],
    "curriculum": [0, 450],
    "own_torch_module": [450, 450],
    "hybrid_actions": [-20, -2.5],  # strokes, before and after
    "plant_controllers": [-30, -130, -70, -4, -5],  # random, shielded, PID, tuned, MPC
    "tables": [0.65, 0.65, 0.65, 0.9],
}


WAS = "# In SB3: "  # before what stood in the place of the next line


def run(*arguments, **environment):
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_example_is_run_here_and_named_in_the_readme():
    there_are = {path.stem for path in EXAMPLES.glob("*.py")}
    assert there_are == {*REACHED, "own_benchmark"}
    readme = (EXAMPLES.parent / "README.md").read_text()
    assert all(f"examples/{name}.py" in readme for name in there_are)


def original(text):
    """The script for Stable-Baselines3 that an example was made of, and how many of its lines changed."""
    lines, before, changed = [], [], 0
    for line in text.splitlines():
        if line.strip().startswith(WAS):
            before.append(line.replace(WAS, "", 1))
            continue
        lines += before or [line]
        changed += bool(before) and not line.startswith("from velocirl import ")
        before = []
    return "\n".join(lines), changed


def test_a_script_for_stable_baselines3_changes_its_import_and_five_lines_at_most():
    before, changed = original((EXAMPLES / "coming_from_sb3.py").read_text())
    assert changed <= 5
    assert "velocirl" not in before
    assert 50 <= len(before.splitlines()) <= 60
    compile(before, "before", "exec")


def test_that_script_runs_on_anything_of_the_same_protocol(tmp_path):
    """In the place of Stable-Baselines3 are the vector environments of `vec_envs`."""
    common = tmp_path / "stable_baselines3" / "common"
    common.mkdir(parents=True)
    (common / "vec_env.py").write_text("from vec_envs import DummyVecEnv, VecNormalize\n")
    paths = os.pathsep.join([str(tmp_path), str(EXAMPLES.parent / "tests")])
    told = run(EXAMPLES / "coming_from_sb3.py", 2048, PYTHONPATH=paths, TMPDIR=str(tmp_path))
    assert [name for name in ("best", "last") if f"{name}: " in told] == ["best", "last"]
    assert "after 2048 steps the last pole leans by" in told
    assert (next(tmp_path.glob("tmp*")) / "best.safetensors").is_file()


@pytest.mark.slow
def test_that_script_ran_there(tmp_path):
    pytest.importorskip("stable_baselines3", reason="needs Stable-Baselines3: pip install 'velocirl[clients]'")
    before, _ = original((EXAMPLES / "coming_from_sb3.py").read_text())
    (tmp_path / "before.py").write_text(before)
    assert "after 9216 steps the last pole leans by" in run(
        tmp_path / "before.py", 8200, TMPDIR=str(tmp_path), OMP_NUM_THREADS="1"
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", REACHED)
def test_an_example_learns(name):
    if name == "coming_from_sb3":
        pytest.importorskip("stable_baselines3", reason="needs Stable-Baselines3: pip install 'velocirl[clients]'")
    returns = [float(found) for found in RETURN.findall(run(EXAMPLES / f"{name}.py"))]
    assert len(returns) == len(REACHED[name])
    assert all(reached >= least for reached, least in zip(returns, REACHED[name], strict=True)), returns


@pytest.mark.slow
def test_the_benchmark_is_one():
    for command in ([], ["-m", "velocirl", "bench"]):
        options = ["--quick", "--peers"] if command else []
        assert "velocirl / Gymnasium SyncVectorEnv" in run(*command, EXAMPLES / "own_benchmark.py", *options)
