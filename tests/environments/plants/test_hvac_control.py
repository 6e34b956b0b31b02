"""The building: its balances of heat and carbon dioxide, what its air handler can do, and its path beside scipy's."""

import numpy as np
import pytest
from one_copy import OneCopy
from scipy.integrate import solve_ivp

from velocirl.environments.plants.hvac_control import environment, outside_comfort

CALM = {"weather_deviation": 0.0, "cloud_deviation": 0.0, "attendance_deviation": 0.0}
PEOPLE, SUN = np.array([10.0, 14.0, 8.0]), np.array([5.0, 1.5, 0.5])
HEAT = 1005.0


def building(**params):
    return OneCopy(environment, **{**CALM, **params})


def zones(plant):
    return np.concatenate([plant.state.temperature, plant.state.mass_temperature, plant.state.co2]).astype(np.float64)


def at(plant, hour):
    """The building at an hour; what follows from it is told by a step of next to no time."""
    plant.write(time=hour * 3600.0)
    whole = float(plant.params.time_step)
    plant.params.time_step = 1e-3
    plant.step(0.0, 0.0, 0.0, 1.0, 0.3)
    plant.params.time_step = whole
    return plant


def test_a_steady_state_by_hand_stays():
    # Day without sun: all walls, air and carbon dioxide where the balances leave them.
    plant = at(building(sunshine=0.0, outdoor_swing=0.0, damper_lag=0.0, fan_delay=0.0, attendance_deviation=0.0), 12.0)
    p, flow, share = plant.params, 1.5, 0.4
    people, outdoors = 0.85 * PEOPLE, p.outdoor_mean
    temperature = np.full(3, 295.0)
    mass = (p.mass_conductance * temperature + p.wall_conductance * outdoors) / (
        p.mass_conductance + p.wall_conductance
    )
    lost = p.window_conductance * (temperature - outdoors) + p.mass_conductance * (temperature - mass)
    blown = flow / 3 * HEAT * (p.supply_setpoint - temperature)
    reheat = lost - blown - people * p.person_heat - 0.85 * p.equipment_heat
    made = 1e6 * p.person_co2 * people / (flow / 3 / 1.2)  # ppm by which each zone is above its supply
    co2 = 420.0 + made + made.mean() * (1 - share) / share
    assert (reheat > 0).all()
    plant.write(temperature=temperature, mass_temperature=mass, co2=co2)
    for _ in range(5):
        reward = plant.step(*reheat, flow, share)
    np.testing.assert_allclose(zones(plant), np.concatenate([temperature, mass, co2]), rtol=1e-4)
    mixed = share * outdoors + (1 - share) * 295.0
    assert plant.state.mixed_temperature == pytest.approx(mixed, rel=1e-5)
    electricity = (reheat.sum() + flow * HEAT * abs(289.0 - mixed)) / 3.0 + 5000.0 * (flow / 3.0) ** 3
    assert reward == pytest.approx(1 - electricity / 1e4 - 0.02 * 0.85 * 3 * 0.5**2, rel=1e-3)


def test_the_coil_of_the_air_handler_gives_what_it_can():
    plant = building(coil_capacity=5000.0, damper_lag=0.0, fan_delay=0.0)
    plant.step(0.0, 0.0, 0.0, 3.0, 0.5)
    s = plant.state
    assert s.supply_temperature < 289.0
    assert 3.0 * HEAT * (s.supply_temperature - s.mixed_temperature) == pytest.approx(5000.0, rel=1e-3)
    plant.step(0.0, 0.0, 0.0, 0.2, 0.5)
    assert plant.state.supply_temperature == 289.0


def test_a_trajectory_is_that_of_scipy():
    plant = at(building(), 6.0)
    p, draws = plant.params, np.random.default_rng(2)

    def slope(_, y, reheat, flow, share, supply, outdoors, radiation, occupancy):
        temperature, mass, co2 = y.reshape(3, 3)
        people, air = occupancy * PEOPLE, flow / 3.0
        stream = share * 420.0 + (1.0 - share) * co2.mean()
        heat = reheat + 75.0 * people + 900.0 * occupancy + air * HEAT * (supply - temperature)
        heat = heat + p.mass_conductance * (mass - temperature) - p.window_conductance * (temperature - outdoors)
        stored = SUN * radiation - p.mass_conductance * (mass - temperature) - p.wall_conductance * (mass - outdoors)
        fresh = air / 1.2 * (stream - co2) + 5.2 * people  # ppm m3/s
        return np.concatenate([heat / p.air_capacity, stored / p.mass_capacity, fresh / p.volume])

    exact = zones(plant)
    for k in range(60):
        if k % 6 == 0:
            action = draws.uniform([0, 0, 0, 0.5, 0.1], [4000, 4000, 4000, 2.5, 0.6])
        weather = plant.read("outdoor_temperature", "radiation", "occupancy")  # before the step, that it is for
        plant.step(*action)
        s = plant.state
        held = (s.reheat.astype(float), *plant.read("supply_flow", "outdoor_share", "supply_temperature"), *weather)
        exact = solve_ivp(slope, (0.0, 300.0), exact, args=held, rtol=1e-9, atol=1e-9).y[:, -1]
        np.testing.assert_allclose(zones(plant), exact, rtol=5e-4)
    assert s.occupancy > 0.5
    assert s.co2.max() > 500.0


def test_days_have_their_hours():
    plant = building()
    hours = {
        hour: at(plant, hour).read("outdoor_temperature", "radiation", "occupancy") for hour in (3, 6.5, 12, 15, 21)
    }
    assert hours[3][0] == pytest.approx(274.0, abs=0.01)
    assert hours[15][0] == pytest.approx(282.0, abs=0.01)
    assert hours[12][1] == pytest.approx(350.0 * 0.7, rel=1e-3)
    assert [hours[hour][2] > 0 for hour in hours] == [False, False, True, True, False]
    plant.write(time=86400.0 - 300.0)
    plant.step(0.0, 0.0, 0.0, 1.0, 0.3)
    assert plant.state.time == 0.0


def test_comfort_is_asked_for_while_people_are_there():
    plant = at(building(), 12.0).write(temperature=[292.4, 295.0, 299.5])
    assert outside_comfort(plant.state, plant.params) == pytest.approx(0.6, rel=1e-3)
    plant.write(occupancy=0.0)
    assert outside_comfort(plant.state, plant.params) == 0.0
