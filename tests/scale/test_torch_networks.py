"""Torch networks on real ranks, of mpirun and of torchrun: they learn as one process, and go on exactly."""

from functools import partial

import numpy as np
import pytest
from ranks import finish, needs_mpi, start, started, torchrun

import velocirl
from velocirl import PPO

torch = pytest.importorskip("torch")
SETTINGS = {"num_envs": 7, "horizon": 16, "epochs": 3, "minibatch_size": 112, "network": "mlp(8)", "threads": 1,
            "device": "cpu", "seed": 5, "normalise_observations": True, "target_kl": 0.001}  # fmt: skip
STEPS = 7 * 16 * 6
SCRIPT = """
import sys, velocirl
from pathlib import Path
directory, kind = Path(sys.argv[1]), getattr(velocirl, KIND)
agent = kind("CartPole-v1", **SETTINGS).learn(STEPS)
half = kind("CartPole-v1", **SETTINGS).learn(STEPS, lambda agent: agent.steps < STEPS // 2)
agent.save(directory / "whole")  # which the first rank does
half.save(directory / "half")
half.company.ranks.assemble(60)
velocirl.load(directory / "half.safetensors").learn().save(directory / "resumed")
"""


@pytest.fixture(autouse=True)
def nothing_left(tmp_path, monkeypatch, keep_runs_at):
    """Runs are kept here, and a job that a test leaves behind ends with it."""
    for name, value in keep_runs_at(tmp_path / "data").items():
        monkeypatch.setenv(name, value)
    yield
    while started:
        with started.pop() as job:
            job.kill()


def assert_alike(arrays, expected):
    """To rounding; each rank draws its minibatches by a stream of its own."""
    assert arrays.keys() == expected.keys()
    for name in arrays.keys() - {"learner.rng"}:
        array = arrays[name]
        for field in array.dtype.names or (None,):
            own, theirs = (one if field is None else one[field] for one in (array, expected[name]))
            np.testing.assert_allclose(own, theirs, rtol=2e-4, atol=2e-5, err_msg=name)


def learn_and_resume(kind, settings, directory, launch):
    """What ranks have learnt, in one go or in two."""
    script = directory / "script.py"
    script.write_text(f"KIND, SETTINGS, STEPS = {kind!r}, {settings!r}, {STEPS}\n{SCRIPT}")
    code, output, complaints = finish(launch(script, directory))
    assert code == 0, output + complaints
    whole, resumed = (velocirl.load(directory / f"{name}.safetensors").state() for name in ("whole", "resumed"))
    for name, array in whole.arrays.items():
        np.testing.assert_array_equal(resumed.arrays[name][:], array[:], err_msg=name)
    return whole


@pytest.mark.slow
@pytest.mark.parametrize(
    ("launch", "ranks"),
    [
        pytest.param(partial(start, 2), 2, id="mpirun", marks=needs_mpi),
        pytest.param(partial(torchrun, ranks=3), 3, id="torchrun"),
    ],
)
def test_ranks_learn_as_one_process_and_resume_exactly(tmp_path, launch, ranks):
    """With 4 and 3 copies, or 3, 3 and 1."""
    whole = learn_and_resume("PPO", SETTINGS, tmp_path, launch)
    one = PPO("CartPole-v1", **SETTINGS).learn(STEPS).state()
    assert_alike(whole.arrays, one.arrays)
    assert whole.arrays["learner.rng"].shape == (ranks, 2)


@pytest.mark.slow
def test_ranks_with_a_memory_resume_exactly(tmp_path):
    """Each goes on with its part of the memory, and of the streams by which batches are drawn."""
    settings = {"num_envs": 7, "network": "mlp(8)", "threads": 1, "device": "cpu", "seed": 5, "batch_size": 20,
                "buffer_size": 350, "learning_starts": 70, "train_every": 7}  # fmt: skip
    whole = learn_and_resume("DQN", settings, tmp_path, partial(torchrun, ranks=3))
    assert whole.arrays["learner.draws"].shape == (20, 2)
    assert len(whole.arrays["memory.rows"][:]) == 350
