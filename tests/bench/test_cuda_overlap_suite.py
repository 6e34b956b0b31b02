"""The benchmarks of learning and stepping at once on a GPU: that both manners do the work that is counted."""

import pytest

from velocirl.bench.comparison import UnavailableError
from velocirl.bench.suite.cuda import cuda_overlap

torch = pytest.importorskip("torch")
SMALL = {
    "num_envs": 4, "batch_size": 8, "train_every": 4, "buffer_size": 400, "learning_starts": 8, "device": "cpu",
    "network": "cnn(2x8s4) mlp(8)", "threads": 1,
}  # fmt: skip


def test_what_is_asked_of_it():
    defined = cuda_overlap.cuda_overlap, cuda_overlap.cuda_overlap_updates, cuda_overlap.cuda_overlap_busy
    found = {one.__name__: one() for one in defined}
    asked = {name: [claim.at_least for claim in one.claims if claim.at_least] for name, one in found.items()}
    assert asked == {"cuda_overlap": [100_000], "cuda_overlap_updates": [200], "cuda_overlap_busy": [0.85]}
    assert cuda_overlap.SETTINGS["train_every"] == cuda_overlap.COPIES  # an update for each step of all copies


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_nobody_is_measured():
    for contestant in cuda_overlap.cuda_overlap().contestants.values():
        with pytest.raises(UnavailableError):
            contestant()


@pytest.mark.slow
@pytest.mark.parametrize("manner", cuda_overlap.MANNERS)
def test_an_agent_learns_as_often_as_is_counted(manner, monkeypatch):
    monkeypatch.setattr(cuda_overlap, "ROUNDS", 8)
    monkeypatch.setattr(cuda_overlap, "require_cuda", lambda: type("Nothing", (), {"synchronize": staticmethod(list)}))
    agent = cuda_overlap.make_agent(manner, **SMALL)
    before = agent.learner.done
    cuda_overlap.learn(agent)
    assert agent.learner.done - before == 8
    assert agent.config.overlap == (manner == cuda_overlap.TOGETHER)
    assert 0.0 < cuda_overlap.busy(manner, **SMALL).sample() <= 1.0
