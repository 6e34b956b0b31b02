"""The chemical reactor: its balances, its steady state, its valves and its interlock, and its path beside scipy's."""

import numpy as np
import pytest
from one_copy import OneCopy
from scipy.integrate import solve_ivp

from velocirl.environments.plants.chemical_reactor import COOLANT, FEED, VENT, environment

R = 8.314
CALM = {"feed_temperature_deviation": 0.0, "feed_concentration_deviation": 0.0, "coolant_temperature_deviation": 0.0}
VESSEL = ("temperature", "jacket_temperature", "reactant", "product", "level", "gas", "activity")


def reactor(**params):
    return OneCopy(environment, **{**CALM, **params})


def speed_up(p, temperature):
    return np.exp(p.activation_temperature * (1 / p.reference_temperature - 1 / temperature))


def test_a_closed_vessel_keeps_its_matter_and_its_energy():
    plant = reactor(outlet_coefficient=0.0, valve_lag=0.0, coolant_delay=0.0, trip_temperature=500.0)
    p, s = plant.params, plant.state
    plant.write(temperature=350.0, reactant=400.0, gas=50.0)

    def contents():
        volume = float(s.level)
        heat = p.heat_capacity * volume * s.temperature + p.jacket_mass * p.coolant_heat_capacity * s.jacket_temperature
        return volume * (s.reactant + s.product) + s.gas, heat, volume * s.reactant, s.gas

    before = np.array(contents(), np.float64)
    for _ in range(40):
        plant.step(0.0, 0.0, 0.0)
    matter, heat, reactant, gas = np.array(contents(), np.float64) - before
    assert reactant < -0.9 * before[2]
    assert gas > 1.0
    assert matter == pytest.approx(0.0, abs=1e-5 * before[0])
    assert heat == pytest.approx(-p.reaction_heat * reactant + p.decomposition_heat * gas, rel=0.01)


def test_a_steady_state_by_hand_stays():
    plant = reactor(catalyst_decay=0.0, valve_lag=0.0, coolant_delay=0.0)
    p, temperature, feed = plant.params, 352.0, 0.0042
    level = (feed / p.outlet_coefficient) ** 2
    rate = p.reaction_rate * speed_up(p, temperature)
    loss = p.decomposition_rate * speed_up(p, temperature) ** 2
    reactant = feed * p.feed_concentration / (feed + rate * level)
    product = rate * reactant * level / (feed + loss * level)
    heat = level * (p.reaction_heat * rate * reactant + p.decomposition_heat * loss * product)
    cooling = heat - feed * p.heat_capacity * (temperature - p.feed_temperature)
    jacket = temperature - cooling / (p.heat_transfer * level)
    coolant = cooling / (p.coolant_heat_capacity * (jacket - p.coolant_temperature))
    pressure = 3e5
    vent = level * loss * product / (p.vent_conductance * (pressure - p.ambient_pressure))
    gas = pressure * (2.0 - level) / (R * temperature)
    steady = np.array([temperature, jacket, reactant, product, level, gas, 1.0])
    plant.write(**dict(zip(VESSEL, steady, strict=True)))
    for _ in range(20):
        reward = plant.step(feed, coolant, vent)
    np.testing.assert_allclose(plant.read(*VESSEL), steady, rtol=2e-4)
    earned = feed * product - 0.5 * feed * reactant - 0.05 * coolant - 0.5 * level * loss * product
    assert reward == pytest.approx(earned / p.full_production, rel=1e-3)


def test_a_trajectory_is_that_of_scipy():
    plant = reactor(fouling=0.2)
    p, draws = plant.params, np.random.default_rng(3)

    def slope(_, y, q, w, s):
        temperature, jacket, a, b, level, gas, activity = y
        k1 = p.reaction_rate * speed_up(p, temperature) * activity
        k2 = p.decomposition_rate * speed_up(p, temperature) ** 2
        mass = p.heat_capacity * level
        exchanged = 0.8 * p.heat_transfer * level * (temperature - jacket)
        pressure = gas * R * temperature / (2.0 - level)
        lift = min(max((pressure - p.relief_pressure) / (0.5 * p.relief_pressure), 0.0), 1.0)
        heat = level * (p.reaction_heat * k1 * a + p.decomposition_heat * k2 * b)
        return [
            (q * p.heat_capacity * (300.0 - temperature) + heat - exchanged) / mass,
            (w * p.coolant_heat_capacity * (290.0 - jacket) + exchanged) / (p.jacket_mass * p.coolant_heat_capacity),
            q * (2000.0 - a) / level - k1 * a,
            -q * b / level + k1 * a - k2 * b,
            q - p.outlet_coefficient * np.sqrt(level),
            level * k2 * b - (s * p.vent_conductance + lift * p.relief_conductance) * (pressure - p.ambient_pressure),
            -p.catalyst_decay * speed_up(p, temperature) ** 2 * activity,
        ]

    exact, furthest = plant.read(*VESSEL), 0.0
    for k in range(80):
        if k % 10 == 0:
            action = draws.uniform([0.003, 2.0, 0.0], [0.006, 4.0, 0.3])
        plant.step(*action)
        valves = plant.read("feed_flow", "coolant_flow", "vent_opening")
        exact = solve_ivp(slope, (0.0, 5.0), exact, args=tuple(valves), method="LSODA", rtol=1e-9, atol=1e-9).y[:, -1]
        np.testing.assert_allclose(plant.read(*VESSEL), exact, rtol=1e-3)
        furthest = max(furthest, abs(exact[0] - 350.0))
    assert furthest > 5.0
    assert plant.state.pressure == pytest.approx(exact[5] * R * exact[0] / (2.0 - exact[4]), rel=1e-3)


def test_valves_follow_with_lag_and_dead_time_and_only_as_far_as_they_go():
    plant = reactor(valve_lag=5.0, coolant_delay=10.0)
    feed, coolant = plant.read("feed_flow", "coolant_flow")
    for k in range(4):
        plant.step(2 * FEED, 2 * COOLANT, -1.0)
        feed += (FEED - feed) / 2  # a lag as long as a step: half of the way in each
        coolant += (COOLANT - coolant) / 2 if k >= 2 else 0.0  # and coolant begins two steps later
        np.testing.assert_allclose(plant.read("feed_flow", "coolant_flow"), (feed, coolant), rtol=1e-5)
    for _ in range(60):
        plant.step(2 * FEED, 2 * COOLANT, 2 * VENT)
    np.testing.assert_allclose(
        plant.read("feed_flow", "coolant_flow", "vent_opening"), (FEED, COOLANT, VENT), rtol=1e-5
    )


def test_the_interlock_overrules_the_controller_until_it_is_cool():
    plant = reactor(valve_lag=0.0, coolant_delay=0.0).write(temperature=379.0)
    plant.step(0.004, 0.0, 0.0)
    assert plant.state.shutdown == 0
    plant.write(temperature=380.1)
    plant.step(0.004, 0.0, 0.0)
    assert plant.state.shutdown == plant.seen()["shutdown"] == 1
    assert plant.read("feed_flow", "coolant_flow", "vent_opening").tolist() == [0.0, COOLANT, VENT]
    plant.write(temperature=345.5)
    plant.step(0.004, 0.0, 0.0)
    assert plant.state.shutdown == 1
    plant.write(temperature=344.9)
    plant.step(0.004, 0.0, 0.0)
    assert plant.read("shutdown", "feed_flow").tolist() == pytest.approx([0, 0.004])
    plant.write(gas=400.0, pressure=8e5)
    plant.step(0.004, 0.0, 0.0)
    assert plant.state.shutdown == 1


def test_a_cold_reactor_gathers_what_runs_away_later():
    plant = reactor().write(temperature=325.0, reactant=1600.0, product=300.0)
    hottest = 0.0
    for _ in range(150):
        plant.step(0.004, 0.0, 0.1)
        hottest = max(hottest, plant.state.temperature)
    assert hottest > 390.0  # although the interlock shut the feed at 380 K


def test_sensors_err_by_what_is_stated_and_only_where_asked():
    exact, noisy = reactor(), reactor(sensor_noise=1.0)
    assert exact.seen()["temperature"] == exact.state.temperature
    errors = []
    for _ in range(400):
        noisy.step(0.004, 2.9, 0.03)
        seen = noisy.seen()
        errors.append([seen["temperature"] - noisy.state.temperature, seen["pressure"] - noisy.state.pressure])
    np.testing.assert_allclose(np.std(errors, axis=0), [0.3, 2e3], rtol=0.15)
    np.testing.assert_allclose(np.mean(errors, axis=0) / [0.3, 2e3], 0.0, atol=0.2)
