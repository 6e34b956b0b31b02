"""Saved agents in another environment with the same shapes: Gymnasium's in the place of a native one, and back."""

import gymnasium
import numpy as np
import pytest

from velocirl import DQN, PPO, SAC, QLearning, evaluate
from velocirl.cli.main import main

SMALL = {"num_envs": 2, "hidden": (4,), "threads": 1, "seed": 1, "device": "python"}
ROLLOUTS = {"horizon": 8, "minibatch_size": 16, "epochs": 1}
MEMORY = {"learning_starts": 8, "batch_size": 4}


def cart():
    return gymnasium.make("CartPole-v1")


@pytest.mark.parametrize(
    ("kind", "settings", "before", "after"),
    [
        (PPO, ROLLOUTS, "CartPole-v1", cart),
        (PPO, ROLLOUTS, "gym:CartPole-v1", lambda: "CartPole-v1"),
        (PPO, ROLLOUTS, "CartPole-v1", lambda: [cart(), cart(), cart()]),
        (DQN, MEMORY, "CartPole-v1", lambda: "gym:CartPole-v1"),
        (SAC, MEMORY, "Pendulum-v1", lambda: gymnasium.make("Pendulum-v1")),
        (SAC, MEMORY, "gym:Pendulum-v1", lambda: "Pendulum-v1"),
    ],
)
def test_what_was_learned_goes_on_there(kind, settings, before, after, tmp_path):
    """Networks, targets and optimizers are the same; episodes and the memory begin anew."""
    agent = kind(before, **SMALL, **settings).learn(48)
    path, env = agent.save(tmp_path / "agent"), after()
    other = kind.load(path, env=env)
    assert other.steps == 48
    assert other.parameters.tobytes() == agent.parameters.tobytes()
    assert len(evaluate(other, episodes=2, seed=3).returns) == 2
    assert evaluate(other, episodes=2, seed=3).returns.tolist() == evaluate(agent, env, 2, 3).returns.tolist()
    with pytest.warns(UserWarning, match=f"{agent.label} goes on in .*, where its episodes begin anew"):
        arrays = other.arrays()
    learned = {name: one for name, one in agent.arrays().items() if name.endswith(("parameters", "moments", "steps"))}
    assert len(learned) > 3
    for name, array in learned.items():
        np.testing.assert_array_equal(arrays[name], array, err_msg=name)
    assert other.config.num_envs == (3 if isinstance(env, list) else 2)
    other.learn(48)
    assert other.steps == 96
    assert (other.parameters != agent.parameters).any()
    if kind is not PPO:
        assert other.metrics["buffer/fill_share"] == pytest.approx(48 / other.config.buffer_size, abs=1e-4)
    again = kind.load(other.save(tmp_path / "again"), env=env)  # from where it is now, without a warning
    assert again.parameters.tobytes() == other.parameters.tobytes()


def test_tables_go_on_there(tmp_path):
    agent = QLearning("FrozenLake-v1", seed=1).learn(20_000)
    path = agent.save(tmp_path / "agent")
    other = QLearning.load(path, env=gymnasium.make("FrozenLake-v1"))
    np.testing.assert_array_equal(other.parameters, agent.parameters)
    assert other.learn(500).steps > agent.steps


def test_parameters_of_the_one_are_not_those_of_the_other(tmp_path):
    agent = PPO("CartPole-v1", params={"gravity": 5.0}, **SMALL, **ROLLOUTS).learn(16)
    assert PPO.load(agent.save(tmp_path / "agent"), env=cart()).config.params is None


def test_other_shapes_are_refused(tmp_path):
    path = PPO("CartPole-v1", **SMALL, **ROLLOUTS).save(tmp_path / "agent")
    for env in ("Pendulum-v1", "gym:MountainCar-v0", "gym:Acrobot-v1"):
        with pytest.raises(ValueError, match=f"was trained with .*; {env} has"):
            PPO.load(path, env=env)


class Wider(gymnasium.ObservationWrapper):
    """The same numbers, with wider bounds."""

    def __init__(self, env):
        super().__init__(env)
        self.observation_space = gymnasium.spaces.Box(-100, 100, env.observation_space.shape)

    def observation(self, observation):
        return observation


def test_bounds_count_where_observations_are_scaled_by_them(tmp_path):
    for scaled in (True, False):
        agent = SAC("Pendulum-v1", scale_observations=scaled, **SMALL, **MEMORY)
        path = agent.save(tmp_path / "agent")
        if scaled:
            with pytest.raises(ValueError, match=r"\(scale_observations=True scales by bounds\)"):
                SAC.load(path, env=Wider(gymnasium.make("Pendulum-v1")))
        else:
            SAC.load(path, env=Wider(gymnasium.make("Pendulum-v1")))


def test_a_run_is_evaluated_there(tmp_path, capsys):
    PPO("CartPole-v1", **SMALL, **ROLLOUTS).learn(48, run_dir=tmp_path / "run")
    main(["evaluate", str(tmp_path / "run"), "--env", "gym:CartPole-v1", "--episodes", "2", "--json"])
    assert '"environment": "gym:CartPole-v1"' in capsys.readouterr().out
