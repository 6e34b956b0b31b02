"""What an agent says of itself, before, while and after it has learnt."""

import xml.etree.ElementTree as ET

import pytest

from velocirl import DQN, PPO, QLearning
from velocirl.training.agent import Goal

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
