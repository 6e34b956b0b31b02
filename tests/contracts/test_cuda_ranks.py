"""Ranks on GPUs: sums over them within CUDA graphs, by NCCL, or between the pieces of graphs, by way of the host."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from choosing import on_cuda
from ranks import finish, nothing_left, torchrun  # noqa: F401 - a fixture

from velocirl import PPO
from velocirl.training.persistence import Goal

torch = pytest.importorskip("torch")
pytestmark = on_cuda()
several_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")

SETTINGS = {
    "num_envs": 64, "horizon": 16, "minibatch_size": 256, "epochs": 3, "seed": 5, "hidden": (16, 16),
    "learning_rate": 3e-3, "precision": "float32", "normalise_observations": True, "normalise_rewards": True,
    "target_kl": 0.002, "max_grad_norm": 0.3, "device": "cuda",
}  # fmt: skip
ITERATIONS = 6


class Lone:
    """A job of one rank, whose sums go through the host."""

    rank, size, sums = 0, 1, 0

    def sum(self, array):
        assert isinstance(array, np.ndarray)
        self.sums += 1


def train(reducer=None, **changes):
    """What an agent has learnt, and what it was told of."""
    agent = PPO("CartPole-v1", **{**SETTINGS, **changes})
    agent.goal = Goal(0, 10**6)
    task = agent.task() if reducer is None else dataclasses.replace(agent.task(), reducer=reducer)
    learner = agent.make_learner(task)
    reports = [learner.iterate(agent.schedule(3e-3), (k + 1) * agent.config.batch) for k in range(ITERATIONS)]
    reports = [*reports[1:], learner.drain()]
    learner.settle()
    return agent.policy.parameters.copy(), [(one.returns, one.lengths, one.minibatches, one.means) for one in reports]


@pytest.mark.parametrize("graphs", ["1", "0"])
def test_graphs_that_are_cut_at_meetings_do_the_same(graphs, monkeypatch):
    monkeypatch.setenv("VELOCIRL_CUDA_GRAPHS", graphs)
    expected, told = train()
    reducer = Lone()
    parameters, also = train(reducer)
    np.testing.assert_array_equal(parameters, expected)
    assert also == told
    assert min(minibatches for _, _, minibatches, _ in told) < 12  # some were stopped
    # Normalisers, explained variance, report: 4; a minibatch has its moments and its gradient, and may be stopped.
    assert reducer.sums >= ITERATIONS * (4 + 12 * 2)


def test_a_gpu_that_is_named_is_that_one():
    expected, told = train()
    parameters, also = train(device="cuda:0")
    np.testing.assert_array_equal(parameters, expected)
    assert also == told


@several_gpus
def test_the_second_gpu_learns_what_the_first_does():
    expected, told = train(device="cuda:0")
    parameters, also = train(device="cuda:1")
    np.testing.assert_array_equal(parameters, expected)
    assert also == told
    again, _ = train(device="cuda:0")  # after the other, in the same process
    np.testing.assert_array_equal(again, expected)


NCCL = """
import json, sys
import test_cuda_ranks
from velocirl.scale.launching import Launch
from velocirl.scale.nccl import NCCLReducer, have_own_gpus
from velocirl.scale.torch_ranks import TorchRanks
ranks = TorchRanks(Launch("torch", 0, 1, 1, "torchrun"))
assert have_own_gpus(ranks, 0)
expected, told = test_cuda_ranks.train()
parameters, also = test_cuda_ranks.train(NCCLReducer(ranks, 0), device="cuda:0")
assert (parameters == expected).all()
assert also == told
print("alike")
"""


def test_sums_by_nccl_within_a_graph_do_the_same(tmp_path):
    """One rank; with several on GPUs of their own see below."""
    script = tmp_path / "script.py"
    here = Path(__file__).parent
    script.write_text(f"import sys\nsys.path[:0] = {[str(here), str(here.parent)]!r}\n{NCCL}")
    code, output, complaints = finish(torchrun(script, ranks=1))
    assert code == 0, complaints
    assert "alike" in output


LEARNING = """
import hashlib, json, sys
from pathlib import Path
from velocirl import PPO
settings, steps, directory = json.loads(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
agent = PPO("CartPole-v1", **settings).learn(steps)
agent.save(directory / "agent")
reducer = type(agent.learner.task.reducer).__name__
told = {"reducer": reducer, "device": agent.learner.task.config.device,
        "parameters": hashlib.sha256(agent.parameters.tobytes()).hexdigest()}
(directory / f"{agent.company.ranks.rank}.json").write_text(json.dumps(told))
"""


@pytest.mark.parametrize("network", [None, "mlp(16, 16)"])
@pytest.mark.parametrize("own", [False, pytest.param(True, marks=several_gpus)])
def test_two_ranks_learn_as_one_process(own, network, tmp_path):
    """Of 37 and 36 copies, on one GPU by gloo or on two by NCCL; a rollout in one minibatch needs no order."""
    settings = {**SETTINGS, "num_envs": 73, "minibatch_size": 10**6, "network": network,
                "device": "cuda" if own else "cuda:0"}  # fmt: skip
    unused = "network" if network is None else "hidden"
    settings = {name: value for name, value in settings.items() if name != unused}
    steps = 73 * 16 * ITERATIONS
    script = tmp_path / "script.py"
    script.write_text(LEARNING)
    code, output, complaints = finish(torchrun(script, json.dumps(settings), steps, tmp_path))
    assert code == 0, output + complaints
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert first["parameters"] == second["parameters"]
    assert ("NCCL" in first["reducer"]) == own
    assert [first["device"], second["device"]] == ["cuda:0", "cuda:1" if own else "cuda:0"]
    found, one = PPO.load(tmp_path / "agent.safetensors"), PPO("CartPole-v1", **settings).learn(steps)
    for name, array in one.state().arrays.items():
        if name != "learner.rng":
            for field in array.dtype.names or (None,):
                own_part, theirs = (
                    each if field is None else each[field] for each in (found.state().arrays[name], array)
                )
                np.testing.assert_allclose(own_part, theirs, rtol=1e-3, atol=1e-4, err_msg=name)
