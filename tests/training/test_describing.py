"""What an agent says of itself, before, while and after it has learnt."""

import dataclasses
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

import velocirl
from velocirl import DQN, PPO, Evaluation, QLearning, TabularModel, value_iteration
from velocirl.training.persistence import Goal

SMALL = {
    "num_envs": 6,
    "horizon": 16,
    "hidden": (16, 8),
    "threads": 2,
    "seed": 1,
    "device": "cpu",
    "activation": "tanh",
}


def learnt():
    agent = PPO("CartPole-v1", **SMALL)
    agent.steps, agent.goal = 12_345, Goal(0, 100_000)
    agent.recent.returns.extend([10.0, 20.0])
    return agent


def test_a_new_agent_says_what_it_is():
    agent = PPO("CartPole-v1", **SMALL)
    parameters = agent.num_parameters
    assert repr(agent) == (f"<PPO on CartPole-v1, 16x8 tanh, {parameters} parameters, cpu, 2 threads, no steps yet>")
    lines = dict(line.split(maxsplit=1) for line in str(agent).splitlines()[1:])
    assert lines == {
        "environment": "CartPole-v1", "network": f"16x8 tanh, {parameters} parameters", "device": "cpu, 2 threads",
        "seed": "1", "steps": "none yet",
    }  # fmt: skip


def test_one_that_has_learnt_says_how_far_it_is_and_how_it_does():
    agent = learnt()
    assert repr(agent).endswith("12,345 of 100,000 steps, return 15>")
    assert str(agent).splitlines()[0] == "PPO"
    assert "steps        12,345 of 100,000" in str(agent)
    assert str(agent).endswith("return       15, the mean of 2 episodes")


def test_html_is_the_same_and_all_of_it_text():
    agent = learnt()
    agent.source.id = "<script>alert('1')</script>"
    drawn = agent._repr_html_()
    assert "<script>" not in drawn
    texts = list(ET.fromstring(drawn).itertext())
    assert texts[:3] == ["PPO", "environment", "<script>alert('1')</script>"]
    assert texts[-2:] == ["return", "15, the mean of 2 episodes"]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: QLearning("FrozenLake-v1", seed=0), "table        dense, 16 states x 4 actions"),
        (lambda: QLearning("FrozenLake-v1", storage="sparse", seed=0), "sparse, 16 states x 4 actions, 0 met"),
        (lambda: QLearning("FrozenLake-v1", runtime="threads", workers=2, seed=0), "runtime      threads, 2 workers"),
        (lambda: DQN("CartPole-v1", network="mlp(8, 4)", device="python", seed=0), "network      mlp(8, 4), "),
        (lambda: PPO("CartPole-v1", hidden=(), device="python", seed=0), "network      linear, "),
    ],
)
def test_tables_and_other_networks_are_named(make, said):
    assert said in str(make())


def test_an_evaluation_a_trajectory_and_a_plan_are_shown_in_few_words():
    evaluation = Evaluation(np.array([9.0, 12.0]), np.array([9, 1200]), 1)
    assert repr(evaluation) == "<Evaluation: 10.50 +- 1.50 over 2 episodes of 604.5 steps, 1 of them cut after 1,200>"
    shown = text_of(evaluation)
    assert shown == (
        "Evaluation return 10.50 ± 1.50 range 9 to 12 episodes 2, 1 of them cut steps 604.5 each, 9 to 1,200"
    )
    recorded = velocirl.rollout(lambda seen: [1.0], "Pendulum-v1", episodes=2, seed=0)
    assert len(repr(recorded)) < 160
    assert "Pendulum-v1: 2 episodes, 400 steps" in repr(recorded)
    assert "environment Pendulum-v1 policy" in text_of(recorded)
    assert "seed 0 length 2 episodes, 400 steps return -" in text_of(recorded)
    assert "signals" in text_of(recorded)
    model = TabularModel.from_arrays(np.ones((1, 2, 1)), np.array([[1.0, 2.0]]))
    assert repr(model) == "<TabularModel: 1 state x 2 actions, 2 outcomes>"
    plan = value_iteration(model, 0.5)
    assert repr(plan).startswith("<Plan: 1 state x 2 actions, values 4 to 4, ")
    assert "size 1 state x 2 actions values 4 to 4 iterations" in text_of(plan)
    for one in (evaluation, recorded, plan):
        assert len(one._repr_html_()) < 3000


def test_names_of_anybody_are_text_in_a_display():
    recorded = velocirl.rollout(lambda seen: [1.0], "Pendulum-v1", episodes=1, seed=0)
    hostile = dataclasses.replace(recorded, policy="<script>alert(1)</script>")
    assert "<script" not in hostile._repr_html_()


def text_of(one):
    """What a display shows, without its elements."""
    return " ".join(re.sub(r"<[^>]+>", " ", one._repr_html_()).split())
