"""Shapes: what is tried keeps to the rules of the algorithm, and to as many steps and updates as the reference has."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from gymnasium.spaces import Box
from hypothesis import given
from hypothesis import strategies as st

from velocirl import A2C, DQN, PPO, SAC
from velocirl.algorithms.online.ppo import PPOConfig
from velocirl.algorithms.tabular.q_learning import QLearning
from velocirl.bench.tuning.shapes import FEWEST_ITERATIONS, distance, doublings, shapes_of, without

SMALL = Box(-1.0, 1.0, (4,), np.float32)


def shapes(config, total_steps=100_000, cores=4, native=True, observation=SMALL):
    source = SimpleNamespace(native=native or None, observation_space=observation)
    return shapes_of(SimpleNamespace(config=config, source=source), total_steps, cores)


@given(
    num_envs=st.integers(1, 300),
    horizon=st.integers(1, 300),
    parts=st.integers(1, 40),
    kind=st.sampled_from(["samples", "environments"]),
    accumulation=st.integers(1, 4),
    total_steps=st.integers(1, 10**7),
)
def test_every_rollout_has_equal_minibatches_and_every_training_enough_rollouts(
    num_envs, horizon, parts, kind, accumulation, total_steps
):
    size = max(num_envs * horizon // parts, 1)
    config = PPOConfig(
        num_envs=num_envs, horizon=horizon, minibatch_size=size, minibatches=kind, gradient_accumulation=accumulation
    )
    found = shapes(config, total_steps)
    for changes in found:
        assert set(changes) <= {"num_envs", "horizon", "minibatch_size"}  # never the learning rate
        one = replace(config, **changes)
        assert one.batch * FEWEST_ITERATIONS <= max(total_steps, config.batch * FEWEST_ITERATIONS)
        assert one.horizon >= min(8, config.horizon)
        assert one.num_minibatches >= min(accumulation, config.num_minibatches)
        if config.batch % size == 0 and config.num_minibatches > 1:
            assert one.batch % one.minibatch_size == 0
            assert one.num_minibatches == one.batch // one.minibatch_size  # not cut short for want of copies
    assert len({tuple(sorted(changes.items())) for changes in found}) == len(found)
    assert {} not in found


def test_copies_grow_with_the_minibatches_with_their_number_or_without_the_rollout():
    config = PPO.Config()  # 32 x 64 in minibatches of 128
    found = shapes(config)
    assert {"num_envs": 64, "minibatch_size": 256} in found
    assert {"num_envs": 64} in found
    assert {"num_envs": 256, "horizon": 8} in found
    assert {"num_envs": 512, "horizon": 4} not in found
    assert {"num_envs": 16, "horizon": 128} in found
    assert {"minibatch_size": 64} in found
    assert {"num_envs": 2048} not in found  # one rollout would be more than the training
    assert {"num_envs": 2048} in shapes(config, 10**7)
    assert {"num_envs": 4096} not in shapes(config, 10**9)  # 64 times as many are the most


def test_a_rollout_of_pictures_is_not_larger_than_memory():
    config, pictures = PPO.Config(), Box(0, 255, (256, 256), np.uint8)
    assert {"num_envs": 64} in shapes(config, 10**9, observation=pictures)  # 256 MiB
    assert {"num_envs": 128} not in shapes(config, 10**9, observation=pictures)
    assert {"num_envs": 128, "horizon": 16} in shapes(config, 10**9, observation=pictures)


def test_where_a_minibatch_is_the_whole_rollout_it_stays_that():
    config = A2C.Config()
    found = shapes(config)
    assert {"num_envs": 64} in found
    assert all("minibatch_size" not in changes for changes in found)
    assert all(replace(config, **changes).num_minibatches == 1 for changes in found)


@pytest.mark.parametrize("algorithm", [DQN, SAC])
def test_as_much_is_learnt_from_a_step_as_before(algorithm):
    config = algorithm.Config()
    found = shapes(config)
    for changes in found:
        one = replace(config, **changes)
        updates, before = one.gradient_steps / one.train_every, config.gradient_steps / config.train_every
        if one.batch_size <= config.batch_size:
            assert updates == before
        else:
            assert updates * one.batch_size == before * config.batch_size  # as many transitions in larger batches
        assert one.num_envs * FEWEST_ITERATIONS <= one.buffer_size
    assert {"num_envs": 2 * config.num_envs} in found
    assert {"batch_size": config.batch_size // 2} in found


def test_the_copies_of_a_table_can_be_shared_out_to_the_workers():
    config = QLearning("GridWorld-v0", seed=0).config
    found = shapes(config, 50_000, cores=6)
    several = [changes for changes in found if "workers" in changes]
    assert {changes["workers"] for changes in several} == {2, 4}  # 64 copies cannot be shared out to 6
    assert all(changes["runtime"] == "threads" for changes in several)
    for changes in several:
        assert changes.get("num_envs", 64) % changes["workers"] == 0
    assert {"num_envs": 128} in found
    host = shapes(config, 50_000, cores=2, native=False)
    assert {"runtime": "processes", "workers": 2} in host


def test_what_the_configuration_would_refuse_is_not_tried():
    config = QLearning("GridWorld-v0", seed=0, runtime="threads", workers=2, pin=True).config
    assert all(changes.get("runtime") is None for changes in shapes(config, 50_000))


def test_nearer_is_what_has_fewer_doublings():
    config = PPO.Config()
    assert distance(config, {}) == 0
    assert distance(config, {"num_envs": 64}) == distance(config, {"num_envs": 16}) == 1
    assert distance(config, {"num_envs": 128, "minibatch_size": 512}) == 4
    assert distance(QLearning("GridWorld-v0", seed=0).config, {"runtime": "threads", "workers": 2}) == 2


def test_doublings_end_with_the_most():
    assert [doublings(most) for most in (1, 2, 6, 16)] == [[1], [1, 2], [1, 2, 4, 6], [1, 2, 4, 8, 16]]


def test_what_a_person_decided_is_left_alone():
    found = [{"num_envs": 2}, {"num_envs": 2, "horizon": 4}, {"minibatch_size": 8}]
    assert without(found, {"horizon", "seed"}) == [{"num_envs": 2}, {"minibatch_size": 8}]
