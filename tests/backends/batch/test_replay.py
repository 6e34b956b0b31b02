"""Learning from a memory in whole batches, in Python and with torch: against CPU threads, autograd, and counting."""

from math import inf, nan

import numpy as np
import pytest
import torch
from choosing import slow_but
from fragile import fragile, spoil

from velocirl import DQN, SAC, TD3, NumericalError
from velocirl.backends.batch.ring import tells_of_ring
from velocirl.buffers.prioritised import PrioritisedReplayBuffer
from velocirl.buffers.records import GOES_ON, TERMINATED
from velocirl.program.clock import FAULT
from velocirl.program.faults import DeviceMemoryError
from velocirl.training.persistence import Goal

SMALL = {
    "num_envs": 4, "buffer_size": 400, "learning_starts": 40, "batch_size": 16, "train_every": 4, "gradient_steps": 1,
    "target_every": 5, "seed": 3, "threads": 1, "device": "cpu", "gamma": 0.9, "hidden": (16, 16),
    "learning_rate": 3e-3, "learning_rate_schedule": "constant", "n_step": 1,
}  # fmt: skip
NATIVE, PYTHON, TORCH = {}, {"device": "python"}, {"network": "mlp(16, 16)"}
# One record at a time, so that every batch is the newest step many times over, whoever draws it.
ALONE = {
    **SMALL, "num_envs": 1, "buffer_size": 1, "learning_starts": 0, "train_every": 1, "optimiser": "sgd",
    "learning_rate": 0.02, "target_every": 2, "max_grad_norm": 0.0, "tau": 0.3,
}  # fmt: skip

pytestmark = pytest.mark.usefixtures("one_torch_thread")
both = pytest.mark.parametrize("device", [PYTHON, TORCH], ids=["python", "torch"])


def prepared(environment="Counter-v0", kind=DQN, steps=10**6, **config):
    agent = kind(environment, **{**SMALL, **config})
    agent.goal = Goal(0, steps)
    agent.prepare()
    return agent


def remembering(steps, environment="Counter-v0", **config):
    """An agent that has taken so many steps of many."""
    agent = prepared(environment, **config)
    while agent.steps < steps:
        agent.iterate()
    return agent


def finished(*given, **config):
    """An agent that has taken all its steps, and the metrics of the last of them."""
    agent = prepared(*given, **config)
    row = None
    while not agent.finished:
        row = agent.iterate()
    return agent, row


def rows_of(agent):
    return agent.learner.ring.rows


@both
@pytest.mark.parametrize("name", slow_but({"Counter-v0"}, ["Counter-v0", "TicTacToe-v1"]))
def test_what_is_remembered_is_what_the_native_learner_remembers(name, device):
    """While actions are random: both draw the same random numbers for the same copies."""
    (native, expected), (batched, found) = (
        finished(name, steps=400, learning_starts=400, **one) for one in (NATIVE, device)
    )
    assert found["rollout/ep_rew_mean"] == expected["rollout/ep_rew_mean"]
    expected, found = native.learner.ring.rows, rows_of(batched)
    assert expected["ended"].any()
    for field in expected.dtype.names:
        np.testing.assert_array_equal(found[field], expected[field], err_msg=field)
    assert list(batched.recent.returns) == list(native.recent.returns)
    assert list(batched.recent.lengths) == list(native.recent.lengths)


DELAYED = {"target_every": 1, "noise": 0.1, "noise_correlation": 0.5}
LEARNERS = {
    "dqn": (DQN, "Counter-v0", {}),
    "dqn without options": (DQN, "Counter-v0", {"double": False, "dueling": False, "max_grad_norm": 0.5}),
    "dqn by value": (DQN, "Counter-v0", {"max_grad_value": 0.01, "optimiser": "adam"}),
    "sac": (SAC, "IdentityContinuous-v0", {}),
    "sac with a temperature": (SAC, "IdentityContinuous-v0", {"temperature": 0.2, "optimiser": "adam"}),
    "td3": (TD3, "IdentityContinuous-v0", DELAYED),
}


@pytest.mark.parametrize("oracle", [PYTHON, pytest.param(NATIVE, marks=pytest.mark.slow)], ids=["python", "native"])
@pytest.mark.parametrize("name", slow_but({"dqn", "dqn by value"}, LEARNERS))
def test_updates_of_torch_are_those_of_the_other_learners(name, oracle):
    """Gradients, target networks, optimisers and temperature, over twelve updates from the same seed."""
    kind, environment, changes = LEARNERS[name]
    settings = {**ALONE, **changes}
    before = kind(environment, **settings).parameters.copy()
    (native, expected_row), (torched, row) = (
        finished(environment, kind, steps=12, **{**settings, **one}) for one in (oracle, TORCH)
    )
    assert np.abs(native.parameters - before).max() > 1e-4
    np.testing.assert_allclose(torched.parameters, native.parameters, atol=1e-5)
    expected, found = native.arrays(), torched.arrays()
    assert set(found) - set(expected) == {"learner.draws"}
    assert set(expected) <= set(found)
    for key, array in expected.items():
        if array.dtype.kind == "f" and array.size:
            np.testing.assert_allclose(found[key], array, atol=1e-5, err_msg=key)
    assert found["learner.updates"] == 12
    for metric, value in expected_row.items():
        if metric.startswith("train/"):
            assert row[metric] == pytest.approx(value, rel=1e-3, abs=1e-5), metric


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


@both
@pytest.mark.parametrize("changes", [{}, {"n_step": 3, "priority": "proportional"}], ids=["plain", "by priority"])
def test_the_gradient_of_a_batch_is_that_of_autograd(changes, device):
    agent = remembering(1000, "CartPole-v1", dueling=False, huber=0.0, **device, **changes)
    learner, ring, networks = agent.learner, agent.learner.ring, agent.learner.networks
    ring.draw()
    learner.updates.program.run(stepping=False)
    drawn = {name: ring.device.fetch(one) for name, one in ring.drawn._asdict().items()}
    observed = {
        "inputs": ring.rows["observation"][drawn["places"]],
        "following": ring.rows["next_observation"][drawn["lasts"]],
    }
    observed = {name: torch.from_numpy(one.copy()) for name, one in observed.items()}
    parameters = torch.tensor(networks.to_host("values"), requires_grad=True)
    frozen = torch.tensor(networks.to_host("target_values"))
    assert not torch.equal(parameters, frozen)
    every = torch.arange(16)
    best = outputs_by_autograd(agent.network, parameters, observed["following"]).argmax(1)
    following = outputs_by_autograd(agent.network, frozen, observed["following"])[every, best]
    rewards, discounts = (torch.from_numpy(drawn["rows"][name].copy()) for name in ("reward", "discount"))
    goal = rewards + discounts * following
    values = outputs_by_autograd(agent.network, parameters, observed["inputs"])
    chosen = values[every, torch.from_numpy(ring.rows["action"][drawn["places"], 0]).long()]
    weights = torch.ones(16)
    if changes:
        leaves = ring.device.fetch(ring.tree).reshape(-1)[drawn["places"]]
        beta = 0.4 + 0.6 * agent.steps / 10**6
        weights = torch.from_numpy((leaves.min() / leaves) ** beta)
        assert weights.min() < 0.99
    loss = 0.5 * (weights * (chosen - goal.detach()) ** 2).mean()
    loss.backward()
    found = ring.device.fetch(networks.networks["values"].gradient)
    np.testing.assert_allclose(found, parameters.grad, rtol=1e-3, atol=1e-5)


@both
@pytest.mark.parametrize("length", [10, 30], ids=["terminated", "truncated"])
def test_several_steps_end_with_an_episode_and_at_the_newest_group(length, device):
    """Step k of an episode pays k and leads to k + 1, so that what is drawn follows from where it begins."""
    agent, _ = finished(n_step=3, params={"length": length}, steps=1000, learning_starts=2000, **device)
    ring = agent.learner.ring
    rows, end = ring.rows, min(length, 20)
    newest = rows["observation"].reshape(-1, 4)[(int(ring.counts[0]) // 4 - 1) % 100].reshape(-1)
    seen = set()
    for _ in range(50):
        ring.draw()
        places, lasts, drawn = map(ring.device.fetch, (ring.drawn.places, ring.drawn.lasts, ring.drawn.rows))
        first, after = rows["observation"][places, 0], rows["next_observation"][lasts, 0]
        steps = after - first
        whole = (steps == 3) | (after == end) | (after == newest[places % 4] + 1)
        assert whole.all()
        assert (steps >= 1).all()
        rewards = sum(np.where(k < steps, 0.9**k * (first + k), 0.0) for k in range(3))
        np.testing.assert_allclose(drawn["reward"], rewards, rtol=1e-5)
        over = (after == end) & (length == 10)
        np.testing.assert_allclose(drawn["discount"], np.where(over, 0.0, 0.9**steps), rtol=1e-5)
        assert (rows["ended"][lasts][over] == TERMINATED).all()
        seen |= set(steps.astype(int))
    assert seen == {1, 2, 3}


@both
def test_the_oldest_make_room(device):
    agent, _ = finished(steps=1000, learning_starts=2000, **device)
    assert agent.learner.ring.counts.tolist() == [200, 400, 1000]
    first = rows_of(agent)["observation"][:, 0].reshape(100, 4)
    assert (first == first[:, :1]).all()  # copies count in step with each other


@both
def test_records_are_drawn_in_proportion_to_their_priorities(device):
    agent, _ = finished(steps=1000, priority="proportional", learning_starts=2000, **device)
    learner, state = agent.learner, agent.learner.state()
    assert (state["memory.priorities"] == 1).all()  # of the first ones, which nobody has judged
    priorities = np.random.default_rng(0).uniform(0.01, 1.0, 400).astype(np.float32) ** 3
    learner.load_state({**state, "memory.priorities": priorities})
    counts, rounds = np.zeros(400), 4000 if device is TORCH else 1000
    for _ in range(rounds):
        learner.ring.draw()
        np.add.at(counts, learner.device.fetch(learner.ring.drawn.places), 1)
    expected = priorities / priorities.sum() * rounds * 16
    assert np.abs(counts - expected).max() < 6 * np.sqrt(expected.max())
    assert np.corrcoef(counts, expected)[0, 1] > 1 - 20 / rounds


@both
def test_errors_become_priorities(device):
    """As in the native buffer, the last of several rows of one record counts."""
    agent, _ = finished(steps=1000, priority="proportional", learning_starts=2000, **device)
    ring = agent.learner.ring
    ring.draw()
    places = np.sort(np.array([5, 5, 9, 9, 9, *range(100, 111)]))
    errors = np.linspace(-2, 3, 16).astype(np.float32)
    ring.device.store(ring.drawn.places, places)
    ring.drawn.rows["error"] = errors
    ring.revise()
    native = PrioritisedReplayBuffer(400, ring.rows.dtype, 0, alpha=0.6)
    native.add(np.array(ring.rows))
    native.update(places, errors)
    np.testing.assert_allclose(ring.device.fetch(ring.tree), native.tree, rtol=1e-6)
    np.testing.assert_allclose(ring.device.fetch(ring.greatest), native.greatest, rtol=1e-6)


@both
def test_new_records_have_the_greatest_priority(device):
    agent, _ = finished(steps=1000, priority="proportional", **device)
    ring = agent.learner.ring
    greatest = float(ring.greatest[0])
    assert greatest > 1.0
    agent.goal = Goal(1000, 4)
    agent.config = agent.config.__class__(**{**agent.config.__dict__, "learning_starts": 10**6})
    agent.iterate()
    leaves = ring.device.fetch(ring.tree).reshape(-1)[: ring.capacity]
    np.testing.assert_array_equal(leaves[200:204], np.float32(greatest))
    assert float(ring.tree[-1, 0]) == pytest.approx(leaves.sum(), rel=1e-6)


@both
def test_the_target_network_has_memory_of_its_own_and_follows(device):
    agent = prepared(steps=80, target_every=10**6, tau=1.0, **device)
    first = agent.parameters.copy()
    while not agent.finished:
        agent.iterate()
    networks = agent.learner.networks
    np.testing.assert_array_equal(networks.to_host("target_values"), first)
    assert not np.array_equal(agent.parameters, first)
    agent.learner.updates.update(frozenset({"target_every"}))
    np.testing.assert_array_equal(networks.to_host("target_values"), networks.to_host("values"))
    networks.networks["target_values"].parameters[:] = 0.0
    assert networks.to_host("values").any()


@both
@pytest.mark.parametrize("number", [nan, -inf])
def test_a_reward_that_is_no_number(number, device):
    agent = prepared(fragile, **device)
    before = agent.parameters.copy()
    spoil(agent, 2, at=7, reward=number)
    with pytest.raises(NumericalError, match=r"a reward of the environment is not finite: copy 2, step 24 of the run"):
        agent.learn(40)
    np.testing.assert_array_equal(agent.parameters, before)


@both
def test_an_observation_that_is_no_number(device):
    agent = prepared(fragile, **device)
    spoil(agent, 1, at=3, observation=nan)
    with pytest.raises(NumericalError, match=r"an observation of the environment is not finite: copy 1, step 8 of"):
        agent.learn(40)


@both
def test_a_gradient_that_is_no_number(device):
    """An infinite goal: the parameters stay as they were, and so do target network and optimiser."""
    agent, _ = finished(fragile, huber=0.0, priority="proportional", steps=40, **device)
    learner = agent.learner
    rows_of(agent)["reward"][:] = 3e38
    learner.networks.networks["target_values"].parameters[:] = 1e20
    before = learner.state()
    agent.goal = Goal(40, 4)
    with pytest.raises(NumericalError, match="the gradient is not finite in the update after step 44 of the run"):
        agent.iterate()
    assert learner.clock.counts[0, FAULT] == 1
    for key in ("values.moments", "target_values.parameters", "values.steps", "memory.greatest"):
        np.testing.assert_array_equal(learner.state()[key], before[key], err_msg=key)
    values = learner.networks.to_host("values")
    assert np.isfinite(values).all()
    np.testing.assert_array_equal(values, agent.parameters)


@both
def test_a_host_environment_is_remembered_as_it_is(device, tmp_path):
    agent = DQN("gym:CartPole-v1", **{**SMALL, **device, "n_step": 2}).learn(400)
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


@both
def test_what_only_the_native_learner_has_is_refused(device):
    for changes, message in (
        ({"priority": "rank"}, 'priority="rank" needs the native network: leave network out'),
        ({"buffer_file": "ring"}, "buffer_file needs the native network"),
        ({"buffer_size": 2**40, "num_envs": 1}, "buffer_size must be at most 2,147,483,647, got"),
    ):
        with pytest.raises(ValueError, match=message):
            DQN("Counter-v0", **{**SMALL, **device, **changes}).prepare()


@pytest.mark.parametrize(("kind", "environment"), [(DQN, "CartPole-v1"), (SAC, "Pendulum-v1")])
def test_half_precision_learns_as_single_precision_does(kind, environment, tmp_path):
    settings = {
        "num_envs": 4, "learning_starts": 32, "train_every": 4, "batch_size": 32, "learning_rate": 0.01, "seed": 0,
        "optimiser": "sgd",  # to which a scale that is not taken back would matter, as it would not to Adam
    }  # fmt: skip
    agents = {}
    for precision in ("float32", "fp16"):
        agents[precision] = kind(environment, **settings, **TORCH, precision=precision)
        agents[precision].goal = Goal(0, 10**6)
        agents[precision].learn(160)
    single, half = agents["float32"].arrays(), agents["fp16"].arrays()
    moved = np.abs(single["network.parameters"] - kind(environment, **settings, **TORCH).parameters)
    apart = np.abs(half["network.parameters"] - single["network.parameters"])
    assert 0 < apart.mean() < 0.25 * moved.mean()  # some steps are left out while the scale is found
    assert half["learner.loss_scale"] >= 2**10  # gradients are scaled up, less after each overflow
    again = kind.load(agents["fp16"].save(tmp_path / "half"))
    for agent in (agents["fp16"], again):
        agent.learn(64)
    for name, array in agents["fp16"].arrays().items():
        np.testing.assert_array_equal(again.arrays()[name], array, err_msg=name)


def test_a_memory_that_does_not_fit_names_its_size():
    message = r"cpu has too little memory for 2,000 .* \(0.2 GiB\): reduce buffer_size"
    with pytest.raises(DeviceMemoryError, match=message), tells_of_ring("cpu", 2000, 100_000):
        np.zeros(2**62, np.uint8)


def test_observations_in_physical_units_are_remembered_by_their_bounds():
    """The same plants with the same random actions, remembered in kelvin and pascal, and from -1 to 1."""
    settings = {**SMALL, "num_envs": 2, "learning_starts": 40, **PYTHON}
    plain, scaled = (SAC("ChemicalReactor-v0", scale_observations=how, **settings).learn(12) for how in (False, True))
    low, high = plain.source.observation_space.low, plain.source.observation_space.high
    for name in ("observation", "next_observation"):
        seen, read = rows_of(plain)[name][:6], rows_of(scaled)[name][:6]
        assert np.ptp(seen[..., 0]) > 0.0
        np.testing.assert_allclose(read, 2.0 * (seen - low) / (high - low) - 1.0, atol=1e-5)
