"""Agents that learn together in one batch: what each would have learnt alone.

They do so on a GPU only; what they share works with torch on a CPU too, where it is compared.
"""

import numpy as np
import pytest
from filmed import FRAMES, filmed

from velocirl import A2C, DQN, PPO, Checkpoint
from velocirl.runs.checkpoints import Checkpoints
from velocirl.training import together
from velocirl.training.together import cannot_share, learn_together

SMALL = {"num_envs": 6, "horizon": 16, "minibatch_size": 32, "epochs": 2, "threads": 1, "activation": "tanh",
         "network": "mlp(16, 16)", "device": "cpu"}  # fmt: skip
BATCH, SEEDS = 96, (1, 2, 3)


@pytest.fixture
def on_cpu(monkeypatch, one_torch_thread):
    pytest.importorskip("torch")
    monkeypatch.setattr(together, "cannot_share", lambda agent: None)


def build(seed, **changes):
    return PPO("Counter-v0", **{**SMALL, "seed": seed, **changes})


def group(**changes):
    return [build(seed, **changes) for seed in SEEDS]


def assert_alike(found, expected):
    """All that is saved, but for rounding: products of several agents are not formed in the same order."""
    found, expected = found.state(), expected.state()
    assert found.document == expected.document
    assert found.arrays.keys() == expected.arrays.keys()
    for name, array in expected.arrays.items():
        assert found.arrays[name].dtype == array.dtype
        for field in array.dtype.names or (...,):
            np.testing.assert_allclose(found.arrays[name][field], array[field], rtol=1e-4, atol=1e-6, err_msg=name)


def test_each_learns_what_it_would_have_learnt_alone(on_cpu):
    rows = {seed: [] for seed in SEEDS}
    agents = group(normalise_rewards=True, learning_rate_schedule="linear")
    watching = [[lambda agent: rows[agent.seed].append(dict(agent.metrics))] for _ in SEEDS]
    assert learn_together(agents, 3 * BATCH, watching) == agents
    for agent in agents:
        own = []
        alone = build(agent.seed, normalise_rewards=True, learning_rate_schedule="linear")
        alone.learn(3 * BATCH, lambda agent, own=own: own.append(dict(agent.metrics)))
        assert_alike(agent, alone)
        assert list(agent.recent.returns) == list(alone.recent.returns)
        assert len(own) == len(rows[agent.seed]) == 3
        for found, expected in zip(rows[agent.seed], own, strict=True):
            timeless = {name: value for name, value in expected.items() if not name.startswith("time/")}
            assert {name: found[name] for name in timeless} == pytest.approx(timeless, rel=1e-3, abs=1e-5)
    first, second, _ = agents
    assert np.abs(first.parameters - second.parameters).max() > 1e-3


def test_each_sees_its_own_frames(on_cpu):
    """Stacks, of episodes that end in every way within a rollout."""
    agents = [PPO(filmed, **SMALL, seed=seed) for seed in SEEDS]
    assert agents[0].task().frames == FRAMES
    learn_together(agents, 3 * BATCH)
    for agent in agents:
        assert_alike(agent, PPO(filmed, **SMALL, seed=agent.seed).learn(3 * BATCH))


def test_one_of_them_goes_on_alone(on_cpu, tmp_path):
    agents = learn_together(group(), 2 * BATCH)
    again = PPO.load(agents[1].save(tmp_path / "second"))
    assert_alike(again, agents[1])
    alone = build(SEEDS[1]).learn(2 * BATCH)
    assert_alike(again.learn(BATCH), alone.learn(BATCH))


def test_one_that_is_stopped_stays_as_it_was_and_the_others_go_on(on_cpu, tmp_path):
    callbacks = [[Checkpoint(tmp_path / str(seed))] for seed in SEEDS]
    callbacks[1].append(lambda agent: agent.steps < BATCH)
    agents = learn_together(group(), 3 * BATCH, callbacks)
    assert [agent.steps for agent in agents] == [3 * BATCH, BATCH, 3 * BATCH]
    assert agents[1].stopping == "a callback stopped it"
    assert [list(Checkpoints(tmp_path / str(seed)).steps()) for seed in SEEDS] == [[3 * BATCH], [BATCH], [3 * BATCH]]


def test_they_do_not_learn_one_by_one_afterwards(on_cpu):
    agents = learn_together(group(), BATCH)
    with pytest.raises(RuntimeError, match="these agents learn together: call learn_together again, or save this one"):
        agents[0].learn(BATCH)
    with pytest.raises(ValueError, match="begin together: one of these has learnt before"):
        learn_together(agents, BATCH)


def test_an_error_of_one_is_told_to_all(on_cpu, tmp_path):
    def fail(agent):
        raise RuntimeError("out of coffee")

    with pytest.raises(RuntimeError, match="out of coffee"):
        learn_together(group(), 3 * BATCH, [[Checkpoint(tmp_path / "0")], [fail], [Checkpoint(tmp_path / "2")]])
    assert not Checkpoints(tmp_path / "0").steps()
    assert not Checkpoints(tmp_path / "2").steps()


def test_agents_that_differ_by_more_than_their_seeds_are_refused(on_cpu):
    for other, message in (
        (build(2, gamma=0.5), "have the same settings, apart from the seed"),
        (A2C("Counter-v0", num_envs=6), "have the same algorithm and environment"),
        (PPO("Bandit-v0", **SMALL), "have the same algorithm and environment"),
    ):
        with pytest.raises(ValueError, match=message):
            learn_together([build(1), other], BATCH)
    with pytest.raises(ValueError, match="give callbacks for each of 3 agents, got 1"):
        learn_together(group(), BATCH, [[]])


def test_what_cannot_be_shared():
    assert "on a GPU only" in cannot_share(build(1))
    assert "on a GPU only" in cannot_share(PPO("Counter-v0", device="python"))
    assert "that learn from rollouts" in cannot_share(DQN("Counter-v0"))
    with pytest.raises(ValueError, match="agents learn together on a GPU only"):
        learn_together(group(), BATCH)


@pytest.mark.cuda
def test_on_a_gpu():
    settings = {**SMALL, "device": "cuda", "precision": "float32", "network": None, "hidden": (16, 16)}
    agents = learn_together(group(**settings), 3 * BATCH)
    for agent in agents:
        assert_alike(agent, build(agent.seed, **settings).learn(3 * BATCH))
    for changes, reason in (
        ({"network": "gru(8)"}, "only networks of layers alone"),
        ({"normalise_observations": True}, "whose observations are normalised"),
    ):
        assert reason in cannot_share(build(1, **{**settings, **changes}))
    assert cannot_share(agents[0]) is None
