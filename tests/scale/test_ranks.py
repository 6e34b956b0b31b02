"""Agents on real ranks, of mpirun and of torchrun: as one process of as many threads, one run, and an end for all."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from ranks import COMMAND, LIMIT, TELL, finish, needs_mpi, pids_of, start, tell_of, torchrun, train, wait_for
from recorded import file_of

from velocirl.algorithms.online.ppo import PPO
from velocirl.runs.directory import open_run
from velocirl.training.agent import Agent

SETTINGS = {"num_envs": 7, "horizon": 16, "epochs": 2, "minibatch_size": 30, "hidden": [8], "device": "cpu", "seed": 5}
STEPS = 7 * 16 * 6


def arrays_of(agent_or_run):
    """What is learnt, and where the copies are."""
    arrays = agent_or_run.state().arrays if hasattr(agent_or_run, "state") else None
    return arrays if arrays is not None else open_run(agent_or_run).checkpoints().latest().state.arrays


def assert_alike(arrays, expected):
    """To rounding: in what order numbers of several ranks are added up is MPI's to choose."""
    assert arrays.keys() == expected.keys()
    for name, array in arrays.items():
        for field in array.dtype.names or (None,):
            own, theirs = (one if field is None else one[field] for one in (array, expected[name]))
            np.testing.assert_allclose(own, theirs, rtol=2e-4, atol=2e-5, err_msg=name)


LEARNING = """
settings = json.loads(sys.argv[2]) if len(sys.argv) > 2 else SETTINGS
make_one = lambda **more: make("ppo", "Pendulum-v1", threads=1, shares=1, **{**settings, **more})
heard = []
agent = make_one().learn(STEPS, lambda agent: heard.append(agent.metrics["rollout/ep_rew_mean"]))
once = hashlib.sha256(agent.parameters.tobytes()).hexdigest()
half = make_one().learn(STEPS, lambda agent: agent.steps < STEPS // 2)
agent.save(directory / "whole")  # which the first rank does
half.save(directory / "half")
MPI.COMM_WORLD.Barrier()
half = velocirl.load(directory / "half.safetensors").learn()
half.save(directory / "resumed")
free = make_one(seed=None).learn(200)  # one of the first rank's choice
tell(once=once, heard=heard, steps=agent.steps, free=[free.seed, float(np.abs(free.parameters).sum())],
     resumed=hashlib.sha256(half.parameters.tobytes()).hexdigest())
"""


@needs_mpi
def test_ranks_of_mpi_learn_as_threads_and_resume_exactly(tmp_path):
    """Three ranks with 3, 3 and 1 copies; the seed that nobody gave is the same on all."""
    text = f"import numpy as np\nSETTINGS, STEPS = {SETTINGS!r}, {STEPS}\n{LEARNING}"
    first, *others = tell_of(3, tmp_path, text)
    one = PPO("Pendulum-v1", shares=3, **SETTINGS)
    heard = []
    one.learn(STEPS, lambda agent: heard.append(agent.metrics["rollout/ep_rew_mean"]))
    whole, resumed = (PPO.load(tmp_path / f"{name}.safetensors") for name in ("whole", "resumed"))
    assert_alike(arrays_of(whole), arrays_of(one))
    assert first["heard"] == pytest.approx(heard, nan_ok=True)
    assert first["resumed"] == first["once"]
    for name, array in arrays_of(whole).items():
        np.testing.assert_array_equal(arrays_of(resumed)[name], array, err_msg=name)
    for other in others:
        assert other["heard"] == []
        assert [other[name] for name in ("once", "resumed", "steps", "free")] == [
            first[name] for name in ("once", "resumed", "steps", "free")
        ]


@needs_mpi
def test_a_signal_to_any_rank_saves_once_and_the_run_goes_on(tmp_path):
    directory, total = tmp_path / "run", 128 * 4000
    job = start(2, *train(directory, "--total-steps", total, "--checkpoint-every", "12800", "--json"))
    pids = pids_of(job, 2)
    wait_for(lambda: any((directory / "checkpoints").glob("step_*")))
    os.kill(pids[1], signal.SIGTERM)
    code, output, complaints = finish(job, limit=30)
    assert code == 128 + signal.SIGTERM, complaints
    assert "Traceback" not in complaints
    assert [json.loads(line)["event"] for line in output.splitlines()].count("end") == 1
    run = open_run(directory)
    assert run.description.status == "stopped"
    stopped = run.checkpoints().latest()
    assert 12_800 <= stopped.step < total
    assert stopped.state.document["ranks"] == 2
    until = stopped.step + 128 * 20
    code, _, complaints = finish(start(2, *COMMAND, "resume", directory, "--total-steps", until, "--quiet"))
    assert code == 0, complaints
    assert open_run(directory).checkpoints().latest().step == until


@needs_mpi
def test_what_ranks_cannot_do_is_said_once_before_anything_starts(tmp_path):
    command = [
        *COMMAND,
        "train",
        "CartPole-v1",
        "--algorithm",
        "dqn",
        "--priority",
        "rank",
        "--run-dir",
        tmp_path / "run",
    ]
    code, output, complaints = finish(start(2, *command))
    assert code == 2
    assert output == ""
    said = [line for line in complaints.splitlines() if line.startswith("error:")]
    assert len(said) == 1
    assert "DQN learns on one rank only where one order of all errors decides what it draws" in said[0]
    assert "mpirun has started 2 processes: start one, or give runtime=" in said[0]
    assert not (tmp_path / "run").exists()


@needs_mpi
@pytest.mark.slow
def test_ranks_of_several_threads_learn_as_all_of_them(tmp_path):
    """Two ranks of two threads, with 4 and 3 copies."""
    text = (
        f"agent = make('ppo', 'Pendulum-v1', threads=2, shares=2, **{SETTINGS!r}).learn({STEPS})\n"
        "agent.save(directory / 'ranks')"
    )
    tell_of(2, tmp_path, f"{text}\ntell()")
    one = PPO("Pendulum-v1", shares=4, **SETTINGS).learn(STEPS)
    assert_alike(arrays_of(PPO.load(tmp_path / "ranks.safetensors")), arrays_of(one))


REMEMBERING = """
settings = {"device": "cpu", "hidden": [8], "seed": 5, "threads": 1, "batch_size": 16}
makers = {
    "dqn": lambda: make("dqn", "CartPole-v1", num_envs=7, learning_starts=100, train_every=50, **settings),
    "bc": lambda: make("bc", "Pendulum-v1", data=sys.argv[2], **settings),
}
told = {}
for name, one in makers.items():
    whole, half = one().learn(3000), one().learn(3000, lambda agent: agent.steps < 1500)
    whole.save(directory / name)
    half.save(directory / f"{name}-half")
    MPI.COMM_WORLD.Barrier()
    again = velocirl.load(directory / f"{name}-half.safetensors").learn()
    told[name] = [hashlib.sha256(agent.parameters.tobytes()).hexdigest() for agent in (whole, again)]
tell(**told)
"""


@needs_mpi
@pytest.mark.slow
def test_ranks_of_mpi_remember_and_read_data_and_resume_exactly(tmp_path):
    """Three ranks; what they saved is one agent, with which one process goes on."""
    script = tmp_path / "script.py"
    script.write_text(TELL + REMEMBERING)
    code, output, complaints = finish(start(3, script, tmp_path, file_of("Pendulum-v1")))
    assert code == 0, output + complaints
    first, *others = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(3)]
    assert others == [first, first]
    for name in ("dqn", "bc"):
        assert first[name][0] == first[name][1]
        half = Agent.load(tmp_path / f"{name}-half.safetensors")
        assert len(half.state().arrays.get("memory.rows", ())) == (half.steps if name == "dqn" else 0)
        with pytest.warns(UserWarning, match="was trained by 3 ranks and goes on with 1"):
            assert 3000 <= half.learn(progress=False).steps < 3007


@needs_mpi
@pytest.mark.slow
def test_a_run_with_a_memory_goes_on_with_other_numbers_of_ranks(tmp_path):
    """Its checkpoints have the rows of all in segments."""
    directory, small = tmp_path / "run", ["--num-envs", "6", "--train-every", "2000", "--buffer-size", "300000"]
    more = ["--algorithm", "dqn", *small, "--hidden", "8", "--device", "cpu", "--quiet", "--run-dir", directory]
    command = [*COMMAND, "train", "CartPole-v1", "--total-steps", "120000", *more]
    code, output, complaints = finish(start(2, *command))
    assert code == 0, output + complaints
    resume = [*COMMAND, "resume", directory, "--quiet", "--total-steps"]
    code, _, complaints = finish(start(3, *resume, "150000"))
    assert code == 0, complaints
    assert complaints.count("was trained by 2 ranks and goes on with 3") == 1
    subprocess.run([sys.executable, *map(str, resume), "180000"], check=True, timeout=LIMIT)
    checkpoints = open_run(directory).checkpoints()
    assert list((checkpoints.directory / "memory").glob("*.rows"))
    assert len(checkpoints.latest().state.arrays["memory.rows"]) == 180_000


DIFFERENT = """
make("ppo", "CartPole-v1", device="cpu", hidden=[8], num_envs=8, seed=0, gamma=0.9 - rank / 10).learn(1000)
"""


@needs_mpi
@pytest.mark.slow
def test_ranks_that_differ_are_refused(tmp_path):
    script = tmp_path / "different.py"
    script.write_text(TELL + DIFFERENT)
    code, _, complaints = finish(start(2, script, tmp_path), limit=60)
    assert code == 2
    assert "rank 1 has gamma=0.8 and rank 0 0.9: all ranks train the same agent" in complaints
    assert "Traceback" not in complaints


FAILING = """
from velocirl import float32, record
@record
class State:
    at: float32
@record
class Params:
    bad: float32 = 0.0
def reset(state, params, rng):
    state.at = 0.0
def step(state, params, action, rng):
    state.at += 1.0
    return (float("nan") if params.bad * state.at > 5000.0 else 1.0), False  # later than any rehearsal would find out
def observe(state, params, observation):
    observation[0] = state.at
environment = velocirl.Environment(
    "Faulty-v0", state=State, params=Params, reset=reset, step=step, observe=observe,
    observation=velocirl.Box(-1e9, 1e9, (1,)), action=velocirl.Discrete(2), max_steps=100_000)
agent = make("ppo", environment, seed=0, device="cpu", hidden=[8], num_envs=4, horizon=16, params={"bad": [0, 0, 0, 1]})
agent.prepare()
(directory / "ready").touch()
agent.learn(10**10)
"""


@needs_mpi
@pytest.mark.slow
def test_a_rank_that_fails_ends_the_job_with_its_traceback(tmp_path):
    script = tmp_path / "failing.py"
    script.write_text(TELL + FAILING)
    code, _, complaints = finish(start(2, script, tmp_path))
    assert time.time() - (tmp_path / "ready").stat().st_mtime < 60
    assert code != 0
    assert "rank 1 of 2 failed, which ends the others" in complaints
    assert "Traceback" in complaints
    assert "a reward of the environment is not finite: copy 3" in complaints


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_rank_ends_the_job_and_the_run_goes_on_with_another_number(tmp_path, rank):
    directory = tmp_path / "run"
    job = start(2, *train(directory, "--total-steps", "1000000000", "--checkpoint-every", "12800", "--quiet"))
    pids = pids_of(job, 2)
    wait_for(lambda: any((directory / "checkpoints").glob("step_*")))
    killed = time.monotonic()
    os.kill(pids[rank], signal.SIGKILL)
    code, _, _ = finish(job, limit=30)
    assert code != 0
    assert time.monotonic() - killed < 15
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids.values()), 10)
    steps = max(open_run(directory).checkpoints().steps())
    command = [sys.executable, *COMMAND, "resume", str(directory), "--total-steps", str(steps + 1280), "--quiet"]
    done = subprocess.run(command, check=True, timeout=60, capture_output=True, text=True)
    assert "this agent was trained by 2 ranks and goes on with 1" in done.stderr
    assert max(open_run(directory).checkpoints().steps()) == steps + 1280


@pytest.mark.slow
def test_ranks_of_torchrun_are_those_of_mpirun(tmp_path):
    """A signal to one of them stops both, and what is left of them when one is killed ends."""
    pytest.importorskip("torch")
    directory = tmp_path / "run"
    words = [str(word) for word in train(directory, "--total-steps", 128 * 20, "--quiet")[len(COMMAND) :]]
    code, output, complaints = finish(torchrun("-m", "velocirl", *words))
    assert code == 0, complaints
    assert output == ""
    one = PPO("CartPole-v1", shares=2, num_envs=8, horizon=16, hidden=(8,), seed=5, device="cpu").learn(128 * 20)
    assert_alike(arrays_of(directory), arrays_of(one))
    for number in (signal.SIGTERM, signal.SIGKILL):
        before = max(open_run(directory).checkpoints().steps())
        job = torchrun("-m", "velocirl", "resume", directory, "--total-steps", 10**9, "--quiet")
        pids = pids_of(job, 2, b"RANK=")
        wait_for(lambda: max(open_run(directory).checkpoints().steps()) > before)  # noqa: B023 - now
        sent = time.monotonic()
        os.kill(pids[1], number)
        code, _, _ = finish(job, limit=30)
        assert code != 0
        assert time.monotonic() - sent < 15
        wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids.values()), 10)  # noqa: B023
        if number == signal.SIGTERM:
            assert open_run(directory).description.status == "stopped"
            assert max(open_run(directory).checkpoints().steps()) % 128 == 0


@pytest.mark.slow
def test_ranks_of_torchrun_learn_from_a_memory_and_from_data(tmp_path):
    """Each run resumes with as many ranks."""
    pytest.importorskip("torch")
    small = ["--batch-size", "16", "--hidden", "8", "--threads", "1", "--seed", "5", "--device", "cpu", "--quiet"]
    runs = {
        "sac": ["Pendulum-v1", "--num-envs", "3", "--train-every", "30", "--learning-starts", "60"],
        "iql": ["Pendulum-v1", "--data", file_of("Pendulum-v1")],
    }
    for name, words in runs.items():
        directory = tmp_path / name
        command = ["train", *words, "--algorithm", name, *small, "--total-steps", "600", "--run-dir", directory]
        for one in (command, ["resume", directory, "--total-steps", "900", "--quiet"]):
            code, output, complaints = finish(torchrun("-m", "velocirl", *one))
            assert code == 0, complaints
            assert output == ""
        latest = open_run(directory).checkpoints().latest()
        assert latest.step == 900
        assert latest.state.document["ranks"] == 2


MISSING = """
from velocirl.scale.launching import launch_of
from velocirl.scale.torch_ranks import TorchRanks
try:
    TorchRanks(launch_of("torch"), seconds=2.0)
except ValueError as error:
    print(error)
"""


@pytest.mark.slow
def test_a_rank_of_torch_that_does_not_come_is_missed(tmp_path):
    pytest.importorskip("torch")
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    script = tmp_path / "missing.py"
    script.write_text(MISSING)
    variables = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    done = subprocess.run(
        [sys.executable, str(script)], env={**os.environ, **variables}, capture_output=True, text=True, timeout=60,
        check=True,
    )  # fmt: skip
    assert "rank 0 of 2 has not found the others in 2 s: start all with the same MASTER_ADDR" in done.stdout
