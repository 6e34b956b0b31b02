"""Ranks that learn together: the same quality as one, alike tables, one run, and an end for all where one fails."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tic_tac_toe_oracle as oracle
from ranks import (
    COMMAND,
    LIMIT,
    TELL,
    data_home,  # noqa: F401 - a fixture
    finish,
    needs_mpi,
    nothing_left,  # noqa: F401 - a fixture
    pids_of,
    start,
    tell_of,
)

from velocirl.algorithms import load_algorithms
from velocirl.algorithms.tabular.q_learning import QLearning
from velocirl.cli.main import main
from velocirl.runs.directory import open_run
from velocirl.training.agent import Agent

GAME = "TicTacToe-v1"
BOTH = ["mpi", "mpi-async"]
pytestmark = needs_mpi
load_algorithms()


def exact_share(agent):
    """What greedy play is worth, as a share of the best there is."""
    codes = np.arange(oracle.CODES)
    cells = np.array([oracle.cells_of(code) for code in codes])
    values = np.where(cells == 0, agent.table.look_up(codes).mean(axis=1), -np.inf)
    model, _, plan = oracle.exact()
    return oracle.value_of_policy(values.argmax(axis=1)) / model.start_value(plan.values)


def train(directory, runtime, *more):
    return [*COMMAND, "train", GAME, "--algorithm", "q-learning", "--runtime", runtime, "--run-dir", directory, *more]


def wait_for(condition, limit=LIMIT):
    until = time.monotonic() + limit
    while not condition() and time.monotonic() < until:
        time.sleep(0.05)
    assert condition()


LEARNING = """
shared = {"seed": 0, "runtime": "mpi"}
heard = []
agent = make("q-learning", "TicTacToe-v1", **shared)
agent.learn(4_000_000, lambda agent: heard.append(agent.steps))
once, again, other = (
    digest(make("q-learning", "TicTacToe-v1", runtime="mpi", seed=seed).learn(400_000)) for seed in (0, 0, 1)
)
steady = {"learning_rate_schedule": "constant", "exploration_schedule": "constant", "exploration_rate": 0.5, **shared}
dense = make("q-learning", "TicTacToe-v1", **steady).learn(500_000)
sparse = make("q-learning", "TicTacToe-v1", storage="sparse", **steady).learn(500_000)
same = sparse.table.look_up(sparse.table.keys).tobytes() == dense.table.look_up(sparse.table.keys).tobytes()
double = make("double-q-learning", "TicTacToe-v1", **shared).learn(4_000_000)
left_open = make("q-learning", "TicTacToe-v1", n_step=5, seed=0)
steps = digest(left_open.learn(400_000))
traces = digest(make("q-lambda", "TicTacToe-v1", **shared).learn(400_000))
from velocirl.tabular.runtimes import mpi_exchange
sums, sum_up = [], mpi_exchange.sum_up
mpi_exchange.sum_up = lambda *all: sums.append(sum_up(*all))
lake = make("q-learning", "FrozenLake-v1", **shared).learn(500_000)
met = sorted(state for state, row in zip(sparse.table.keys, sparse.table.arrays.rows) if row["visits"].any())
visits = int(agent.table.arrays.rows["visits"].sum())
if rank == 0:
    for name, one in {"q": agent, "double": double, "lake": lake}.items():
        one.save(directory / name)
tell(digest=digest(agent), once=once, again=again, other=other, double=digest(double), lake=digest(lake),
     heard=heard, steps=agent.steps, visits=visits, same=same, sums=len(sums), met=len(met),
     returns=len(agent.recent.returns), n_step=steps, traces=traces, runtime=left_open.config.runtime)
"""


@pytest.mark.slow
def test_ranks_learn_as_one(tmp_path):
    """Two ranks, 4M steps in all: tables alike, whether dense or sparse, and as good as one rank's; two sets too."""
    told = tell_of(2, tmp_path, LEARNING)
    first, second = told
    for name in ("digest", "once", "again", "other", "double", "lake", "steps", "visits", "met", "n_step", "traces"):
        assert first[name] == second[name], name
    assert first["once"] == first["again"] != first["other"]
    assert first["same"]
    assert first["runtime"] == "mpi"  # as nothing was said, under mpirun
    assert first["visits"] == first["steps"] >= 4_000_000  # of both, each counted once
    assert second["heard"] == []
    assert first["heard"] == sorted(first["heard"])
    assert first["heard"][-1] == first["steps"]
    assert first["returns"] == 100
    assert first["sums"] > 0  # of FrozenLake, everything moves: all is summed up
    for name in ("q", "double"):
        agent = Agent.load(tmp_path / name, runtime="serial")
        assert exact_share(agent) >= 0.99, name
    lake = Agent.load(tmp_path / "lake", runtime="serial")
    serial = QLearning("FrozenLake-v1", seed=0).learn(500_000)
    np.testing.assert_allclose(lake.table.values, serial.table.values, atol=0.25)


ASYNCHRONOUS = """
agent = make("q-learning", "TicTacToe-v1", seed=0, runtime="mpi-async", steps_per_sync=20_000)
heard = []
agent.learn(4_000_000, lambda agent: heard.append(agent.steps))
double = make("double-q-learning", "TicTacToe-v1", seed=0, runtime="mpi-async", steps_per_sync=20_000).learn(4_000_000)
if rank == 0:
    agent.save(directory / "q")
    double.save(directory / "double")
tell(digest=digest(agent), double=digest(double), steps=agent.steps, heard=heard,
     visits=int(agent.table.arrays.rows["visits"].sum()), returns=len(agent.recent.returns))
"""


@pytest.mark.slow
def test_ranks_that_do_not_wait_learn_as_one(tmp_path):
    """At the end all have the common table, and every step was counted once."""
    first, second = tell_of(2, tmp_path, ASYNCHRONOUS)
    assert first["digest"] == second["digest"]
    assert first["double"] == second["double"]
    assert first["visits"] == first["steps"] == second["steps"] >= 4_000_000
    assert first["steps"] < 4_000_000 + 64
    assert second["heard"] == []
    assert first["heard"][-1] == first["steps"]
    assert first["returns"] > 0
    for name in ("q", "double"):
        assert exact_share(Agent.load(tmp_path / name, runtime="serial")) >= 0.99, name


ALONE = """
import json, sys
from velocirl.algorithms import load_algorithms
from velocirl.algorithms.tabular.q_learning import QLearning
settings = {"seed": 3, "exploration_rate": 0.3}
settings |= {"learning_rate_schedule": "constant", "exploration_schedule": "constant"}
tables = {}
for runtime in ("serial", "mpi", "mpi-async"):
    agent = QLearning("TicTacToe-v1", runtime=runtime, **settings).learn(1_000_000)
    agent.learn(100_000)
    tables[runtime] = agent.table.values.tobytes()
assert tables["serial"] == tables["mpi"] == tables["mpi-async"]
print("alike")
"""


@pytest.mark.slow
def test_one_rank_without_mpirun_is_one_core(tmp_path, run_script):
    """Bit for bit, where the rates stay the same: else they go in other straight lines."""
    script = tmp_path / "alone.py"
    script.write_text(ALONE)
    assert run_script(script).strip() == "alike"


STOPPING = """
facts = {}
for runtime in ("mpi", "mpi-async"):
    agent = make("q-learning", "TicTacToe-v1", seed=0, runtime=runtime, steps_per_sync=10_000)
    agent.learn(2_000_000, lambda agent: agent.iterations < 3)
    stopped = agent.steps, agent.stopping, digest(agent)
    agent.learn()
    facts[runtime] = [stopped, agent.steps, agent.stopping, digest(agent)]
tell(**facts)
"""


@pytest.mark.slow
def test_a_callback_of_the_first_rank_stops_all_and_they_can_go_on(tmp_path):
    told = tell_of(2, tmp_path, STOPPING)
    for runtime in BOTH:
        (steps, reason, table), end, after, last = told[0][runtime]
        assert told[1][runtime] == told[0][runtime]
        assert 20_000 < steps < 1_000_000
        assert reason == "a callback stopped it"
        assert after is None
        assert 2_000_000 <= end < 2_000_000 + 128
        assert table != last


FAILING = """
runtime = sys.argv[2]
environment = velocirl.Environment(
    "Faulty-v0", state=State, reset=reset, step=bad if rank == 1 else good, observe=observe,
    observation=velocirl.Discrete(4), action=velocirl.Discrete(2), max_steps=10_000)
agent = make("q-learning", environment, seed=0, runtime=runtime, steps_per_sync=1000)
agent.prepare()
(directory / "ready").touch()
agent.learn(10**10)
"""
FAULTY = """
from velocirl import int32, record
@record
class State:
    at: int32
    steps: int32
def reset(state, params, rng):
    state.at = 0
    state.steps = 0
def good(state, params, action, rng):
    state.at = (state.at + 1) & 3
    return 1.0, False
def bad(state, params, action, rng):
    state.at = (state.at + 1) & 3
    state.steps += 1
    return (float("nan") if state.steps > 5000 else 1.0), False  # later than any rehearsal would find out
def observe(state, params, observation):
    observation[0] = state.at
"""


@pytest.mark.parametrize("runtime", [BOTH[0], pytest.param(BOTH[1], marks=pytest.mark.slow)])
def test_a_rank_that_fails_ends_the_job_with_its_traceback(tmp_path, runtime):
    script = tmp_path / "failing.py"
    script.write_text(TELL + FAULTY + FAILING)
    code, _, complaints = finish(start(2, script, tmp_path, runtime))
    assert time.time() - (tmp_path / "ready").stat().st_mtime < 30
    assert code != 0
    assert "rank 1 of 2 failed" in complaints
    assert "Traceback" in complaints
    assert "NumericalError" in complaints


def test_the_command_makes_one_run_of_all_ranks(tmp_path):
    directory = tmp_path / "run"
    code, output, complaints = finish(start(2, *train(directory, "mpi", "--json", "--total-steps", "1000000")))
    assert code == 0, complaints
    events = [json.loads(line) for line in output.splitlines()]
    assert [one["event"] for one in events].count("start") == [one["event"] for one in events].count("end") == 1
    assert events[-1]["status"] == "finished"
    assert events[-1]["steps"] >= 1_000_000
    run = open_run(directory)
    assert run.description.config["runtime"] == "mpi"
    assert run.rows()[-1]["time/total_timesteps"] == events[-1]["steps"]
    assert Agent.from_state(run.checkpoints().latest().state).steps == events[-1]["steps"]


@pytest.mark.parametrize("runtime", [BOTH[0], pytest.param(BOTH[1], marks=pytest.mark.slow)])
def test_a_killed_rank_ends_the_job_and_the_run_goes_on_from_its_checkpoint(tmp_path, runtime):
    directory = tmp_path / "run"
    endless = ["--total-steps", "1000000000000", "--checkpoint-every", "1000000", "--quiet"]
    job = start(2, *train(directory, runtime, *endless))
    pids = pids_of(job, 2)
    wait_for(lambda: any((directory / "checkpoints").glob("step_*")))
    killed = time.monotonic()
    os.kill(pids[1], signal.SIGKILL)
    code, _, _ = finish(job, limit=30)
    assert code != 0
    assert time.monotonic() - killed < 30
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids.values()), 10)
    steps = max(open_run(directory).checkpoints().steps())
    further = str(steps + 500_000)
    code, _, complaints = finish(start(2, *COMMAND, "resume", directory, "--total-steps", further, "--quiet"))
    assert code == 0, complaints
    agent = Agent.from_state(open_run(directory).checkpoints().latest().state, runtime="serial")
    assert open_run(directory).description.status == "finished"
    assert agent.steps >= steps + 500_000
    assert agent.table.arrays.rows["values"].any()


@pytest.mark.parametrize("runtime", [BOTH[0], pytest.param(BOTH[1], marks=pytest.mark.slow)])
def test_a_signal_to_any_rank_ends_all_with_a_checkpoint(tmp_path, runtime):
    directory = tmp_path / "run"
    endless = ["--total-steps", "1000000000000", "--checkpoint-every", "1000000", "--quiet"]
    job = start(2, *train(directory, runtime, *endless))
    pids = pids_of(job, 2)
    wait_for(lambda: any((directory / "checkpoints").glob("step_*")))
    os.kill(pids[1], signal.SIGTERM)
    code, _, complaints = finish(job, limit=30)
    assert code == 128 + signal.SIGTERM, complaints
    assert "Traceback" not in complaints
    run = open_run(directory)
    assert run.description.status == "stopped"
    assert run.checkpoints().latest().step > 1_000_000


@pytest.mark.slow
def test_a_run_of_ranks_goes_on_without_mpirun(tmp_path):
    directory = tmp_path / "run"
    code, _, complaints = finish(start(2, *train(directory, "mpi", "--quiet", "--total-steps", "1000000")))
    assert code == 0, complaints
    command = [sys.executable, *COMMAND, "resume", str(directory), "--total-steps", "2000000", "--quiet"]
    subprocess.run(command, check=True, timeout=60)
    assert max(open_run(directory).checkpoints().steps()) >= 2_000_000


@pytest.mark.slow
def test_environments_in_python_learn_on_ranks(tmp_path):
    text = """
agent = make("q-learning", "gym:CliffWalking-v1", seed=0, runtime="mpi", steps_per_sync=2000, gamma=1.0,
             learning_rate=0.5, exploration_rate=0.1, exploration_schedule="constant")
agent.learn(60_000)
tell(digest=digest(agent), result=velocirl.evaluate(agent, episodes=2).mean_return)
"""
    first, second = tell_of(2, tmp_path, text)
    assert first["digest"] == second["digest"]
    assert first["result"] == -13


DIFFERENT = """
try:
    make("q-learning", "TicTacToe-v1", runtime="mpi-async", storage="sparse").learn(1000)
except ValueError as error:
    tell(refused=str(error))
make("q-learning", "TicTacToe-v1", runtime="mpi", gamma=1.0 - rank / 10).learn(1000)
"""


def test_what_cannot_be_is_refused(tmp_path):
    """A sparse table that ranks would own; ranks that differ."""
    script = tmp_path / "different.py"
    script.write_text(TELL + DIFFERENT)
    code, _, complaints = finish(start(2, script, tmp_path), limit=30)
    assert code != 0
    assert "rank 1 has gamma=0.9 and rank 0 1.0" in complaints
    assert 'use runtime="mpi"' in json.loads((tmp_path / "0.json").read_text())["refused"]


def test_without_mpi4py_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(ValueError, match=r'pip install "velocirl\[mpi\]"'):
        QLearning(GAME, runtime="mpi").learn(1000)


def test_several_seeds_are_refused(capsys):
    with pytest.raises(SystemExit):
        main(["train", GAME, "--algorithm", "q-learning", "--runtime", "mpi", "--seeds", "2"])
    assert "leave out --seeds" in capsys.readouterr().err
