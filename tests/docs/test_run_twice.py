"""The blocks of README and the guides that leave files run twice in one directory, in small."""

import re
from pathlib import Path

import numpy as np
import pytest

import velocirl
from velocirl.runs.directory import open_run

ROOT = Path(__file__).parents[2]
SMALL = 'device="python", num_envs=4, horizon=8, minibatch_size=16, epochs=1, '
# Words of a block of a page, what is written smaller in it, and the files that it leaves: the first time, and more.
BLOCKS = {
    "readme": (
        "README.md",
        "StopOnReward",
        {"hidden=(128, 128)": f"{SMALL}hidden=(4,)", "200_000": "64", "episodes=100": "episodes=1"},
        ["cartpole.safetensors", "runs/cartpole"],
        ["runs/cartpole-2"],
    ),
    "training": (
        "docs/training.md",
        "Checkpoint(",
        {"hidden=(128, 128)": f"{SMALL}hidden=(4,)", "200_000": "64", "50_000": "32", "episodes=100": "episodes=1"},
        ["cartpole.safetensors", "checkpoints", "runs/cartpole"],
        ["checkpoints-2", "runs/cartpole-2"],
    ),
    "scale": (
        "docs/scale.md",
        "num_envs=4096",
        {"num_envs=4096, threads=1": f"{SMALL}hidden=(4,)", "2_000_000": "64"},
        ["cartpole.safetensors", "runs/cartpole"],
        ["runs/cartpole-2"],
    ),
    "offline": (
        "docs/offline.md",
        "create_dataset",
        {"steps=72_000": "steps=720"},
        ["reactor.vds"],
        [],
    ),
    "recorded": (
        "docs/recorded_data.md",
        "record_dataset",
        {"1_000_000": "40", "100_000": "40", '"medium"': '"random"'},  # for which nobody has to be trained
        ["pendulum.vds", "reactor.vds"],
        [],
    ),
    "deploying": ("docs/deploying.md", "int8", {}, ["controller.c"], []),
}


def block(page, words):
    found = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    (code,) = [one for one in found if words in one]
    return code


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_runs_twice(name, tmp_path, monkeypatch, keep_runs_at):
    page, words, changes, first, more = BLOCKS[name]
    for variable, value in keep_runs_at(tmp_path / "data").items():
        monkeypatch.setenv(variable, value)
    code = block(page, words)
    for written, instead in changes.items():
        assert written in code, written
        code = code.replace(written, instead)
    monkeypatch.chdir(tmp_path)
    agent = velocirl.PPO("CartPole-v1", hidden=(4,), device="python", num_envs=1, horizon=8, minibatch_size=8, seed=0)
    known = {"velocirl": velocirl, "agent": agent, "policy": lambda _: [0.0, 0.0, 0.0]}
    known["observation"] = np.zeros(4, np.float32)
    for expected in (first, [*first, *more]):
        names = dict(known)
        exec(compile(code, page, "exec"), names)  # our own page
        assert left(tmp_path) == sorted(expected)
    runs = [one for one in left(tmp_path) if one.startswith("runs/")]
    assert [open_run(tmp_path / one).description.status for one in runs] == ["finished"] * len(runs)
    if runs:
        assert names["agent"].run_dir == tmp_path / runs[-1]


def left(folder):
    """What lies in a folder, and in its folder of runs."""
    found = [one for one in folder.iterdir() if one.name not in ("data", "runs")]
    return sorted(str(one.relative_to(folder)) for one in [*found, *folder.glob("runs/*")])
