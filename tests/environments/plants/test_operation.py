"""What plants are to those who operate them: controllers that keep limits, scenarios, disturbances."""

import numpy as np
import pytest

import velocirl
from velocirl.controllers import Random, bound
from velocirl.engine.canvas import Canvas
from velocirl.engine.registry import find

PLANTS = {
    "ChemicalReactor-v0": (12, 3),
    "HVACControl-v0": (18, 5),
    "WaterTreatment-v0": (15, 4),
    "SteelAnnealing-v0": (20, 6),
    "PowerGrid-v0": (32, 8),
    "RobotAssembly-v0": (24, 7),
    "SupplyChain-v0": (28, 10),
    "IndustrialBenchmark-v0": (6, 3),
}
TIME_STEPS = {  # s
    "ChemicalReactor-v0": 5.0,
    "HVACControl-v0": 300.0,
    "WaterTreatment-v0": 300.0,
    "SteelAnnealing-v0": 5.0,
    "PowerGrid-v0": 1.0,
    "RobotAssembly-v0": 0.01,
    "SupplyChain-v0": 86400.0,
    "IndustrialBenchmark-v0": 1.0,
}
UNCHANGED = "IndustrialBenchmark-v0"  # whose rewards, episodes and sensors are those of its paper
COPIES = 48

every_plant = pytest.mark.parametrize("name", PLANTS)


def episode(name, controller, seed, scenario="nominal"):
    """The return of the first episode of each copy, the costs of its constraints, and how many steps it took."""
    policy, plants = bound(controller, name), velocirl.make_vec(name, COPIES, seed=seed, scenario=scenario)
    seen, _ = plants.reset()
    state, ended = None, np.ones(COPIES, np.bool_)
    returns, costs, lengths = np.zeros(COPIES), 0.0, np.zeros(COPIES)
    running = ended.copy()
    for _ in range(plants.environment.max_steps):
        action, state = policy.predict(seen, state, ended)
        seen, rewards, terminations, truncations, infos = plants.step(action)
        returns, lengths = returns + running * rewards, lengths + running
        costs = costs + running[:, None] * infos["costs"]
        ended = terminations | truncations
        running = running & ~ended
    return returns, costs, lengths


@every_plant
def test_it_has_what_it_is_said_to_have(name):
    plant = find(name)
    assert (*plant.observation.shape, *plant.action.shape) == PLANTS[name]
    assert (len(plant.signals), len(plant.actuators)) == PLANTS[name]
    assert plant.time_step == TIME_STEPS[name]
    assert set(plant.scenarios) == {"nominal", "disturbed", "degraded"}
    assert any(limit.critical for limit in plant.constraints) == (name != UNCHANGED)
    assert all(limit.unit for limit in plant.constraints)


@every_plant
def test_its_controller_keeps_all_limits_and_chance_does_not(name):
    plant = find(name)
    for seed in (1, 2, 3):
        returns, costs, lengths = episode(name, plant.controller, seed)
        np.testing.assert_array_equal(costs, 0.0)
        np.testing.assert_array_equal(lengths, plant.max_steps)
        assert (returns < plant.max_steps).all()
    by_chance, violated, _ = episode(name, Random(seed=0), 1)
    assert (violated.sum(axis=1) > 0).all()
    assert by_chance.mean() < returns.mean() - 50.0


DRAINS = {  # what a plant's last steps are told instead, for how many of them, and which signal must stay above what
    "ChemicalReactor-v0": ({0: 0.0}, 40, ("level", 0.52)),
    "WaterTreatment-v0": ({2: 0.05}, 60, ("level", 1.15)),
    "SteelAnnealing-v0": ({0: 0.0, 1: 0.0, 2: 0.0, 3: 0.0}, 12, ("speed", 0.0)),
    "PowerGrid-v0": ({3: 50.0, 1: 130.0}, 590, ("battery_charge", 2.8)),
    "SupplyChain-v0": ({0: 0.0, 1: 0.0}, 8, ("warehouse_stock_a", 0.0)),
}


@pytest.mark.parametrize("name", DRAINS)
def test_draining_a_store_at_the_end_of_an_episode_does_not_pay(name):
    """It earned between 1 and 9% of an episode's return, without a limit in its way."""
    plant = find(name)
    changed, steps, (signal, least) = DRAINS[name]
    shipped, place, taken = bound(plant.controller, name), list(plant.signals).index(signal), [0]

    class Draining:
        def predict(self, seen, state=None, episode_start=None):
            action, state = shipped.predict(seen, state, episode_start)
            taken[0] += 1
            if taken[0] > plant.max_steps - steps:
                for actuator, value in changed.items():
                    action[:, actuator] = np.where(seen[:, place] > least, value, action[:, actuator])
            return action, state

    kept, _, _ = episode(name, shipped, 3)
    drained, _, _ = episode(name, Draining(), 3)
    assert drained.mean() < kept.mean() + 0.005 * abs(kept.mean())


def test_heat_that_a_building_loses_in_a_day_is_paid_for():
    returns = {}
    for price in (True, False):
        building = velocirl.make_vec("HVACControl-v0", 1, seed=0, device="python", params={"efficiency": 1.0})
        building.reset()
        for _ in range(287):
            building.step(np.array([[0.0, 0.0, 0.0, 0.2, 0.0]], np.float32))
        if not price:
            building.copies.state["opening"] = -1e12
        returns[price] = building.step(np.array([[0.0, 0.0, 0.0, 0.2, 0.0]], np.float32))[1][0]
    assert returns[True] < returns[False] - 30.0


@every_plant
def test_scenarios_are_harder_and_reproducible(name):
    plant = find(name)
    nominal, _, _ = episode(name, plant.controller, 4)
    degraded, _, _ = episode(name, plant.controller, 4, "degraded")
    assert degraded.mean() < nominal.mean()
    disturbed, costs, _ = episode(name, plant.controller, 4, "disturbed")
    again, same, _ = episode(name, plant.controller, 4, "disturbed")
    np.testing.assert_array_equal(disturbed, again)
    np.testing.assert_array_equal(costs, same)
    other, _, _ = episode(name, plant.controller, 5, "disturbed")
    assert not np.array_equal(disturbed, other)


@every_plant
def test_a_parameter_beyond_what_is_physical_is_refused(name):
    parameter = "setpoint" if name == UNCHANGED else "sensor_noise"
    with pytest.raises(ValueError, match=rf"Params.{parameter} must be from 0.0 to 10+.0, got -1"):
        velocirl.make_vec(name, 2, params={parameter: -1.0})
    with pytest.raises(ValueError, match="has no scenario 'nominl': did you mean 'nominal'"):
        velocirl.make_vec(name, 2, scenario="nominl")


@every_plant
def test_it_stays_finite_with_any_parameters_within_their_bounds(name):
    count, draws = 1000, np.random.default_rng(6)
    given = {}
    for field, (low, high) in find(name).params.bounds.items():
        ends = draws.choice([low, high], count)
        given[field] = np.where(draws.random(count) < 0.5, ends, draws.uniform(low, high, count))
    plants = velocirl.make_vec(name, count, seed=7, params=given)
    plants.reset()
    for _ in range(60):
        plants.run_randomly(5)
        assert plants.observation_space.contains(plants.copies.observation)
        assert np.isfinite(plants.copies.reward).all()


@every_plant
def test_its_picture_shows_what_happens(name):
    plants = velocirl.make_vec(name, 1, seed=0, device="python")
    plants.reset()
    pictures = []
    for action in (plants.action_space.low, plants.action_space.high):
        for _ in range(3):
            plants.step(action)
        canvas = Canvas()
        plants.environment.draw(
            plants.copies.state[0].view(np.recarray), plants.copies.params[0].view(np.recarray), canvas
        )
        pictures.append(canvas.pixels)
    assert len(np.unique(pictures[0].reshape(-1, 3), axis=0)) > 5
    assert (pictures[0] != pictures[1]).any()
