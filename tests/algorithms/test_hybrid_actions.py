"""PPO where an action is a choice and its numbers: it learns, acts, and goes on from a file."""

import dataclasses

import gymnasium
import numpy as np
import pytest
from hybrid import PARTS, STEPS, Aiming, aiming, forbidding, noting

import velocirl
from velocirl import A2C, DQN, PPO, QRDQN, SAC, TD3, DiscreteSAC, QLearning
from velocirl.program.saved import training_specs
from velocirl.training.agent import Agent

SMALL = {"num_envs": 4, "horizon": 8, "minibatch_size": 16, "epochs": 2, "hidden": (8,), "threads": 1, "seed": 4}
LEARNING = {
    "num_envs": 32, "horizon": 16, "minibatch_size": 128, "learning_rate": 1e-2, "gamma": 0.0, "hidden": (32,),
    "learning_rate_schedule": "linear", "entropy_coefficient": 0.0, "log_deviation": -1.0, "seed": 0, "threads": 1,
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _register():
    gymnasium.register("Aiming-v7", Aiming)
    yield
    gymnasium.registry.pop("Aiming-v7")


def earned(agent):
    return velocirl.evaluate(agent, episodes=64, seed=1).mean_return / STEPS


def test_it_learns_a_choice_and_its_number():
    """Perfect 1, the right choice alone 0.5, random 0.17; 60,000 steps."""
    agent = PPO(aiming, **LEARNING)
    assert earned(agent) < 0.4
    assert earned(agent.learn(60_000)) >= 0.98
    observation = np.array([0, 1, 0, 0.5], np.float32)
    (kind, number), _ = agent.predict(observation, deterministic=True)
    kinds, numbers = agent.predict(observation[None].repeat(1000, 0))[0]
    assert kind == np.bincount(kinds).argmax() == 1
    assert number[0] == pytest.approx(np.median(numbers), abs=0.05)
    assert numbers.std() > 0.01  # the others are drawn


@pytest.mark.slow
def test_it_learns_them_in_gymnasiums_environments():
    """Perfect 1, the right choice alone 0.5, random 0.17; 15,000 steps."""
    assert earned(PPO("gym:Aiming-v7", **{**LEARNING, "num_envs": 8, "horizon": 64}).learn(15_000)) >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize("kind", [PPO, A2C])
@pytest.mark.parametrize("environment", [aiming, "gym:Aiming-v7"], ids=str)
@pytest.mark.parametrize("network", [{}, {"network": "mlp(32)"}], ids=["native", "torch"])
def test_it_learns_by_any_network(kind, environment, network):
    """Perfect 1, the right choice alone 0.5, random 0.17; 40,000 steps, of A2C more."""
    config = LEARNING if kind is PPO else {**LEARNING, "horizon": 8, "learning_rate": 3e-3, "minibatch_size": 10**6}
    agent = kind(environment, **{**config, **network}).learn(40_000 if kind is PPO else 150_000)
    assert earned(agent) >= 0.9


@pytest.mark.parametrize("network", [{}, {"network": "mlp(8)"}], ids=["native", "torch"])
def test_predict_gives_what_the_space_says(network):
    agent = PPO(noting, **{**SMALL, **network, "log_deviation": 2.0})  # so that numbers are clipped at their bounds
    several = gymnasium.vector.utils.batch_space(noting.action, 50)
    for deterministic in (False, True):
        actions, _ = agent.predict(np.zeros((50, 10), np.float32), deterministic=deterministic)
        assert several.contains(actions)
        action, _ = agent.predict(np.zeros(10, np.float32), deterministic=deterministic)
        assert action.keys() == PARTS.keys()
        assert noting.action.contains(
            {name: np.asarray(one) if name == "gain" else one for name, one in action.items()}
        )
    assert isinstance(PPO(aiming, **SMALL).predict(np.zeros(4, np.float32))[0], tuple)


def test_forbidden_choices_are_never_taken():
    agent = PPO(forbidding, **SMALL)
    mask = np.ones((500, 13), np.int8)
    mask[:, [1, 4, 5]] = 0
    actions, _ = agent.predict(np.zeros((500, 10), np.float32), action_masks=mask)
    assert (actions["flags"][:, 0] == 0).all()
    assert (actions["kind"] == 2).all()
    assert len(np.unique(actions["flags"][:, 1])) == 2
    assert np.isfinite(velocirl.evaluate(agent, episodes=4, seed=0).mean_return)


@pytest.mark.parametrize(
    "changes",
    [{}, pytest.param({"network": "mlp(8)"}, marks=pytest.mark.slow), {"device": "python"}],
    ids=["native", "torch", "python"],
)
def test_going_on_from_a_file_is_going_on_bit_for_bit(changes, tmp_path):
    whole = PPO(aiming, **{**SMALL, **changes}).learn(64).learn(64)
    first = PPO(aiming, **{**SMALL, **changes}).learn(64)
    again = Agent.load(first.save(tmp_path / "agent")).learn(64)
    found, expected = again.arrays(), whole.arrays()
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        for field in array.dtype.names or (...,):
            assert found[name][field].tobytes() == array[field].tobytes(), name
    observations = np.zeros((3, 4), np.float32)
    for one, other in zip(again.predict(observations)[0], whole.predict(observations)[0], strict=True):
        np.testing.assert_array_equal(one, other)


def test_choices_of_a_saved_rollout_become_indices_and_have_bounds():
    specs = training_specs(PPO(aiming, **SMALL).task(), {})
    action = specs["waiting.records"].fields["action"]
    assert action.minimum.tolist() == [0, -np.inf]
    assert action.maximum.tolist() == [2, np.inf]
    assert action.finite


def test_a_file_for_other_parts_is_refused(tmp_path):
    path = PPO(aiming, **SMALL).save(tmp_path / "agent")
    other = dataclasses.replace(aiming, id="OtherParts-v0", action=velocirl.Tuple((velocirl.Discrete(3),) * 2))
    with pytest.raises(ValueError, match="action_space"):
        Agent.load(path, env=other)


@pytest.mark.parametrize("kind", [DQN, QRDQN, SAC, DiscreteSAC, TD3, QLearning], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("environment", [aiming, "gym:Aiming-v7"], ids=str)
def test_others_say_that_ppo_can(kind, environment):
    with pytest.raises(ValueError, match=r"takes actions of one part, and those of .* are Tuple\(.*: use PPO$"):
        kind(environment)
