"""Networks that look and networks that remember learn what they are for, within a stated budget on one thread."""

import pytest

import velocirl

pytest.importorskip("torch")

OTHER_SEEDS = range(1, 5)


def learnt(name, steps, seed, **settings):
    """The mean return of 1000 episodes after so many steps of training."""
    agent = velocirl.PPO(name, seed=seed, threads=1, device="cpu", **settings).learn(steps)
    return velocirl.evaluate(agent, episodes=1000, seed=1).mean_return


def catch_by_looking(seed):
    """CatchPixels, 30,000 steps, 3 to 4 seconds: a perfect policy earns 1."""
    return learnt(
        "CatchPixels-v0", 30_000, seed, network="cnn(8, 16, stride=2) mlp(64)", activation="relu", num_envs=64,
        horizon=18, minibatch_size=288, learning_rate=0.005,
    )  # fmt: skip


def repeat_five_bits(seed):
    """Memory of length 5, 150,000 steps, 7 to 9 seconds: a perfect policy earns 5, any without memory 2.5.

    With Memory's preset, where a rollout is an episode and a minibatch a quarter of the copies: what costs time is that
    its steps come one after the other, and not how many copies take them.
    """
    return learnt("Memory-v0", 150_000, seed, params={"length": 5}, horizon=12, minibatch_size=384)


@pytest.mark.slow
def test_a_convolutional_policy_catches():
    assert catch_by_looking(seed=0) >= 0.9


@pytest.mark.slow
@pytest.mark.parametrize("seed", OTHER_SEEDS)
def test_a_convolutional_policy_catches_whatever_the_seed(seed):
    assert catch_by_looking(seed) >= 0.9


@pytest.mark.slow
def test_a_recurrent_policy_remembers_five_bits():
    assert repeat_five_bits(seed=0) >= 4.75


@pytest.mark.slow
@pytest.mark.parametrize("seed", OTHER_SEEDS)
def test_a_recurrent_policy_remembers_five_bits_whatever_the_seed(seed):
    assert repeat_five_bits(seed) >= 4.75
