"""The guard against numbers that are not numbers: it stops the run, names the source, and no checkpoint follows."""

from math import inf, nan
from types import SimpleNamespace

import numpy as np
import pytest
from fragile import fleet_of, fragile, spoil

from velocirl import PPO, Checkpoint, NumericalError
from velocirl.engine.disk.allowance import AllowanceError
from velocirl.program.faults import DeviceMemoryError, tells_of_memory
from velocirl.runs.checkpoints import Checkpoints

SMALL = {"num_envs": 6, "horizon": 16, "minibatch_size": 32, "epochs": 2, "hidden": (16, 16), "threads": 2, "shares": 2,
         "seed": 1, "shared": True, "activation": "tanh"}  # fmt: skip
BATCH = 96


@pytest.fixture(params=["cpu", "python"])
def prepared(request):
    def prepared(**changes):
        agent = PPO(fragile, **{**SMALL, "device": request.param, **changes})
        agent.prepare()
        return agent

    return prepared


def assert_stops(agent, message, directory, iterations=1):
    """It stops in iteration `iterations` + 1, and the newest checkpoint is from before."""
    with pytest.raises(NumericalError, match=message):
        agent.learn(10 * BATCH, Checkpoint(directory, every=1))
    saved = Checkpoints(directory)
    assert list(saved.steps()) == [BATCH * k for k in range(1, iterations + 1)]
    for array in saved.latest().state.arrays.values():
        assert array.dtype.kind != "f" or np.isfinite(array).all()


@pytest.mark.parametrize("number", [nan, inf, -inf])
@pytest.mark.parametrize("copy", [1, 5])
def test_in_a_reward(prepared, number, copy, tmp_path):
    agent = prepared()
    spoil(agent, copy, at=21, reward=number)  # step 4 of the second rollout
    message = rf"a reward of the environment is not finite: copy {copy}, step {BATCH + 4 * 6} of the run \(4 of this"
    assert_stops(agent, message, tmp_path)


@pytest.mark.parametrize("number", [nan, inf, -inf])
@pytest.mark.parametrize("normalise", [False, True])
def test_in_an_observation(prepared, number, normalise, tmp_path):
    agent = prepared(normalise_observations=normalise)
    spoil(agent, 3, at=20, observation=number)
    message = rf"an observation of the environment is not finite: copy 3, step {BATCH + 4 * 6} of the run \(4 of this"
    assert_stops(agent, message, tmp_path)


def test_in_the_observation_after_a_rollout(prepared, tmp_path):
    agent = prepared()
    spoil(agent, 2, at=32, observation=nan)  # seen after the last step of the second rollout
    assert_stops(agent, "an observation of the environment is not finite: copy 2", tmp_path)


def test_in_a_final_observation(prepared, tmp_path):
    agent = prepared()
    fleet_of(agent).copies.elapsed[4] = 980  # cut off at step 1000: step 3 of the second rollout
    spoil(agent, 4, at=20, observation=nan)
    message = rf"an observation of the environment is not finite: copy 4, step {BATCH + 3 * 6} of the run \(3 of this"
    assert_stops(agent, message, tmp_path)


def test_in_the_network(prepared, tmp_path):
    agent = prepared()

    def damage(agent):
        agent.parameters[-1] = nan  # the bias of the value
        agent.learner.take()

    with pytest.raises(
        NumericalError, match=rf"the output of the network is not finite: copy 0, step {BATCH} of the run"
    ):
        agent.learn(10 * BATCH, [Checkpoint(tmp_path, every=1), damage])
    assert list(Checkpoints(tmp_path).steps()) == [BATCH]


def test_in_the_gradient(prepared, tmp_path):
    """A reward near the largest number is finite, a hundred times the critic's error is not."""
    agent = prepared(value_coefficient=100.0, normalise_rewards=False)
    spoil(agent, 0, at=21, reward=1e38)
    before = []
    message = f"the gradient is not finite in the update after step {2 * BATCH} of the run"
    with pytest.raises(NumericalError, match=message):
        agent.learn(10 * BATCH, [Checkpoint(tmp_path, every=1), lambda agent: before.append(agent.parameters.copy())])
    assert list(Checkpoints(tmp_path).steps()) == [BATCH]
    assert np.isfinite(before[-1]).all()


def test_in_a_parameter(prepared, tmp_path):
    """A step so large that it leaves the numbers, though its gradient was one."""
    agent = prepared(learning_rate=3e38, max_grad_norm=0.0)
    with pytest.raises(NumericalError, match="is not finite"):
        agent.learn(10 * BATCH, Checkpoint(tmp_path, every=1))
    assert not Checkpoints(tmp_path).steps()


def test_of_the_first_copy_and_step(prepared):
    agent = prepared()
    spoil(agent, 5, at=3, reward=nan)
    spoil(agent, 4, at=2, reward=inf)
    with pytest.raises(NumericalError, match=r"copy 4, step 6 of the run \(1 of this rollout\)"):
        agent.learn(BATCH)


def test_ordinary_numbers_pass(prepared):
    agent = prepared(normalise_observations=True)
    spoil(agent, 0, at=5, reward=-1000.0, observation=1e6)
    agent.learn(2 * BATCH)
    assert np.isfinite(agent.parameters).all()


class OutOfMemoryError(RuntimeError):
    """As torch says it."""


@pytest.mark.parametrize(("settings", "said"), [
    ({}, r"batch_size=512 with num_envs=4 copies beside a memory of buffer_size=9,000 transitions: give batch_size=256"
         r" with gradient_accumulation=2, which learns the same, a smaller buffer_size or num_envs, or precision="),
    ({"batch_size": 1, "precision": "fp16"}, r"give batch_size=1, a smaller buffer_size or num_envs\. Checkpoints"),
])  # fmt: skip
def test_a_memory_that_does_not_fit_a_device_is_told_with_what_to_change(settings, said):
    config = {"device": "cuda", "batch_size": 512, "num_envs": 4, "buffer_size": 9000, "gradient_accumulation": 1}
    config = SimpleNamespace(**{**config, "precision": "tf32", **settings})
    with pytest.raises(DeviceMemoryError, match=said), tells_of_memory(config):
        raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


def test_a_rollout_that_does_not_fit_a_device_is_told_with_what_to_change():
    config = SimpleNamespace(device="cuda", num_envs=64, horizon=32, minibatch_size=4096)
    said = r"64 x horizon=32 = 2,048 samples with minibatches of 2,048: reduce num_envs or minibatch_size"
    with pytest.raises(DeviceMemoryError, match=said), tells_of_memory(config):
        raise OutOfMemoryError("out_of_memory")


@pytest.mark.parametrize("error", [ValueError("a mistake"), DeviceMemoryError("told"), AllowanceError("told")])
def test_other_errors_stay_as_they_are(error):
    with pytest.raises(type(error), match=str(error)), tells_of_memory(SimpleNamespace()):
        raise error
