"""The torch machine of off-policy learning on the CPU: against the native one, autograd, and counting."""

from math import inf, nan

import numpy as np
import pytest
import torch
from choosing import slow_but
from fragile import fragile
from velocirl.buffers.rollout import GOES_ON, TERMINATED
from velocirl.training.mapped_replaying import FAULT
from velocirl.training.torch_memory import DeviceMemoryError
from velocirl.training.torch_off_policy_ring import tells_of_ring

from velocirl import DQN, NumericalError
from velocirl.algorithms.online.sac import SAC
from velocirl.algorithms.online.td3 import TD3
from velocirl.buffers.prioritised import PrioritisedReplayBuffer
from velocirl.training.agent import Goal

SMALL = {
    "num_envs": 4, "buffer_size": 400, "learning_starts": 40, "batch_size": 16, "train_every": 4, "gradient_steps": 1,
    "target_every": 5, "seed": 3, "threads": 1, "device": "cpu", "gamma": 0.9, "hidden": (16, 16),
    "learning_rate": 3e-3, "learning_rate_schedule": "constant", "n_step": 1,
}  # fmt: skip
TORCH = {"network": "mlp(16, 16)"}
# One record at a time, so that every batch is the newest step many times over, whoever draws it.
ALONE = {
    **SMALL, "num_envs": 1, "buffer_size": 1, "learning_starts": 0, "train_every": 1, "optimiser": "sgd",
    "learning_rate": 0.02, "target_every": 2, "max_grad_norm": 0.0, "tau": 0.3,
}  # fmt: skip

pytestmark = pytest.mark.usefixtures("one_torch_thread")


def prepared(environment="Counter-v0", kind=DQN, steps=10**6, **config):
    agent = kind(environment, **{**SMALL, **config})
    agent.goal = Goal(0, steps)
    agent.prepare()
    return agent


def rows_of(agent):
    return agent._machine.ring.rows


@pytest.mark.parametrize("name", slow_but({"Counter-v0"}, ["Counter-v0", "TicTacToe-v1"]))
def test_what_is_remembered_is_what_the_native_learner_remembers(name):
    """While actions are random: both draw the same random numbers for the same copies."""
    native, torched = (prepared(name, steps=400, learning_starts=400, **one) for one in ({}, TORCH))
    rows = native.iterate(), torched.iterate()
    expected, found = native._machine.buffer.rows, rows_of(torched)
    assert expected["ended"].any()
    for field in expected.dtype.names:
        np.testing.assert_array_equal(found[field], expected[field], err_msg=field)
    assert rows[1]["rollout/ep_rew_mean"] == rows[0]["rollout/ep_rew_mean"]
    assert list(torched.recent_returns) == list(native.recent_returns)
    assert list(torched.recent_lengths) == list(native.recent_lengths)


DELAYED = {"target_every": 1, "noise": 0.1, "noise_correlation": 0.5}
LEARNERS = {
    "dqn": (DQN, "Counter-v0", {}),
    "dqn without options": (DQN, "Counter-v0", {"double": False, "dueling": False, "max_grad_norm": 0.5}),
    "dqn by value": (DQN, "Counter-v0", {"max_grad_value": 0.01, "optimiser": "adam"}),
    "sac": (SAC, "IdentityContinuous-v0", {}),
    "sac with a temperature": (SAC, "IdentityContinuous-v0", {"temperature": 0.2, "optimiser": "adam"}),
    "td3": (TD3, "IdentityContinuous-v0", DELAYED),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNERS)
def test_updates_are_those_of_the_native_learner(name):
    """Gradients, frozen networks, optimisers and temperature, over twelve updates from the same seed."""
    kind, environment, changes = LEARNERS[name]
    native, torched = (
        prepared(environment, kind, steps=12, **{**ALONE, **changes, **one}) for one in ({"network": None}, TORCH)
    )
    before = native.parameters.copy()
    np.testing.assert_array_equal(torched.parameters, before)
    rows = native.iterate(), torched.iterate()
    assert np.abs(native.parameters - before).max() > 1e-4
    np.testing.assert_allclose(torched.parameters, native.parameters, atol=1e-5)
    expected, found = native.arrays(), torched.arrays()
    assert set(found) - set(expected) == {"learner.draws"}
    assert set(expected) <= set(found)
    for key, array in expected.items():
        if array.dtype.kind == "f" and array.size:
            np.testing.assert_allclose(found[key], array, atol=1e-5, err_msg=key)
    assert found["learner.steps"] == 12
    for metric, value in rows[0].items():
        if metric.startswith("train/"):
            assert rows[1][metric] == pytest.approx(value, rel=1e-3, abs=1e-5), metric


def outputs_by_autograd(network, parameters, inputs):
    """What a chain of dense layers with relu gives, in terms of one vector."""
    shapes, start, values = [weights.shape for weights, _ in network.layers(np.zeros(len(parameters)))], 0, inputs
    for place, (width, outputs) in enumerate(shapes):
        matrix = parameters[start : start + width * outputs].view(width, outputs)
        start += width * outputs
        values = values @ matrix + parameters[start : start + outputs]
        start += outputs
        values = torch.relu(values) if place < len(shapes) - 1 else values
    return values


@pytest.mark.parametrize("changes", [{}, {"n_step": 3, "priority": "proportional"}], ids=["plain", "by priority"])
def test_the_gradient_of_a_batch_is_that_of_autograd(changes):
    agent = prepared("CartPole-v1", dueling=False, huber=0.0, **TORCH, **changes)
    agent.iterate()
    machine, ring = agent.machine, agent.machine.ring
    machine.learner.find_gradient()
    drawn = {name: tensor.clone() for name, tensor in ring.tensors.items()}
    parameters = torch.from_numpy(agent._machine.learner.network.to_host()).requires_grad_()
    frozen = torch.from_numpy(machine.learner.frozen.state())
    assert not torch.equal(parameters, frozen)
    places = drawn["places"].numpy()
    np.testing.assert_array_equal(drawn["inputs"].numpy(), ring.rows["observation"][places])
    after = ring.rows["next_observation"][drawn["lasts"].numpy()]
    np.testing.assert_array_equal(drawn["following"].numpy(), after)
    best = outputs_by_autograd(agent.network, parameters, drawn["following"]).argmax(1)
    following = outputs_by_autograd(agent.network, frozen, drawn["following"])[torch.arange(len(places)), best]
    goal = drawn["rewards"] + drawn["discounts"] * following
    values = outputs_by_autograd(agent.network, parameters, drawn["inputs"])
    chosen = values[torch.arange(len(places)), torch.from_numpy(ring.rows["action"][places, 0]).long()]
    weights = torch.ones(len(places))
    if changes:
        leaves = ring.tree.view(-1)[drawn["places"]]
        beta = 0.4 + 0.6 * agent.steps / 10**6
        weights = (leaves.min() / leaves) ** beta
        assert weights.min() < 0.99
    loss = 0.5 * (weights * (chosen - goal.detach()) ** 2).mean()
    loss.backward()
    np.testing.assert_allclose(machine.learner.network.gradient, parameters.grad, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("length", [10, 30], ids=["terminated", "truncated"])
def test_several_steps_end_with_an_episode_and_at_the_newest_group(length):
    """Step k of an episode pays k and leads to k + 1, so that what is drawn follows from where it begins."""
    agent = prepared(n_step=3, params={"length": length}, steps=1000, **TORCH)
    agent.iterate()
    machine = agent.machine
    rows, end = machine.ring.rows, min(length, 20)
    seen = set()
    for _ in range(50):
        machine.ring.draw()
        drawn = {name: tensor.numpy().copy() for name, tensor in machine.ring.tensors.items()}
        first, after = drawn["inputs"][:, 0], drawn["following"][:, 0]
        steps = after - first
        newest = rows["observation"].reshape(-1, 4)[(int(machine.ring.counts[0]) // 4 - 1) % 100].reshape(-1)
        copies = drawn["places"] % 4
        whole = (steps == 3) | (after == end) | (after == newest[copies] + 1)
        assert whole.all()
        assert (steps >= 1).all()
        rewards = sum(np.where(k < steps, 0.9**k * (first + k), 0.0) for k in range(3))
        np.testing.assert_allclose(drawn["rewards"], rewards, rtol=1e-5)
        over = (after == end) & (length == 10)
        np.testing.assert_allclose(drawn["discounts"], np.where(over, 0.0, 0.9**steps), rtol=1e-5)
        assert (rows["ended"][drawn["lasts"]][over] == TERMINATED).all()
        seen |= set(steps.astype(int))
    assert seen == {1, 2, 3}


def test_the_oldest_make_room():
    agent = prepared(steps=1000, **TORCH)
    agent.iterate()
    assert agent.machine.ring._counts.tolist() == [200, 400, 1000]
    first = rows_of(agent)["observation"][:, 0].reshape(100, 4)
    assert (first == first[:, :1]).all()  # copies count in step with each other


def test_records_are_drawn_in_proportion_to_their_priorities():
    agent = prepared(steps=1000, priority="proportional", learning_starts=2000, **TORCH)
    agent.iterate()
    machine, state = agent.machine, agent.machine.state()
    assert (state["memory.priorities"] == 1).all()  # of the first ones, which nobody has judged
    priorities = np.random.default_rng(0).uniform(0.01, 1.0, 400).astype(np.float32) ** 3
    machine.load_state({**state, "memory.priorities": priorities})
    counts, rounds = np.zeros(400), 4000
    for _ in range(rounds):
        machine.ring.draw()
        np.add.at(counts, machine.ring.tensors["places"].numpy(), 1)
    expected = priorities / priorities.sum() * rounds * 16
    assert np.abs(counts - expected).max() < 6 * np.sqrt(expected.max())
    assert np.corrcoef(counts, expected)[0, 1] > 0.995


def test_errors_become_priorities():
    """As in the native buffer, the last of several rows of one record counts."""
    agent = prepared(steps=1000, priority="proportional", learning_starts=2000, **TORCH)
    agent.iterate()
    ring = agent.machine.ring
    ring.draw()
    places = np.sort(np.array([5, 5, 9, 9, 9, *range(100, 111)]))
    errors = np.linspace(-2, 3, 16).astype(np.float32)
    ring.tensors["places"].copy_(torch.from_numpy(places))
    ring.tensors["errors"].copy_(torch.from_numpy(errors))
    ring.revise()
    native = PrioritisedReplayBuffer(400, ring.rows.dtype, 0, alpha=0.6)
    native.add(np.array(ring.rows))
    native.update(places, errors)
    np.testing.assert_allclose(ring.tree.numpy(), native.tree, rtol=1e-6)
    np.testing.assert_allclose(ring.greatest.numpy(), native.greatest, rtol=1e-6)


def test_new_records_have_the_greatest_priority():
    agent = prepared(steps=1000, priority="proportional", **TORCH)
    agent.iterate()
    ring = agent.machine.ring
    greatest = float(ring.greatest[0])
    assert greatest > 1.0
    agent.goal = Goal(1000, 4)
    agent.config = agent.config.__class__(**{**agent.config.__dict__, "learning_starts": 10**6})
    agent.iterate()
    leaves = ring.tree.view(-1)[: ring.capacity].numpy()
    np.testing.assert_array_equal(leaves[200:204], np.float32(greatest))
    assert ring.tree[-1, 0] == pytest.approx(leaves.sum(), rel=1e-6)


def test_the_frozen_network_has_memory_of_its_own_and_follows():
    agent = prepared(steps=80, target_every=10**6, tau=1.0, **TORCH)
    first = agent.parameters.copy()
    agent.iterate()
    frozen = agent.machine.learner.frozen
    np.testing.assert_array_equal(frozen.state(), first)
    assert not np.array_equal(agent.parameters, first)
    agent.machine.learner.update(actor=False, move=True)
    np.testing.assert_array_equal(frozen.state(), agent.machine.learner.network.to_host())
    frozen.network.parameters.zero_()
    assert agent.machine.learner.network.parameters.any()


def spoil(agent, copy, **params):
    """Let numbers of one copy go wrong."""
    machine = agent._machine
    for name, value in params.items():
        machine.steps.fleet.copies.params[name][copy] = value


@pytest.mark.parametrize("number", [nan, -inf])
def test_a_reward_that_is_no_number(number):
    agent = prepared(fragile, **TORCH)
    before = agent.parameters.copy()
    spoil(agent, 2, at=7, reward=number)
    with pytest.raises(NumericalError, match=r"a reward of the environment is not finite: copy 2, step 24 of the run"):
        agent.learn(40)
    np.testing.assert_array_equal(agent.parameters, before)


def test_an_observation_that_is_no_number():
    agent = prepared(fragile, **TORCH)
    spoil(agent, 1, at=3, observation=nan)
    with pytest.raises(NumericalError, match=r"an observation of the environment is not finite: copy 1, step 8 of"):
        agent.learn(40)


def test_a_gradient_that_is_no_number():
    """An infinite goal: the parameters stay as they were, and so do frozen network and optimiser."""
    agent = prepared(fragile, huber=0.0, priority="proportional", steps=40, **TORCH)
    agent.iterate()
    machine = agent.machine
    machine.ring.rows["reward"][:] = 3e38
    machine.learner.frozen.network.parameters.fill_(1e20)
    before = machine.state()
    agent.goal = Goal(40, 4)
    with pytest.raises(NumericalError, match="the gradient is not finite in the update after step 44 of the run"):
        agent.iterate()
    assert machine.clock.tensors["counts"][FAULT] == 1
    for key in ("learner.moments", "learner.frozen", "learner.steps", "memory.greatest"):
        np.testing.assert_array_equal(machine.state()[key], before[key], err_msg=key)
    assert np.isfinite(machine.learner.network.to_host()).all()
    np.testing.assert_array_equal(machine.learner.network.to_host(), agent.parameters)


def test_a_host_environment_is_remembered_as_it_is(tmp_path):
    agent = DQN("gym:CartPole-v1", **{**SMALL, **TORCH, "n_step": 2}).learn(400)
    rows = rows_of(agent).reshape(100, 4)
    goes_on = rows["ended"][:-1] == GOES_ON
    assert (~goes_on).sum() >= 4
    np.testing.assert_array_equal(rows["next_observation"][:-1][goes_on], rows["observation"][1:][goes_on])
    ends = rows["next_observation"][:-1][~goes_on]
    assert (np.abs(ends[:, 0]) > 2.4).sum() + (np.abs(ends[:, 2]) > 0.2094).sum() == len(ends)
    assert agent.metrics["train/n_updates"] == 90
    resumed = DQN.load(agent.save(tmp_path / "agent"))
    resumed.prepare()
    newest = rows_of(resumed)[-4:]
    assert (newest["ended"] != GOES_ON).all()  # new episodes have begun
    resumed.learn(100)
    assert resumed.steps == 500


def test_what_only_the_native_learner_has_is_refused():
    for changes, message in (
        ({"priority": "rank"}, 'priority="rank" needs the native network: leave network out'),
        ({"buffer_file": "ring"}, "buffer_file needs the native network"),
        ({"precision": "fp16"}, 'precision="fp16" is not for learning from a memory: give "bf16"'),
        ({"buffer_size": 2**40, "num_envs": 1}, "buffer_size must be at most 2,147,483,647, got"),
    ):
        with pytest.raises(ValueError, match=message):
            DQN("Counter-v0", **{**SMALL, **TORCH, **changes}).prepare()


def test_a_memory_that_does_not_fit_names_its_size():
    message = r"cpu has too little memory for 2,000 .* \(0.2 GiB\): reduce buffer_size"
    with pytest.raises(DeviceMemoryError, match=message), tells_of_ring("cpu", 2000, 100_000):
        np.zeros(2**62, np.uint8)
