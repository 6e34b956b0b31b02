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
