"""SAC and TD3 learn, act within bounds, and refuse what they cannot do. Learning tests state budget and threshold."""

from math import inf, nan

import gymnasium
import numpy as np
import pytest

import velocirl
from velocirl import SAC, TD3, Box, Environment, NumericalError, float32, record
from velocirl.networks.numpy_mlp import NumpyMLP

BOTH = pytest.mark.parametrize("kind", [SAC, TD3], ids=["sac", "td3"])
SAC_QUICKLY = pytest.mark.parametrize(
    "kind", [pytest.param(SAC, id="sac"), pytest.param(TD3, id="td3", marks=pytest.mark.slow)]
)
SMALL = {
    "num_envs": 2, "hidden": (16, 16), "batch_size": 16, "learning_starts": 50, "buffer_size": 1000, "seed": 3,
    "device": "cpu", "threads": 1,
}  # fmt: skip


def solved(kind, environment, seed):
    """The mean of 20 evaluation episodes after training as the environment's preset says."""
    agent = kind(environment, seed=seed, device="cpu")
    agent.learn(agent.preset()["total_steps"])
    return velocirl.evaluate(agent, episodes=20, seed=1000).mean_return


@pytest.mark.slow
@SAC_QUICKLY
def test_identity(kind):
    """Perfect 0, random -10.7, always the middle -5.3: each observation says what to do, in 4000 steps."""
    assert solved(kind, "IdentityContinuous-v0", seed=0) >= -0.2


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
@BOTH
def test_pendulum(kind, seed):
    """Best about -125, random about -1200; 20,000 steps."""
    assert solved(kind, "Pendulum-v1", seed) >= -200


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_mountain_car_by_correlated_noise(seed):
    """At most about 95; who never leaves the valley has 0 or less; 50,000 steps."""
    assert solved(SAC, "MountainCarContinuous-v0", seed) >= 90


@BOTH
def test_choices_are_refused(kind):
    with pytest.raises(ValueError, match=r"needs actions that are a flat Box of floats.*CartPole-v1.*DQN"):
        kind("CartPole-v1")


@record
class State:
    count: float32


def reset(state, params, rng):
    state.count = 0


def step(state, params, action, rng):
    state.count += action[0]
    return 1.0, False


def observe(state, params, observation):
    observation[0] = state.count


@BOTH
def test_actions_without_bounds_are_refused(kind):
    half_open = Environment(
        "HalfOpen-v0", state=State, observation=Box(-inf, inf, (1,)), action=Box(-1.0, inf, (1,)), max_steps=10,
        reset=reset, step=step, observe=observe,
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"acts between bounds.*HalfOpen-v0.*give the space bounds"):
        kind(half_open)


@pytest.mark.parametrize(
    ("kind", "config", "message"),
    [
        (SAC, {"temperature": "cold"}, "temperature must be a number"),
        (SAC, {"temperature": 0.0}, "temperature must be above 0"),
        (SAC, {"target_entropy": inf}, "target_entropy must be finite"),
        (SAC, {"noise": -0.1}, "noise must be at least 0"),
        (SAC, {"tau": 0.0}, "tau must be above 0"),
        (TD3, {"noise_correlation": 1.0}, "noise_correlation must be at least 0 and below 1"),
        (TD3, {"smoothing": -1.0}, "smoothing must be at least 0"),
        (TD3, {"actor_every": 0}, "actor_every must be at least 1"),
    ],
)
def test_impossible_settings_are_refused(kind, config, message):
    with pytest.raises(ValueError, match=message):
        kind("Pendulum-v1", **config)


@BOTH
def test_parameters_are_those_of_the_actor_and_of_both_critics(kind):
    agent = kind("Pendulum-v1", **SMALL)
    outputs = 2 if kind is SAC else 1
    assert agent.parameters.size == (3 + 1) * 16 + (16 + 1) * 16 + (16 + 1) * outputs
    assert agent.num_parameters == agent.parameters.size + 2 * ((4 + 1) * 16 + (16 + 1) * 16 + 16 + 1)


@BOTH
def test_actions_are_stretched_to_the_bounds(kind):
    agent = kind("Pendulum-v1", **SMALL)  # from -2 to 2
    agent.parameters[:] = np.random.default_rng(0).normal(size=agent.parameters.size)
    observations = np.random.default_rng(1).normal(size=(40, 3)).astype(np.float32)
    network = NumpyMLP(agent.network)
    network.parameters[:] = agent.parameters
    output, _ = network.forward(observations)
    best, _ = agent.predict(observations, deterministic=True)
    np.testing.assert_allclose(best[:, 0], 2 * np.tanh(output[:, 0]), atol=1e-5)
    drawn = np.stack([agent.predict(observations)[0] for _ in range(20)])
    assert np.abs(drawn).max() <= 2
    assert (drawn.std(0) > 0).any()


@SAC_QUICKLY
def test_training_begins_with_random_actions(kind):
    """Uniform within [-1, 1], which is how they are remembered."""
    agent = kind("Pendulum-v1", **{**SMALL, "learning_starts": 900}).learn(900)
    actions = agent.learner.ring.rows["action"][:900, 0]
    assert np.abs(actions).max() <= 1
    assert actions.std() == pytest.approx(1 / np.sqrt(3), rel=0.06)
    assert agent.metrics["train/n_updates"] == 0
    assert agent.metrics["train/actor_loss"] is None


@SAC_QUICKLY
def test_an_environment_that_gives_no_number_stops_training(kind):
    kind("Pendulum-v1", **SMALL).prepare()  # what is compiled is tried in plain Python first, which would fail
    with pytest.raises(NumericalError, match="an observation of the environment is not finite"):
        kind("Pendulum-v1", **SMALL, params={"time_step": 3e38}).learn(100)


@SAC_QUICKLY
@pytest.mark.parametrize("place", ["critics", "target_critics"])
def test_a_gradient_that_is_no_number_leaves_the_actor_as_it_was(kind, place):
    agent = kind("Pendulum-v1", **SMALL).learn(100)
    agent.learner.networks.parameters[place][-1] = nan  # a bias of the second critic
    agent.learner.take()
    held = agent.parameters.copy()
    with pytest.raises(NumericalError, match="the gradient is not finite"):
        agent.learn(4)
    np.testing.assert_array_equal(agent.parameters, held)


LEARNT = {"actor.moments", "actor.steps", "critics.parameters", "critics.moments", "critics.steps",
          "target_critics.parameters", "learner.rng", "learner.updates"}  # fmt: skip
OWN = {SAC: {"numbers.values", "numbers.moments", "numbers.steps"}, TD3: {"target_actor.parameters"}}


@SAC_QUICKLY
def test_two_threads_repeat_themselves(kind):
    runs = [kind("Pendulum-v1", **{**SMALL, "threads": 2}).learn(150) for _ in range(2)]
    assert runs[0].parameters.tobytes() == runs[1].parameters.tobytes()
    one, other = (agent.learner.state() for agent in runs)
    learnt = LEARNT | OWN[kind]
    assert all(one[name].tobytes() == other[name].tobytes() for name in learnt)
    assert {name for name in one if name.split(".")[0] not in ("policy", "memory", "fleet")} == learnt
    assert {"policy.noise", "policy.rng", "memory.rows"} <= one.keys()


@pytest.mark.slow
@BOTH
def test_gymnasium(kind, tmp_path):
    """Gymnasium's own Pendulum: what is remembered is right, and a resumed agent goes on learning."""
    gymnasium.spec("Pendulum-v1")
    agent = kind("gym:Pendulum-v1", **SMALL).learn(400)
    rows = agent.learner.ring.rows[:400]
    assert agent.metrics["train/n_updates"] == 350
    assert np.abs(rows["action"]).max() <= 1
    lives = rows.reshape(-1, 2)
    goes_on = lives["ended"][:-1] == 0
    np.testing.assert_array_equal(lives["observation"][1:][goes_on], lives["next_observation"][:-1][goes_on])
    cosine, sine = lives["observation"][..., 0], lives["observation"][..., 1]
    angle, speed, torque = np.arctan2(sine, cosine), lives["observation"][..., 2], 2 * lives["action"][..., 0]
    np.testing.assert_allclose(lives["reward"], -(angle**2 + 0.1 * speed**2 + 0.001 * torque**2), atol=1e-3)
    resumed = kind.load(agent.save(tmp_path / "agent"))
    resumed.learn(100)
    assert resumed.metrics["train/n_updates"] == 450
    assert not np.array_equal(resumed.parameters, agent.parameters)
