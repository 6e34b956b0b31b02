"""Scenarios of agents: what they train and are evaluated in, saved and resumed exactly, and changed."""

import numpy as np
import pytest
from tank import tank

import velocirl
from velocirl import PPO, QLearning, uniform

SMALL = {"num_envs": 4, "horizon": 8, "minibatch_size": 16, "epochs": 1, "hidden": (8,), "device": "python", "seed": 3}
STEPS = 32


def params_of(agent, name):
    return agent.learner.fleet.get_state()["params"][name]


def test_an_agent_trains_in_a_scenario_of_which_params_replace_some():
    agent = PPO(tank(), scenario="disturbed", params={"highest": 3.0}, **SMALL).learn(STEPS)
    assert params_of(agent, "noise").tolist() == [0.5] * 4
    assert params_of(agent, "highest").tolist() == [3.0] * 4
    assert (agent.config.scenario, agent.config.params) == ("disturbed", {"highest": 3.0})


@pytest.mark.parametrize("scenario", ["disturbed", "low"])  # the latter draws a parameter
def test_a_run_goes_on_in_its_scenario_exactly(scenario, tmp_path):
    whole = PPO(tank(), scenario=scenario, **SMALL).learn(STEPS)
    again = PPO.load(whole.save(tmp_path / "agent"))
    assert again.source.scenario == again.config.scenario == scenario
    for agent in (whole, again):
        agent.learn(STEPS)
    assert np.array_equal(whole.parameters, again.parameters)
    for name, array in whole.arrays().items():
        assert np.array_equal(array, again.arrays()[name]), name


def test_a_saved_agent_may_go_on_in_another_scenario(tmp_path):
    path = PPO(tank(), scenario="disturbed", params={"highest": 3.0}, **SMALL).learn(STEPS).save(tmp_path / "agent")
    calm = PPO.load(path, scenario="nominal").learn(STEPS)
    assert params_of(calm, "noise").tolist() == [0.0] * 4
    assert params_of(calm, "highest").tolist() == [3.0] * 4
    drawn = PPO.load(path, scenario="low", params={}).learn(STEPS)
    assert params_of(drawn, "highest").tolist() == [1.5] * 4
    assert len(set(params_of(drawn, "noise").tolist())) == 4


def test_scenarios_change_between_calls_of_learn_and_params_stay():
    agent = PPO(tank(), params={"highest": 3.0}, **SMALL).learn(STEPS)
    agent.set_scenario("disturbed")
    assert params_of(agent, "noise").tolist() == [0.5] * 4
    agent.set_params(noise=0.25)
    assert (params_of(agent, "noise").tolist(), agent.config.scenario) == ([0.25] * 4, "disturbed")
    agent.set_scenario(None)
    assert (params_of(agent, "noise").tolist(), params_of(agent, "highest").tolist()) == ([0.25] * 4, [3.0] * 4)


def test_evaluation_is_in_the_scenario_of_training_or_in_another():
    """Nothing moves the level but the noise: in a calm scenario no step costs anything."""

    def hold(observation):
        return np.zeros(1, np.float32)

    agent = PPO(tank(), scenario="disturbed", **SMALL)
    agent.predict = lambda observation, **_: (np.zeros((len(observation), 1), np.float32), None)
    assert velocirl.evaluate(agent, None, 8, seed=0).mean_return < 8.0
    assert velocirl.evaluate(agent, None, 8, seed=0, scenario="nominal").mean_return == 8.0
    assert velocirl.evaluate(hold, tank(), 8, seed=0).mean_return == 8.0
    disturbed = velocirl.evaluate(hold, tank(), 8, seed=0, scenario="disturbed")
    assert disturbed.returns.tolist() == velocirl.evaluate(agent, None, 8, seed=0).returns.tolist()
    ready = velocirl.make_vec(tank(), 2, device="python", scenario="disturbed")
    with pytest.raises(ValueError, match="a VectorEnv is made already: make it with make_vec"):
        velocirl.evaluate(hold, ready, 8, scenario="nominal")


def test_an_unknown_scenario_is_refused_before_anything_is_made():
    with pytest.raises(ValueError, match="Tank-v0 has no scenario 'windy'; there are nominal, disturbed, low"):
        PPO(tank(), scenario="windy")
    with pytest.raises(ValueError, match="FrozenLake-v1 has no scenario 'windy'; it has none"):
        QLearning("FrozenLake-v1", scenario="windy")
    with pytest.raises(ValueError, match="gym:CartPole-v1 has no scenario 'windy': native environments may have some"):
        PPO("gym:CartPole-v1", scenario="windy")


def test_an_agent_of_copies_that_were_made_in_a_scenario_trains_in_it():
    agent = PPO(velocirl.make_vec(tank(), 4, device="python", scenario="disturbed"), **SMALL)
    assert agent.source.params == {"noise": 0.5}
    agent = PPO(tank(), params={"noise": uniform(0, 1)}, scenario="disturbed", **SMALL)
    assert agent.source.params == {"noise": uniform(0, 1)}
