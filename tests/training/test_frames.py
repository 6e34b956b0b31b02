"""Agents of environments whose frames are skipped and stacked, by themselves or by a setting."""

import numpy as np
import pytest
from pictures import HEIGHT, KINDS, LEARNERS, WIDTH, define, observe, stacks_of

import velocirl
from velocirl.cli.main import main
from velocirl.engine.disk.saved import within
from velocirl.training.agent import Agent

REMEMBERED = {"device": "python", "num_envs": 3, "buffer_size": 60, "learning_starts": 12, "batch_size": 4}


@pytest.mark.parametrize(
    ("algorithm", "device"),
    [("PPO", "python"), ("DQN", "python"), ("DQN", "cpu"), pytest.param("PPO", "cpu", marks=pytest.mark.slow)],
)
def test_what_copies_see_in_training_is_their_stack(algorithm, device):
    seen, frames = KINDS["stacked rows"]
    environment = define("Frames-v0", **seen, **frames)
    agent = getattr(velocirl, algorithm)(environment, device=device, **LEARNERS[algorithm])
    agent.learn(256)
    state = within("fleet", agent.arrays())
    assert state["observation"].shape == (8, 3, HEIGHT, WIDTH)
    np.testing.assert_array_equal(state["observation"], stacks_of(environment, state))


def test_frames_that_were_asked_for_are_saved_and_resumed_in_mid_episode(tmp_path):
    def made():
        small = {"device": "python", "num_envs": 3, "horizon": 5, "minibatch_size": 5, "hidden": (4,)}
        return velocirl.PPO("Plain-v0", skip=2, stack=3, seed=0, **small)

    define("Plain-v0", observe=observe)
    whole = made().learn(60)
    agent = made().learn(60, lambda agent: agent.steps < 30)
    assert agent.steps == 30
    assert (agent.arrays()["fleet.elapsed"] > 0).any()
    again = Agent.load(agent.save(tmp_path / "agent"))
    assert (again.config.skip, again.config.stack) == (2, 3)
    again.learn()
    expected, arrays = whole.arrays(), again.arrays()
    assert arrays.keys() == expected.keys()
    for name, array in expected.items():
        assert arrays[name].tobytes() == array.tobytes(), name


def test_agents_take_over_the_frames_of_copies_that_are_given():
    fleet = velocirl.make_vec(define("Plain-v0", observe=observe), 3, device="python", stack=4)
    agent = velocirl.DQN(fleet, **REMEMBERED)
    assert (agent.config.skip, agent.config.stack) == (None, 4)
    assert agent.source.observation_space.shape == (4, HEIGHT, WIDTH)


def test_an_agent_is_evaluated_with_its_own_frames():
    environment = define("Plain-v0", observe=observe)
    agent = velocirl.DQN(environment, stack=2, skip=3, **REMEMBERED)
    for given in (None, environment):
        assert velocirl.evaluate(agent, given, episodes=3, seed=0).lengths.tolist() == [2, 2, 2]  # of 6 steps


def test_what_cannot_be_is_one_sentence():
    define("Plain-v0", observe=observe, stack=2)
    with pytest.raises(ValueError, match=r"^Plain-v0 has stack=2 already: leave stack out$"):
        velocirl.DQN("Plain-v0", stack=2)
    with pytest.raises(ValueError, match=r"^gym:CartPole-v1 steps in Python: leave out stack, which native"):
        velocirl.DQN("gym:CartPole-v1", stack=2)
    with pytest.raises(ValueError, match="skip= must be a whole number from 1, got 0"):
        velocirl.DQN("CatchPixels-v0", skip=0)


def test_they_are_options_of_the_command_line(tmp_path, capsys):
    options = ["--algorithm", "dqn", "--stack", "2", "--skip", "2", "--device", "python", "--hidden", "4"]
    few = ["--num-envs", "2", "--batch-size", "4", "--learning-starts", "8", "--buffer-size", "40"]
    where = ["--total-steps", "40", "--run-dir", str(tmp_path / "run"), "--quiet"]
    main(["train", "CatchPixels-v0", *options, *few, *where])
    agent = Agent.load(tmp_path / "run", best=False)
    assert (agent.config.skip, agent.config.stack) == (2, 2)
    assert agent.source.observation_space.shape == (2, 1, 20, 10)
    capsys.readouterr()
