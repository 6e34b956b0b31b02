"""The files between `learn` and the optimizer: few, and those that docs/ARCHITECTURE.md lists."""

import inspect
import re
import sys
from pathlib import Path

import pytest

import velocirl
from velocirl import DQN, PPO
from velocirl.backends.cpu import driver, interpreter
from velocirl.engine.compiler.units import BoundUnit
from velocirl.optim import optimisers

ROOT = Path(velocirl.__file__).parent
DOCS = Path(__file__).parents[2] / "docs" / "ARCHITECTURE.md"
SMALL = {"hidden": (4,), "num_envs": 2, "seed": 1}


def in_package(file):
    return str(Path(file).relative_to(ROOT)) if file.startswith(str(ROOT)) else None


def way_to(reached, agent, steps):
    """Files on the call stack when `reached` is called for the first time, from `learn` on."""
    found = []

    def look(frame, event, _):
        if event == "call" and not found and reached(frame):
            while frame is not None:
                found.insert(0, in_package(frame.f_code.co_filename))
                frame = frame.f_back

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        agent.learn(steps, progress=False)
    finally:
        sys.setprofile(before)
    return list(dict.fromkeys(one for one in found if one is not None))


def listed(heading):
    """Files that a paragraph of the document names, in its order."""
    text = DOCS.read_text()
    part = text[text.index(heading) :].split("\n\n")[1]
    return re.findall(r"^\d+\. `([\w/]+\.py)`", part, re.MULTILINE)


def test_ppo_on_cpu_threads():
    agent = PPO("CartPole-v1", horizon=8, minibatch_size=8, epochs=1, **SMALL)
    agent.prepare()

    def reached(frame):
        return frame.f_code is BoundUnit.__call__.__code__ and "epochs.py" in {
            Path(one.filename).name for one in inspect.getouterframes(frame, 0)
        }

    compiled = interpreter.execute, driver.update, optimisers.Optimiser
    way = [*way_to(reached, agent, 16), *(in_package(inspect.getsourcefile(one)) for one in compiled)]
    assert way == listed("PPO on CPU threads")
    assert len(way) <= 10


@pytest.mark.parametrize("kind", [DQN, PPO])
def test_whole_batches(kind):
    """In plain Python, which goes as torch and CUDA do: there a launch is compiled, and an update a graph."""
    settings = {"learning_starts": 4, "batch_size": 4, "train_every": 2} if kind is DQN else {"horizon": 4, "epochs": 1}
    agent = kind("CartPole-v1", device="python", **SMALL, **settings)
    agent.prepare()
    way = way_to(lambda frame: in_package(frame.f_code.co_filename) == "optim/optimisers.py", agent, 16)
    if kind is DQN:
        assert way == listed("DQN in whole batches")
    assert way[-1] == "optim/optimisers.py"
    assert len(way) <= 14
