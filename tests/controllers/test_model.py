"""A fleet as a model: branches of a plant, and how they are judged."""

import numpy as np
import pytest
from cart import cart
from lag import plant
from tank import tank

import velocirl
from velocirl.controllers.model import FleetModel, Outcome, Readings, mistaken
from velocirl.controllers.mppi import judged


def test_branches_go_on_from_the_states_of_their_plants():
    model = FleetModel(cart, 2, device="python")
    states = cart.state.rows(3, {"place": [0.0, 0.1, 0.2], "speed": [0.0, 1.0, 0.0]})
    model.place(states, cart.params.rows(3, {"force": [1.0, 1.0, 2.0]}))
    model.step(np.array([[0.0], [1.0], [0.0], [-1.0], [0.0], [1.0]]))
    # speed' = speed + 0.1 force a, place' = place + 0.1 speed'
    np.testing.assert_allclose(model.observation[:, 0], [0.0, 0.01, 0.2, 0.19, 0.2, 0.22], atol=1e-6)
    model.place(states, cart.params.rows(3))  # and back again
    model.step(np.zeros((6, 1)))
    np.testing.assert_allclose(model.observation[::2, 0], [0.0, 0.2, 0.2], atol=1e-6)


def test_nothing_counts_after_an_end():
    model = FleetModel(cart, 1, device="python")
    model.place(cart.state.rows(1, {"place": 0.95, "speed": 1.0}), cart.params.rows(1))
    first, second = model.step(np.array([[1.0]])), model.step(np.array([[1.0]]))
    assert first.alive.all()
    assert first.costs.tolist() == [[1.0]]
    assert not second.alive.any()


def test_branches_of_one_plant_see_the_same_noise_and_plants_do_not():
    model = FleetModel(tank(), 4, device="python", seed=5)
    model.place(tank().state.rows(3, {"level": 1.0}), tank().params.rows(3, {"noise": 0.1}))
    model.step(np.zeros((12, 1)))
    levels = model.observation[:, 0].reshape(3, 4)
    assert (levels == levels[:, :1]).all()
    assert len(set(levels[:, 0].tolist())) == 3


def outcome(alive, rewards, costs):
    return Outcome(np.array(alive), np.array(rewards, np.float32), np.array(costs, np.float32)[:, None])


def test_returns_with_costs_and_ends_by_hand():
    steps = [
        outcome([True, True, True], [1.0, -3.0, 2.0], [0, 0, 1]),
        outcome([True, False, True], [1.0, 99.0, 2.0], [0, 1, 0]),
    ]
    # The second ended with -3 and goes on with the worst there was; the range of returns is from -6 to 4.
    np.testing.assert_allclose(judged(steps), [2.0, -6.0, 4.0 - 1.0 * 11.0])
    np.testing.assert_allclose(judged(steps, gamma=0.5), [1.5, -4.5, 3.0 - 1.0 * 8.5])


def test_a_reward_that_is_no_number_is_the_worst():
    steps = [outcome([True, True], [np.nan, -1.0], [0, 0]), outcome([True, True], [5.0, -2.0], [0, 0])]
    np.testing.assert_allclose(judged(steps), [3.0, -3.0])


def test_parameters_that_are_wrong_within_their_bounds():
    own = tank()
    wrong = mistaken(own, own.params.rows(2, {"noise": 0.95}), {"noise": 1.1, "highest": 0.9})
    np.testing.assert_allclose(wrong["noise"], 1.0)
    np.testing.assert_allclose(wrong["highest"], 1.8)
    with pytest.raises(ValueError, match="mismatch names 'nois'"):
        mistaken(own, own.params.rows(1), {"nois": 1.1})


def test_where_states_come_from():
    envs = velocirl.make_vec(plant, 2, device="python", params={"lag": [10.0, 30.0]})
    envs.reset(seed=0)
    observations, *_ = envs.step(np.array([[1.0], [2.0]], np.float32))
    states, params = Readings(envs, None, None, {"lag": 2.0}, "MPPI").read(observations)
    np.testing.assert_allclose(states["commands"][:, 4], [1.0, 2.0])
    np.testing.assert_allclose(params["lag"], [20.0, 60.0])
    np.testing.assert_allclose(
        envs.read(("params",))["params"]["lag"], [10.0, 30.0]
    )  # those of the plant are as they were

    def estimate(seen):
        return {"output": seen[:, 0], "commands": 0.5}

    states, params = Readings("Lag-v0", None, estimate, None, "MPPI").read(np.array([[3.0], [4.0]]))
    np.testing.assert_allclose(states["output"], [3.0, 4.0])
    np.testing.assert_allclose(states["commands"], 0.5)
    with pytest.raises(ValueError, match="needs the state of its plant: bind it to the copies"):
        Readings("Lag-v0", None, None, None, "MPPI").read(np.zeros((1, 1)))
    with pytest.raises(ValueError, match="there are 2 copies, and observations of 3"):
        Readings(envs, None, None, None, "MPPI").read(np.zeros((3, 1)))
