"""The benchmarks of learning from a memory on a GPU: that everybody does the work that is measured."""

import pytest

from velocirl.bench.comparison import UnavailableError
from velocirl.bench.measuring import QUICK
from velocirl.bench.registry import find_benchmarks
from velocirl.bench.suite.cuda import cuda_replay

torch = pytest.importorskip("torch")


def test_who_is_measured():
    found = {one.name: one.define() for one in find_benchmarks(["cuda_replay"])}
    assert set(found) == {"cuda_dqn", "cuda_dqn_updates", "cuda_sac", "cuda_sac_updates"}
    for comparison in found.values():
        assert {cuda_replay.OURS, cuda_replay.NATIVE, cuda_replay.EAGER} <= set(comparison.contestants)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_nobody_is_measured():
    for contestant in cuda_replay.cuda_dqn().contestants.values():
        with pytest.raises(UnavailableError):
            contestant()


@pytest.mark.slow
def test_an_agent_learns_as_often_as_is_counted():
    work = cuda_replay.Work(16, 32, 2, 16)
    timed = cuda_replay.velocirl_training("dqn", work, "cpu", amount=2, **cuda_replay.DQN)
    timed.prepare(QUICK)
    assert timed.sample() > 10


def copies_of(*modules):
    return [[one.detach().clone() for one in module.parameters()] for module in modules]


def moved(before, module):
    return [bool((one != now).any()) for one, now in zip(before, module.parameters(), strict=True)]


@pytest.mark.usefixtures("one_torch_thread")
def test_eager_dqn_does_the_same_work():
    from velocirl.bench.peers import torch_dqn

    learner = torch_dqn.Training(8, 64, 2, 16, "cpu")
    (before,) = copies_of(learner.network)
    for _ in range(49):
        learner.iterate()
    assert (learner.updates, learner.filled, learner.place) == (98, 8 * 49, 8 * 49)
    assert all(moved(before, learner.network))
    assert not any(moved(before, learner.frozen))
    learner.iterate()
    assert all(moved(before, learner.frozen))  # after a hundred updates
    going_on = ~learner.ended[: 8 * 49]
    assert 0.5 < going_on.float().mean() < 1
    assert torch.equal(learner.following[: 8 * 49][going_on], learner.observations[8 : 8 * 50][going_on])


@pytest.mark.usefixtures("one_torch_thread")
def test_eager_sac_does_the_same_work():
    from velocirl.bench.peers import torch_sac

    learner = torch_sac.Training(8, 64, 2, 16, "cpu")
    actor, critics = copies_of(learner.actor, learner.critics)
    for _ in range(20):
        learner.iterate()
    assert all(moved(actor, learner.actor))
    assert all(moved(critics, learner.critics))
    assert learner.log_temperature.item() < 0
    far, near = (
        sum((one - now).abs().sum().item() for one, now in zip(critics, module.parameters(), strict=True))
        for module in (learner.critics, learner.frozen)
    )
    assert 0 < near < 0.5 * far
    assert torch.equal(learner.following[: 8 * 19], learner.observations[8 : 8 * 20])


def test_the_pendulum_of_eager_torch_is_gymnasiums():
    import gymnasium

    from velocirl.bench.peers import torch_sac

    env = gymnasium.make("Pendulum-v1").unwrapped
    env.reset(seed=0)
    envs = torch_sac.TensorPendulums(1, "cpu")
    envs.angles[0], envs.speeds[0] = env.state.tolist()
    for k in range(100):
        action = 1.5 * torch.tensor(float(k)).sin().item()
        seen, reward, *_ = env.step([action])
        assert envs.step(torch.tensor([[action / 2]])).item() == pytest.approx(reward, rel=1e-3, abs=1e-3)
        assert envs.seen()[0].tolist() == pytest.approx(seen.tolist(), abs=1e-3)
