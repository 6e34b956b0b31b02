"""Files with a valid checksum and bad intentions: refused by name, or harmless (see tools/hostile_files.py)."""

import re
import subprocess
import sys

import hostile_archives
import hostile_files
import numpy as np
import pytest

import velocirl
from velocirl.runs.state_file import State, read_state, write_state
from velocirl.training.agent import Agent


@pytest.fixture(scope="module")
def agent():
    settings = {"num_envs": 4, "hidden": (8,), "threads": 1, "learning_starts": 64, "batch_size": 16}
    return velocirl.DQN("GridWorld-v0", seed=0, buffer_size=400, **settings).learn(256)


def changed(state, *, arrays=None, **document):
    return State({**state.arrays, **(arrays or {})}, {**state.document, **document})


@pytest.mark.parametrize("action", [-1, 4, 1000, 7777, 2**31 - 1])
def test_an_action_that_does_not_exist_is_refused(agent, action):
    state = agent.state()
    state.arrays["memory.rows"]["action"][17] = action
    with pytest.raises(ValueError, match=rf"memory.rows.action is {action} at \[17, 0\]; it must be from 0 to 3"):
        Agent.from_state(state)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("action", -(2**31), "current.window.action is -2147483648"),
        ("count", 3, r"current.window.count is 3 at \[0\]; it must be from 0 to 2"),
        ("place", 25, r"current.window.place is 25 at \[0, 0\]; it must be from 0 to 24"),
    ],
)
def test_a_window_that_points_elsewhere_is_refused(field, value, message):
    state = velocirl.QLearning("GridWorld-v0", seed=0, n_step=3, num_envs=4).learn(64).state()
    state.arrays["current.window"][field] = value
    with pytest.raises(ValueError, match=message):
        Agent.from_state(state)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"steps": -5}, r"Expected int >= 0 - at steps"),
        ({"iterations": 1.5}, r"Expected int, got float - at iterations"),
        ({"goal": [5, -7]}, r"Expected int >= 1 - at goal"),
        ({"goal": [10**6, 7]}, r"its goal was set at step 1000000, and it has taken 256"),
        ({"more": 1}, r"unknown field more"),
        ({"config": {"hidden": [8], "more": 1}}, r"there is no setting 'more'"),
        ({"algorithm": "os.system"}, r"there is no algorithm 'os.system'"),
    ],
)
def test_a_document_that_no_agent_has_is_refused(agent, document, message):
    with pytest.raises(ValueError, match=message):
        Agent.from_state(changed(agent.state(), **document))


@pytest.mark.parametrize("hidden", [[4000, 4000], [10**6, 10**6]])
def test_a_small_file_cannot_ask_for_a_large_network(agent, hidden):
    state = agent.state()
    with pytest.raises(ValueError, match=r"would take .* bytes, and what is loaded has .*: its settings do not fit"):
        Agent.from_state(changed(state, config={**state.document["config"], "hidden": hidden}))


def test_parameters_that_are_not_numbers_are_refused_unless_they_are_asked_for(agent, tmp_path):
    state = agent.state()
    state.arrays["network.parameters"][5] = np.nan
    write_state(tmp_path / "model", state.arrays, state.document)
    with pytest.raises(ValueError, match=r"network.parameters is nan at \[5\]; it must be finite \(allow_nan=True"):
        velocirl.DQN.load(tmp_path / "model")
    curious = velocirl.DQN.load(tmp_path / "model", allow_nan=True)
    assert np.isnan(curious.parameters[5])


def opened(*arguments, tool=hostile_files):
    """What the script says of so many files, in a process whose threads are not yet many, as it forks."""
    command = [sys.executable, tool.__file__, *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=3000)
    assert result.returncode == 0, result.stdout + result.stderr
    *_, last = result.stdout.splitlines()
    return last


@pytest.mark.parametrize(
    "only", [pytest.param("q-learning GridWorld-v0 n_step", marks=pytest.mark.slow), "dqn GridWorld-v0"]
)
def test_a_sample_of_hostile_files_does_no_harm(only):
    assert re.fullmatch(r"30 files: {.*'refused': 2\d.*}", opened("--files", 30, "--only", only))


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_two_thousand_hostile_files_do_no_harm():
    assert opened("--files", 2000, "--seed", 1).startswith("2000 files: ")


@pytest.mark.parametrize("only", ["run", "minari", "table"])
def test_a_sample_of_hostile_archives_and_tables_does_no_harm(only):
    said = opened("--files", 20, "--only", only, tool=hostile_archives)
    assert re.fullmatch(r"20 cases: {'(refused|harmless)': \d+, '(refused|harmless)': \d+}", said)


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_a_thousand_hostile_archives_and_tables_do_no_harm():
    assert opened("--files", 1000, "--seed", 1, tool=hostile_archives).startswith("1000 cases: ")


def test_what_is_written_is_what_is_declared(agent, tmp_path):
    read = read_state(agent.save(tmp_path / "model"))
    assert set(read.arrays) == set(agent.state().arrays)
    assert Agent.from_state(read).steps == 256
