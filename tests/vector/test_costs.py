"""Costs that Gymnasium's environments tell in their infos, and the interface whose steps give them as a value."""

import copy

import gymnasium
import numpy as np
import pytest
from costly import Costly, Silent, Six
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from tank import tank
from toys.constrained import Constrained

import velocirl
from velocirl.vector.given_vector import GivenVectorEnv
from velocirl.vector.host.vector_env import HostVectorEnv
from velocirl.vector.host.workers import WorkerVectorEnv

SMALL = {"num_envs": 2, "horizon": 6, "minibatch_size": 12, "epochs": 1, "hidden": (4,), "seed": 1, "threads": 1}
STILL = np.zeros((2, 1), np.float32)


def told(envs, steps):
    envs.reset(seed=0)
    return [envs.step(STILL)[4] for _ in range(steps)]


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_infos_tell_costs_of_steps_and_of_episodes(mode):
    infos = told(HostVectorEnv(Costly, 2, autoreset_mode=mode), 5)
    between = [0.0] if mode == AutoresetMode.NEXT_STEP else []
    assert [one["cost"].tolist() for one in infos] == [[cost] * 2 for cost in [0.5, 1.0, 1.5, *between, 0.5, 1.0][:5]]
    assert infos[0]["costs"].tolist() == [[0.5], [0.5]]
    final = infos[2]["final_info"]
    assert (final["cost"].tolist(), final["_cost"].tolist()) == ([1.5, 1.5], [True, True])
    assert final["episode"]["cost"].tolist() == [3.0, 3.0]
    assert "final_info" not in infos[1]


def test_an_environment_that_tells_none_has_none():
    assert all(
        one.keys() <= {"final_obs", "_final_obs", "final_info", "_final_info"}
        for one in told(HostVectorEnv(Silent, 2), 4)
    )


def test_workers_tell_them_too():
    envs = WorkerVectorEnv(Costly, 2, workers=1)
    try:
        infos = told(envs, 3)
    finally:
        envs.close()
    assert [one["cost"].tolist() for one in infos] == [[0.5, 0.5], [1.0, 1.0], [1.5, 1.5]]
    assert infos[2]["final_info"]["episode"]["cost"].tolist() == [3.0, 3.0]


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_costs_of_a_vector_that_somebody_made(mode):
    """Gymnasium tells those of an episode's last step in final_info where the next begins with it."""
    given = SyncVectorEnv([Costly, Costly], autoreset_mode=mode)
    infos = told(GivenVectorEnv(given), 4)
    assert [one["cost"].tolist() for one in infos] == [[0.5, 0.5], [1.0, 1.0], [1.5, 1.5], [0.5, 0.5]]
    assert infos[2]["final_info"]["episode"]["cost"].tolist() == [3.0, 3.0]


@pytest.mark.parametrize("device", ["python", pytest.param("cpu", marks=pytest.mark.slow)])
def test_agents_learn_from_them_as_one_constraint(device):
    agent = Constrained(Costly, device=device, **SMALL)
    assert agent.constraints == ("cost",)
    agent.learn(12)
    assert agent.metrics["episode/cost"] == agent.metrics["episode/cost/cost"] == 3.0
    assert agent.metrics["rollout/violations"] == 12
    assert agent.metrics["train/cost"] == 1.0  # the mean of 0.5, 1 and 1.5


ROLLOUTS = {"num_envs": 2, "horizon": 6, "minibatch_size": 12, "epochs": 1}
MEMORY = {"num_envs": 2, "learning_starts": 2, "batch_size": 2, "buffer_size": 20, "train_every": 2}
CPU = pytest.param("cpu", marks=pytest.mark.slow)


def trained(kind, env, settings, device="python"):
    agent = kind(env, device=device, hidden=(4,), seed=1, threads=1, **settings)
    return agent.learn(12)


@pytest.mark.parametrize("device", ["python", CPU])
@pytest.mark.parametrize(("kind", "settings"), [(velocirl.PPO, ROLLOUTS), (velocirl.SAC, MEMORY)])
def test_algorithms_that_limit_none_tell_them_too(kind, settings, device, tmp_path):
    """In each of 12 steps something is violated, and an episode costs 0.5 + 1 + 1.5."""
    agent = trained(kind, Costly, settings, device)
    assert agent.metrics["episode/cost"] == agent.metrics["episode/cost/cost"] == 3.0
    assert agent.metrics["rollout/violations"] == 12
    loaded = kind.load(agent.save(tmp_path / "agent"), Costly)
    assert loaded.learn(12).metrics["rollout/violations"] == 24


def test_vectors_that_somebody_made_tell_them_to_any_algorithm():
    agent = trained(velocirl.PPO, SyncVectorEnv([Costly, Costly], autoreset_mode=AutoresetMode.SAME_STEP), ROLLOUTS)
    assert (agent.metrics["episode/cost"], agent.metrics["rollout/violations"]) == (3.0, 12)


@pytest.mark.parametrize(("kind", "settings"), [(velocirl.PPO, ROLLOUTS), (velocirl.SAC, MEMORY)])
def test_of_an_environment_that_tells_none_nothing_is_told(kind, settings):
    agent = trained(kind, Silent, settings)
    assert agent.metrics["rollout/ep_rew_mean"] == 3.0
    assert not [name for name in agent.metrics if "cost" in name or "violations" in name]


def test_costs_that_come_late_are_told_from_then_on():
    """The first episode of each copy tells none; the second does, in its last step alone."""

    class Late(Costly):
        episodes = 0

        def reset(self, *, seed=None, options=None):
            self.episodes += 1
            return super().reset(seed=seed, options=options)

        def step(self, action):
            *rest, info = super().step(action)
            return *rest, info if self.episodes > 1 and self.step_number == 3 else {}

    rows = []
    agent = velocirl.PPO(
        Late, device="python", hidden=(4,), seed=1, threads=1, **{**ROLLOUTS, "horizon": 3, "minibatch_size": 6}
    )
    agent.learn(12, lambda agent: rows.append(agent.metrics))
    assert "episode/cost" not in rows[0]
    assert (rows[1]["episode/cost"], rows[1]["rollout/violations"]) == (1.5, 2)


def test_an_agent_that_needs_them_says_that_there_are_none():
    with pytest.raises(ValueError, match=r"Silent gives no info\['cost'\] with its steps, which this algorithm limits"):
        Constrained(Silent, device="python", **SMALL).learn(12)


def test_the_interface_of_six_values_of_one_environment():
    env = velocirl.adapters.safety_env(velocirl.make(tank(), device="python"))
    env.reset(seed=0)
    observation, reward, cost, terminated, truncated, info = env.step(np.full(1, 1.5, np.float32))
    assert (observation.tolist(), reward, cost, terminated, truncated) == ([2.5, 1.5], -1.5, 2.0, False, False)
    assert info["costs"].tolist() == [1.0, 1.0, 0.0]
    assert env.action_space == gymnasium.spaces.Box(-4, 4, (1,))
    assert copy.copy(env).env is env.env


def test_the_interface_of_six_values_of_a_fleet():
    env = velocirl.adapters.safety_env(velocirl.make_vec(tank(), 2, seed=0, device="python"))
    env.reset()
    _, _, cost, terminated, _, info = env.step(np.array([[4.0], [0.0]], np.float32))
    assert (cost.tolist(), terminated.tolist()) == ([3.0, 0.0], [True, False])
    assert info["final_observation"][0].tolist() == [5.0, 4.0]
    assert env.num_envs == 2


def test_an_environment_without_costs_has_no_such_interface():
    env = velocirl.adapters.safety_env(velocirl.make("CartPole-v1", device="python"))
    env.reset(seed=0)
    with pytest.raises(ValueError, match="tells no cost of its steps: declare Environment"):
        env.step(0)


def test_from_six_values_to_five_and_into_an_agent():
    env = velocirl.adapters.from_safety_env(Six())
    env.reset(seed=0)
    for number in (1, 2, 3):
        *_, terminated, truncated, info = env.step(np.ones(1, np.float32))
        assert info == {"where": "here", "cost": 0.5 * number}
    assert (terminated, truncated) == (True, False)
    agent = Constrained(lambda: velocirl.adapters.from_safety_env(Six()), device="python", **SMALL).learn(12)
    assert agent.metrics["episode/cost"] == 3.0


def test_there_and_back_is_the_same():
    env = velocirl.adapters.from_safety_env(velocirl.adapters.safety_env(Costly()))
    plain = Costly()
    env.reset(), plain.reset()
    for _ in range(3):
        assert str(env.step(STILL[0])) == str(plain.step(STILL[0]))


def test_an_environment_of_five_values_is_refused_there():
    env = velocirl.adapters.from_safety_env(Costly())
    env.reset()
    with pytest.raises(ValueError, match="gives 5 values with a step; from_safety_env takes"):
        env.step(STILL[0])
