"""Classic control, step for step against Gymnasium's own (in double precision), in plain Python."""

from math import pi

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control.acrobot import wrap as gymnasiums_wrap

from velocirl import Box, random
from velocirl.engine.canvas import PAPER, SKY, Canvas
from velocirl.environments import acrobot, cartpole, mountain_car, mountain_car_continuous, pendulum

MODULES = (cartpole, mountain_car, mountain_car_continuous, pendulum, acrobot)
ENVIRONMENTS = [module.environment for module in MODULES]
STATES = 400

# The fields that make up Gymnasium's state, and the ranges from which states are taken here. Those of the velocities
# of acrobot are what a motor of torque 1 reaches; those of pendulum's angle go beyond one turn.
RANGES = {
    "CartPole-v1": {"position": 2.4, "velocity": 3.0, "angle": 0.21, "angular_velocity": 3.0},
    "MountainCar-v0": {"position": (-1.2, 0.6), "velocity": 0.07},
    "MountainCarContinuous-v0": {"position": (-1.2, 0.6), "velocity": 0.07},
    "Pendulum-v1": {"angle": 3 * pi, "angular_velocity": 8.0},
    "Acrobot-v1": {"shoulder": pi, "elbow": pi, "shoulder_velocity": 5.0, "elbow_velocity": 10.0},
}
RESETS = {
    "CartPole-v1": {"position": 0.05, "velocity": 0.05, "angle": 0.05, "angular_velocity": 0.05},
    "MountainCar-v0": {"position": (-0.6, -0.4), "velocity": 0.0},
    "MountainCarContinuous-v0": {"position": (-0.6, -0.4), "velocity": 0.0},
    "Pendulum-v1": {"angle": pi, "angular_velocity": 1.0},
    "Acrobot-v1": {"shoulder": 0.1, "elbow": 0.1, "shoulder_velocity": 0.1, "elbow_velocity": 0.1},
}

every_environment = pytest.mark.parametrize("environment", ENVIRONMENTS, ids=lambda environment: environment.id)


def bounds(span):
    return span if isinstance(span, tuple) else (-span, span)


def row(record, values=None):
    return record.rows(1, values).view(np.recarray)[0]


def step_both(environment, oracle, values, action):
    """One step from the same state and with the same action: reward, terminated and observation of each."""
    state, params = row(environment.state, values), row(environment.params)
    observation = np.zeros(environment.observation.shape, np.float32)
    reward, terminated = environment.step(state, params, action, random.streams(0, 1)[0])
    environment.observe(state, params, observation)

    oracle.reset(seed=0)
    oracle.state = np.array([np.float32(value) for value in values.values()], np.float64)
    expected = oracle.step(action)
    return (reward, terminated, observation), (expected[1], expected[2], expected[0])


@every_environment
def test_a_step_is_gymnasiums(environment):
    oracle = gymnasium.make(environment.id).unwrapped
    draws = np.random.default_rng(1)
    environment.action.seed(2)
    ends = 0
    for _ in range(STATES):
        values = {name: draws.uniform(*bounds(span)) for name, span in RANGES[environment.id].items()}
        action = environment.action.sample()
        ours, theirs = step_both(environment, oracle, values, action)
        assert ours[0] == pytest.approx(theirs[0], rel=1e-5, abs=1e-5)
        assert ours[1] == theirs[1]
        np.testing.assert_allclose(ours[2], theirs[2], rtol=1e-5, atol=1e-5)
        assert environment.observation.contains(ours[2])
        ends += ours[1]
    if environment.id != "Pendulum-v1":
        assert 0 < ends < STATES


@every_environment
def test_an_episode_stays_with_gymnasiums(environment):
    """Fifty steps on end: errors of single precision grow, but stay small, and the ends come at the same moment."""
    oracle = gymnasium.make(environment.id).unwrapped
    environment.action.seed(3)
    rng = random.streams(4, 1)[0]
    state, params = row(environment.state), row(environment.params)
    observation = np.zeros(environment.observation.shape, np.float32)
    environment.reset(state, params, rng)
    oracle.reset(seed=0)
    oracle.state = np.array([state[name] for name in RANGES[environment.id]], np.float64)
    for _ in range(50):
        action = environment.action.sample()
        reward, terminated = environment.step(state, params, action, rng)
        environment.observe(state, params, observation)
        expected, expected_reward, expected_terminated, _, _ = oracle.step(action)
        np.testing.assert_allclose(observation, expected, atol=1e-3)
        assert reward == pytest.approx(expected_reward, abs=1e-3)
        assert terminated == expected_terminated
        if terminated:
            break


@every_environment
def test_resets_lie_where_gymnasiums_do(environment):
    params = row(environment.params)
    states = environment.state.rows(1000)
    for state, rng in zip(states.view(np.recarray), random.streams(5, 1000), strict=True):
        environment.reset(state, params, rng)
    for name, span in RESETS[environment.id].items():
        low, high = bounds(span)
        assert low - 1e-6 <= states[name].min() <= low + 0.02 * (high - low) + 1e-6
        assert high - 0.02 * (high - low) - 1e-6 <= states[name].max() <= high + 1e-6


@every_environment
def test_spaces_and_time_limit_are_gymnasiums(environment):
    spec = gymnasium.spec(environment.id)
    oracle = gymnasium.make(environment.id)
    assert environment.max_steps == spec.max_episode_steps
    assert environment.action == oracle.action_space
    if environment.id == "CartPole-v1":  # Gymnasium's bounds there are not bounds: its own velocities are unlimited
        assert environment.observation == Box(-np.inf, np.inf, (4,))
    else:
        assert environment.observation == oracle.observation_space


@pytest.mark.parametrize("environment", [mountain_car.environment, mountain_car_continuous.environment])
def test_the_car_stops_at_the_left_end(environment):
    oracle = gymnasium.make(environment.id).unwrapped
    action = np.zeros(1, np.float32) if isinstance(environment.action, Box) else 1
    ours, theirs = step_both(environment, oracle, {"position": -1.19, "velocity": -0.05}, action)
    np.testing.assert_array_equal(ours[2], np.array([-1.2, 0.0], np.float32))
    np.testing.assert_array_equal(theirs[2], ours[2])


def test_the_continuous_car_gets_its_prize_less_the_force():
    oracle = gymnasium.make("MountainCarContinuous-v0").unwrapped
    ours, theirs = step_both(
        mountain_car_continuous.environment, oracle, {"position": 0.44, "velocity": 0.05}, np.array([0.5], np.float32)
    )
    assert ours[:2] == (pytest.approx(99.975), True)
    assert theirs[:2] == (pytest.approx(99.975), True)


@pytest.mark.parametrize("wrap", [acrobot.wrap, pendulum.wrap])
def test_wrap_is_gymnasiums_over_many_turns_and_leaves_angles_within_one_alone(wrap):
    for angle in np.linspace(-20.0, 20.0, 1000, dtype=np.float32):
        assert wrap(angle) == pytest.approx(gymnasiums_wrap(float(angle), -pi, pi), abs=5e-6)
        if abs(angle) < 3.14159:
            assert wrap(angle) == angle
    assert wrap(np.float32(pi)) == -np.float32(pi)  # just above pi
    assert wrap(np.float32(-pi)) == -np.float32(pi)


def test_pendulum_stays_within_a_step_of_one_turn():
    """In single precision an angle that grew for ever would lose its digits."""
    state, params = row(pendulum.State, {"angle": 3.0, "angular_velocity": 8.0}), row(pendulum.Params)
    for _ in range(500):
        pendulum.step(state, params, np.array([2.0], np.float32), None)
        assert abs(state.angle) <= pi + 0.4 + 1e-6


PICTURES = {
    "CartPole-v1": ({"position": 1.0}, (400, 600, 3), PAPER),
    "MountainCar-v0": ({"position": -0.5}, (400, 600, 3), SKY),
    "MountainCarContinuous-v0": ({"position": -0.5}, (400, 600, 3), SKY),
    "Pendulum-v1": ({"angle": 0.5, "torque": 1.0}, (500, 500, 3), PAPER),
    "Acrobot-v1": ({"shoulder": 0.5}, (500, 500, 3), PAPER),
}


@every_environment
def test_the_picture_shows_the_state(environment):
    values, shape, background = PICTURES[environment.id]
    params = row(environment.params)
    canvas = Canvas()
    frames = []
    for changed in (values, {name: -value for name, value in values.items()}):
        environment.draw(row(environment.state, changed), params, canvas)
        frames.append(canvas.pixels)
    assert frames[0].shape == shape
    assert (frames[0][-1, 0] == background).all() or (frames[0][0, 0] == background).all()
    assert (frames[0] != frames[1]).any(axis=2).sum() > 500


def test_pendulum_and_acrobot_are_drawn_where_their_links_are():
    canvas = Canvas()
    pendulum.draw(row(pendulum.State, {"angle": pi / 2}), row(pendulum.Params), canvas)
    bob = canvas.pixels[250, 250 - round(250 / 1.3 * 0.9)]
    np.testing.assert_array_equal(bob, pendulum.RED)  # a quarter turn counterclockwise: to the left, as Gymnasium's

    acrobot.draw(row(acrobot.State, {"shoulder": pi / 2, "elbow": pi / 2}), row(acrobot.Params), canvas)
    scale = 250 / 2.3
    np.testing.assert_array_equal(canvas.pixels[250, 250 + round(0.5 * scale)], acrobot.TEAL)
    np.testing.assert_array_equal(canvas.pixels[250 - round(0.5 * scale), 250 + round(scale)], acrobot.AMBER)
