"""The benchmarks of replay buffers: that everybody does the work that is measured."""

from contextlib import closing

import pytest

from velocirl.bench.measuring import QUICK
from velocirl.bench.registry import find_benchmarks
from velocirl.bench.suite.training import replay
from velocirl.buffers.prioritised import PrioritisedReplayBuffer
from velocirl.buffers.rank_based import RankReplayBuffer

SMALL = 2 * replay.ADDED


def test_what_is_claimed():
    claims = {
        (one.name, claim.of, claim.at_least, claim.at_most)
        for one in find_benchmarks(["replay"])
        for claim in one.define().claims
        if claim.by == "value"
    }
    assert claims == {
        ("replay_sample", "velocirl", None, 10e-6),
        ("replay_add", "velocirl", 50e6, None),
        ("replay_prioritised", "velocirl", None, 60e-6),
    }


def test_the_transitions_differ():
    transitions = replay.random_transitions(100)
    for name in ("observation", "reward", "next_observation"):
        assert len(set(transitions[name].reshape(-1).tolist())) == transitions[name].size


def test_velocirl_samples_and_adds():
    assert replay.velocirl_sampling(SMALL).call().shape == (256,)
    adding = replay.velocirl_adding(SMALL)
    adding.prepare(QUICK)
    assert adding.amount == replay.ADDED
    assert 1e5 < adding.sample() < 1e11


@pytest.mark.parametrize("kind", [PrioritisedReplayBuffer, pytest.param(RankReplayBuffer, marks=pytest.mark.slow)])
def test_velocirl_samples_by_priority(kind):
    timed = replay.velocirl_prioritised(kind, SMALL)
    timed.prepare(QUICK)
    assert 1e-7 < timed.sample() < 0.1


def test_stable_baselines3_does_the_same_work():
    pytest.importorskip("stable_baselines3")
    buffer, add = replay.stable_baselines3_buffer(SMALL)
    add()
    assert buffer.pos * buffer.n_envs == replay.ADDED
    assert buffer.buffer_size * buffer.n_envs == SMALL
    drawn = replay.stable_baselines3_sampling(SMALL)()
    assert drawn.observations.shape == (256, 4)


def test_cpprb_does_the_same_work():
    pytest.importorskip("cpprb")
    buffer, add = replay.cpprb_buffer("ReplayBuffer", SMALL)
    add()
    assert buffer.get_stored_size() == SMALL
    assert replay.cpprb_sampling(SMALL)()["obs"].shape == (256, 4)
    buffer, _ = replay.cpprb_buffer("PrioritizedReplayBuffer", SMALL)
    sample = buffer.sample(replay.BATCH, beta=replay.BETA)
    assert sample["weights"].shape == sample["indexes"].shape == (256,)
    replay.cpprb_prioritised(SMALL)()


def test_a_peer_runs_in_a_process_of_its_own():
    pytest.importorskip("stable_baselines3")
    with closing(replay.peer("stable_baselines3_sampling", "stable_baselines3", capacity=SMALL)) as peer:
        assert 1e-7 < peer.sample() < 1


def test_a_peer_that_is_not_installed_is_named():
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        replay.peer("cpprb_sampling", "no_such_library")
