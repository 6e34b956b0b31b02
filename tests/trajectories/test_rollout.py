"""Rollouts against what evaluations and environments say themselves."""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import velocirl
from velocirl import uniform


def push(observation):
    return np.array([2.0 * observation[1]], np.float32)


def left(_):
    return 0


def counting(define, **given):
    """Counts the actions 1; ends at the third."""

    def step(state, params, action, rng):
        state.value += action
        return state.value, state.value >= 3.0

    def reset(state, params, rng):
        state.value = 0.0

    return define(step=step, reset=reset, **given)


def in_python(environment, copies=1, **options):
    return velocirl.make_vec(environment, copies, device="python", **options)


def test_rows_are_the_beginning_and_what_each_step_led_to(define):
    actions = iter([1, 0, 1, 1])
    found = velocirl.rollout(lambda _: next(actions), in_python(counting(define)))
    assert found.signals["observation[0]"].values.tolist() == [0, 1, 1, 2, 3]  # the last one is not the next episode's
    assert np.isnan(found.actuators["action"].values[0])
    assert found.actuators["action"].values[1:].tolist() == [1, 0, 1, 1]
    assert found.reward.tolist() == [0, 1, 1, 2, 3]
    assert found.terminated.tolist() == [False] * 4 + [True]
    assert not found.truncated.any()
    assert found.time.tolist() == [0, 1, 2, 3, 4]
    assert (found.time_unit, found.episodes, found.returns.tolist(), found.lengths.tolist()) == ("steps", 1, [7], [4])


def test_episodes_are_apart_whatever_the_number_of_copies(define):
    found = velocirl.rollout(lambda _: 1, in_python(counting(define), 2), episodes=3)
    assert found.episode.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert found.time.tolist() == [0, 1, 2, 3] * 3
    assert found.signals["observation[0]"].values.tolist() == [0, 1, 2, 3] * 3
    assert [one.returns.tolist() for one in found.each()] == [[6.0]] * 3
    assert found.one(2).episode.tolist() == [2] * 4


def test_returns_are_those_of_an_evaluation_with_the_same_seed():
    for policy, env in ((push, "Pendulum-v1"), (left, "gym:CartPole-v1")):
        found, expected = velocirl.rollout(policy, env, 7, 5), velocirl.evaluate(policy, env, 7, 5)
        assert sorted(found.returns) == sorted(expected.returns)
        assert sorted(found.lengths) == sorted(expected.lengths)


def test_a_rollout_is_what_gymnasium_steps_through():
    found = velocirl.rollout(left, "gym:CartPole-v1", seed=3)
    env = gymnasium.make("CartPole-v1")
    seen = [env.reset(seed=velocirl.vector.host.interface.copy_seeds(3, 1)[0])[0]]
    while not (step := env.step(0))[2]:
        seen.append(step[0])
    seen.append(step[0])
    assert np.array_equal(np.stack([one.values for one in found.signals.values()], 1), seen)
    assert (found.environment, found.time_unit) == ("CartPole-v1", "steps")


def test_time_is_in_seconds_where_the_environment_has_a_clock():
    found = velocirl.rollout(push, in_python("Pendulum-v1", params={"time_step": 0.1}), max_steps=7)
    assert found.time.tolist() == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
    assert found.time_unit == "s"
    assert found.truncated.tolist() == [False] * 7 + [True]
    skipped = velocirl.rollout(push, in_python("Pendulum-v1", skip=4), max_steps=3)
    assert skipped.time.tolist() == [0.0, 0.2, 0.4, 0.6]


def test_a_clock_that_is_drawn_is_that_of_its_episode():
    envs = in_python("Pendulum-v1", 2, params={"time_step": uniform(0.01, 0.1)}, max_episode_steps=3)
    found = velocirl.rollout(push, envs, episodes=4)
    steps = [one.time[1] for one in found.each()]
    assert len(set(steps)) == 4
    for one, step in zip(found.each(), steps, strict=True):
        assert one.time == pytest.approx(step * np.arange(4), abs=1e-6)


def test_an_agent_acts_where_it_was_trained_and_as_its_file_does(tmp_path):
    agent = velocirl.PPO("CartPole-v1", device="python", hidden=(4,), seed=1)
    path = agent.save(tmp_path / "model")
    envs = in_python("CartPole-v1")
    found, same = velocirl.rollout(agent, envs), velocirl.rollout(str(path), envs)
    assert np.array_equal(found.actuators["action"].values, same.actuators["action"].values, equal_nan=True)
    assert (found.policy, same.policy) == ("ppo", "model.safetensors")


def test_a_model_that_remembers_is_given_its_state_and_told_of_new_episodes(define):
    class Remembering:
        def __init__(self):
            self.asked = []

        def predict(self, observation, state=None, episode_start=None, deterministic=True):
            self.asked.append((state, None if episode_start is None else episode_start.tolist(), deterministic))
            return np.ones(len(observation), np.int64), (0 if state is None else state + 1)

    model = Remembering()
    velocirl.rollout(model, in_python(counting(define)), episodes=2, deterministic=False)
    once = [(None, None, False), (0, [False], False), (1, [False], False)]
    assert model.asked == once * 2


def test_structured_spaces_are_named_by_their_parts(define):
    spaces = velocirl.Dict({"kind": Discrete(2), "force": Box(-1.0, 1.0, (2,))})

    def step(state, params, action, rng):
        return action.force[0], False

    env = define(action=spaces, step=step, max_steps=2)
    action = {"kind": 1, "force": np.array([0.5, -0.5], np.float32)}
    found = velocirl.rollout(lambda _: action, in_python(env))
    last = {name: one.values[-1] for name, one in found.actuators.items()}
    assert last == {"action/force[0]": 0.5, "action/force[1]": -0.5, "action/kind": 1.0}


def test_pictures_are_left_out(define):
    def show(state, params, observation):
        observation[0, 0] = 0

    env = define(observation=Box(0, 255, (40, 40), np.uint8), observe=show)
    found = velocirl.rollout(left, in_python(env), max_steps=2)
    assert (dict(found.signals), list(found.actuators)) == ({}, ["action"])


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((left,), {}, "say in which environment this policy is to act: rollout(policy, env)"),
        ((3, "CartPole-v1"), {}, "a int cannot act: give an agent, a controller, the path of a run or model"),
        ((left, "CartPole-v1", 0), {}, "episodes must be at least 1, got 0"),
        ((left, "CartPole-v1"), {"max_steps": 0}, "max_steps must be at least 1, got 0"),
        ((left, "CartPole-v1"), {"params": {"gravty": 3.0}}, "gravty"),
    ],
)
def test_mistakes_are_named(arguments, options, message):
    with pytest.raises((ValueError, TypeError)) as caught:
        velocirl.rollout(*arguments, **options)
    assert message in str(caught.value)


def test_copies_that_were_given_keep_their_parameters_and_stay_open():
    envs = in_python("Pendulum-v1")
    with pytest.raises(ValueError, match="set them where you make yours"):
        velocirl.rollout(push, envs, params={"gravity": 5.0})
    velocirl.rollout(push, envs, max_steps=1)
    assert not envs.closed


def test_a_trajectory_is_printed_in_a_line():
    found = velocirl.rollout(push, in_python("Pendulum-v1"), episodes=2, max_steps=7)
    assert repr(found) == str(found)
    assert str(found) == (
        "Trajectory(push in Pendulum-v1: 2 episodes, 14 steps in 0.7 s,"
        f" mean return {found.returns.mean():,.6g}; 3 signals, 1 actuator)"
    )
    named = velocirl.rollout(left, "gym:CartPole-v1", seed=3)
    steps = int(named.lengths.sum())
    assert str(named).startswith(f"Trajectory(left in CartPole-v1: 1 episode, {steps} steps, mean return {steps}; 4 ")
    nothing = named.at(np.zeros(len(named), np.bool_))
    assert str(nothing) == "Trajectory(left in CartPole-v1: 0 episodes, 0 steps; 4 signals, 1 actuator)"
