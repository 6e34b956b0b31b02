"""Episodes that never end: evaluation cuts them and training warns, each with what to do."""

import gymnasium
import pytest
from endless import Endless
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import TimeLimit

import velocirl
from velocirl import QLearning, evaluate
from velocirl.training import agent as training


def still(_):
    return 0


def test_evaluate_cuts_episodes_at_max_steps_and_says_so():
    message = r"3 of 3 episodes had not ended after max_steps=7 and were cut there: .* max_episode_steps=1000"
    with pytest.warns(UserWarning, match=message):
        result = evaluate(still, Endless, episodes=3, max_steps=7)
    assert (result.returns.tolist(), result.lengths.tolist(), result.cut) == ([7.0] * 3, [7] * 3, 3)
    assert str(result).endswith("over 3 episodes of 7.0 steps, 3 of them cut after 7")


def test_a_cut_episode_is_followed_by_a_new_one_in_its_environment_alone():
    """One environment plays several episodes: each starts from zero, and those that end by themselves go on."""
    params = {"length": [3, 50]}
    envs = velocirl.make_vec("Counter-v0", 2, params=params, device="python")
    with pytest.warns(UserWarning, match=r"3 of 6 episodes"):
        result = evaluate(still, envs, episodes=6, max_steps=5)
    assert sorted(result.lengths.tolist()) == [3, 3, 3, 5, 5, 5]


def test_without_max_steps_an_endless_episode_is_cut_at_the_default(monkeypatch):
    monkeypatch.setattr("velocirl.training.evaluation.MOST_STEPS", 40)
    with pytest.warns(UserWarning, match="max_steps=40"):
        assert evaluate(still, Endless, episodes=1).lengths.tolist() == [40]
    assert evaluate(still, lambda: TimeLimit(Endless(), 60), episodes=1).lengths.tolist() == [60]


def test_a_vector_environment_that_cannot_be_cut_stops_with_a_sentence():
    message = r"an episode of SyncVectorEnv has not ended after max_steps=5: give its environment a time limit"
    with pytest.raises(ValueError, match=message):
        evaluate(still, SyncVectorEnv([Endless, Endless]), episodes=4, max_steps=5)


@pytest.mark.parametrize("value", [0, -1, 1.5, "many"])
def test_max_steps_must_be_a_count(value):
    with pytest.raises(ValueError, match="max_steps must be"):
        evaluate(still, Endless, max_steps=value)


@pytest.mark.parametrize(("limit", "warns"), [(None, True), (100, False)])
def test_training_warns_once_where_no_episode_ends(monkeypatch, recwarn, limit, warns):
    monkeypatch.setattr(training, "ENDLESS", 2000)
    made = Endless if limit is None else lambda: TimeLimit(Endless(), limit)
    agent = QLearning(made, num_envs=1, seed=0)
    if not warns:
        agent.learn(4000)
        assert not recwarn.list
        return
    with pytest.warns(UserWarning, match=r"no episode of given:Endless has ended in .* steps of each") as caught:
        agent.learn(8000)
    assert len(caught) == 1
    assert "it has no time limit: wrap it in gymnasium.wrappers.TimeLimit(env, max_episode_steps=1000)" in str(
        caught[0].message
    )


def test_a_known_time_limit_is_waited_for(recwarn):
    agent = QLearning(lambda: TimeLimit(Endless(), 50_000), num_envs=1, seed=0)
    assert agent.source.time_limit == 50_000
    assert not agent.source.warn_of_endless(49_999)
    assert not recwarn.list


@pytest.mark.parametrize(
    ("given", "limit"),
    [
        (lambda: "gym:CartPole-v1", 500),
        (lambda: "CartPole-v1", 500),
        (lambda: gymnasium.make("CartPole-v1", max_episode_steps=20), 20),
        (lambda: velocirl.make_vec("gym:CartPole-v1", 2, max_episode_steps=30), 30),
        (lambda: SyncVectorEnv([lambda: TimeLimit(Endless(), 40)] * 2), 40),
        (lambda: velocirl.make_vec("CartPole-v1", 2, max_episode_steps=-1, device="python"), None),
        (lambda: Endless, None),
    ],
)
def test_time_limits_are_known(given, limit):
    assert velocirl.training.source.Source(given()).time_limit == limit
