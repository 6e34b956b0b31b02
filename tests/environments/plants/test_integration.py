"""Integration of all plants at the corners of their declared parameter ranges, against scipy's solver; and stocks."""

from functools import partial
from types import ModuleType
from typing import NamedTuple

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import brentq

import velocirl
from velocirl.controllers import bound
from velocirl.engine import random
from velocirl.engine.records import with_attributes
from velocirl.environments.plants import (
    chemical_reactor,
    hvac_control,
    power_grid,
    robot_assembly,
    steel_annealing,
    water_treatment,
)

SEVERAL, MANY = 12, 200


class Case(NamedTuple):
    """A plant: what its slope is about, what of a step it takes as given, and how exact each kind of value must be."""

    plant: ModuleType
    values: tuple[str, ...]
    given: tuple[str, ...]  # fields that a step moves before it integrates
    within: float  # of the range of each value
    extremes: dict[str, tuple[float, float]]  # between which a value is kept by the plant


CASES = {
    "ChemicalReactor-v0": Case(
        chemical_reactor,
        ("temperature", "jacket_temperature", "reactant", "product", "level", "gas", "activity"),
        ("feed_flow", "coolant_flow", "vent_opening"),
        2e-3,
        {"level": (0.05, 1.8), "reactant": (0.0, 4000.0), "product": (0.0, 4000.0), "gas": (0.0, 1e4)},
    ),
    "HVACControl-v0": Case(
        hvac_control,
        ("temperature", "mass_temperature", "co2"),
        ("reheat", "supply_flow", "outdoor_share", "supply_temperature"),
        1e-4,
        {"temperature": (240.0, 330.0), "mass_temperature": (240.0, 330.0), "co2": (0.0, 5000.0)},
    ),
    "WaterTreatment-v0": Case(
        water_treatment,
        ("carbon", "alkalinity", "settled_turbidity", "deposit", "level", "well_turbidity"),
        ("alum_dose", "caustic_dose", "flow", "wash_share"),
        5e-3,
        {"level": (0.1, 5.0)},
    ),
    "SteelAnnealing-v0": Case(
        steel_annealing, ("early", "late", "tubes"), ("power", "speed", "cooling_flow"), 5e-3,
        {"early": (250.0, 1700.0), "late": (250.0, 1700.0), "tubes": (250.0, 1700.0)},
    ),
}  # fmt: skip


def corners(plant, count, seed=2):
    """Parameters at the ends of their ranges, and some between."""
    draws, found = np.random.default_rng(seed), {}
    for field, (low, high) in plant.params.bounds.items():
        ends = draws.choice([low, high], count)
        found[field] = np.where(draws.random(count) < 0.7, ends, draws.uniform(low, high, count))
    return found


def operated(name, count, steps):
    """Copies at the corners after each of some steps of random actions, each held for a while: states and params."""
    plants = velocirl.make_vec(
        name, count, seed=1, params=corners(velocirl.make_vec(name, 1, device="python").environment, count),
        device="python" if count <= SEVERAL else "cpu",
    )  # fmt: skip
    plants.reset()
    draws, space = np.random.default_rng(3), plants.single_action_space
    for step in range(steps):
        if step % 5 == 0:
            ends = np.where(draws.random((count, *space.shape)) < 0.5, space.low, space.high)
            mixed = draws.uniform(space.low, space.high, ends.shape)
            action = np.where(draws.random(ends.shape) < 0.5, ends, mixed).astype(np.float32)
        found = plants.read(("state", "params"))
        yield with_attributes(found["state"].copy()), with_attributes(found["params"].copy()), action
        plants.step(action)


def flat(state, fields):
    return np.concatenate([np.ravel(getattr(state, field)) for field in fields]).astype(np.float64)


def nested(name, y):
    """Values as the slope of a plant takes them."""
    if name == "HVACControl-v0":
        return tuple(map(tuple, y.reshape(3, 3)))
    return (tuple(y[:5]), tuple(y[5:10]), (*y[10:], 0.0)) if name == "SteelAnnealing-v0" else tuple(y)


def one_step(name, state, params, action):
    """Values after a step of the plant, and after scipy's."""
    case = CASES[name]
    before = with_attributes(state.reshape(1).copy())[0]
    start = flat(state, case.values)
    case.plant.environment.step(state, params, action, random.streams(5, 1)[0])
    for field in case.given:
        if np.ndim(getattr(state, field)):
            getattr(before, field)[:] = getattr(state, field)
        else:
            setattr(before, field, getattr(state, field))

    def slope(_, y):
        parts = case.plant.slope(params, before, nested(name, y))
        return np.concatenate([np.ravel(part) for part in parts])[: len(y)]

    solved = solve_ivp(slope, (0.0, float(params.time_step)), start, method="LSODA", rtol=1e-7, atol=1e-7).y[:, -1]
    ends = [case.extremes.get(field, (-np.inf, np.inf)) for field in case.values]
    sizes = [np.size(getattr(state, field)) for field in case.values]
    low, high = (np.repeat([end[k] for end in ends], sizes) for k in (0, 1))
    return flat(state, case.values), np.clip(solved, low, high)


def check_steps(name, count, steps):
    found, exact = [], []
    for states, params, actions in operated(name, count, steps):
        for copy in range(count):
            got, solved = one_step(name, states[copy], params[copy], actions[copy])
            lost = name == "ChemicalReactor-v0" and solved[0] > 390.0
            assert not lost or got[0] > 390.0  # a runaway is one, and ends the episode
            if not lost:
                found.append(got)
                exact.append(solved)
    scale = np.maximum(np.abs(exact).max(axis=0), 1e-6)
    np.testing.assert_allclose(found / scale, exact / scale, atol=CASES[name].within)
    return np.array(found), np.array(exact)


@pytest.mark.parametrize("name", CASES)
def test_a_step_at_the_corners_of_all_ranges_is_that_of_scipy(name):
    check_steps(name, SEVERAL, 12)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_steps_at_many_corners_are_those_of_scipy(name):
    found, exact = check_steps(name, MANY, 40)
    assert np.abs(found - exact).mean(axis=0).max() < 0.05


def test_co2_in_the_smallest_rooms_comes_to_rest():
    """It read 0, 5000, 0 while a step was longer than the air of a small room stays in it."""
    plants = velocirl.make_vec("HVACControl-v0", 1, params={"volume": 50.0, "time_step": 600.0}, device="python")
    plants.reset(seed=0)
    levels = []
    for _ in range(40):
        seen, *_ = plants.step(np.array([[2e3, 2e3, 2e3, 3.0, 0.5]], np.float32))
        levels.append(seen[0, 3:6])
    assert np.all(np.array(levels) >= 419.9)
    assert np.abs(np.diff(levels[5:], axis=0)).max() < 1.0


def test_the_ph_is_that_of_a_root_finder_at_every_corner():
    first, second = water_treatment.FIRST_ACIDITY, water_treatment.SECOND_ACIDITY

    def charge(ph, carbon, alkalinity):
        h = 10.0 ** (3.0 - ph)
        shares = (first * h + 2 * first * second) / (h * h + first * h + first * second)
        return carbon * shares + water_treatment.WATER_PRODUCT / h - h - alkalinity

    off = []
    for states, _, _ in operated("WaterTreatment-v0", SEVERAL, 40):
        for state in states:
            exact = brentq(charge, -2.0, 16.0, args=(float(state.carbon), float(state.alkalinity)))
            off.append(state.ph - np.clip(exact, 3.0, 12.0))
    assert np.abs(off).max() < 5e-3


def check_grid(count, steps):
    """Frequency, turbines and battery in every second that begins within the critical band."""
    off = []
    for states, params, actions in operated("PowerGrid-v0", count, steps):
        for state, p, action in zip(states, params, actions, strict=True):
            start, losses, charge = grid_values(state), float(state.losses), float(state.charge)
            power_grid.step(state, p, action, random.streams(5, 1)[0])
            battery = np.clip(np.clip(action[3], -50.0, 50.0), -(25.0 - charge) * 3600.0, charge * 3600.0)
            demand = float(state.load.sum())
            told = (*state.setpoint, float(battery), state.wind - demand - losses, demand)
            slope = partial(grid_slope, p, told)
            exact = solve_ivp(slope, (0.0, 1.0), start, method="LSODA", rtol=1e-8, atol=1e-8).y[:, -1]
            if abs(exact[0] - 50.0) < 1.0:
                off.append(grid_values(state) - exact)
    off = np.abs(off).max(axis=0)
    assert off[0] < 0.02  # Hz
    assert off[1:].max() < 3.0  # MW


def grid_values(state):
    return np.array([state.frequency, *state.power, state.battery], np.float64)


def grid_slope(params, told, _, y):
    return power_grid.slope(params, tuple(y), told)


def test_a_second_of_the_grid_is_that_of_scipy_at_corners():
    check_grid(SEVERAL, 10)


@pytest.mark.slow
def test_seconds_of_the_grid_are_those_of_scipy_at_many_corners():
    check_grid(MANY, 20)


def check_arm(count, steps):
    """The arm in steps of its controller, disturbed so that the peg meets table, chamfer and walls."""
    plant = robot_assembly.environment
    arms = velocirl.make_vec(
        plant.id, count, seed=1, params=corners(plant, count), device="python" if count <= SEVERAL else "cpu"
    )
    seen, _ = arms.reset()
    controller, memory, ended = bound(plant.controller, plant), None, np.ones(count, np.bool_)
    draws, most, tips, speeds = np.random.default_rng(0), arms.single_action_space.high, [], []
    for step in range(steps):
        action, memory = controller.predict(seen, memory, ended)
        action = np.clip(action + 0.1 * most * draws.normal(size=action.shape), -most, most).astype(np.float32)
        found = arms.read(("state", "params"))
        states, params = with_attributes(found["state"].copy()), with_attributes(found["params"].copy())
        seen, _, terminated, truncated, _ = arms.step(action)
        ended = terminated | truncated
        after = with_attributes(arms.read(("state",))["state"].copy())
        for copy in np.flatnonzero(~ended & ((after["strength"] > 1.0) | (step % 20 == 0))):
            state = states[copy]
            start = np.concatenate([state.angle, state.velocity])
            state.torque[:], state.cable[:] = after[copy].torque, after[copy].cable
            slope = partial(arm_slope, state, params[copy])
            exact = solve_ivp(slope, (0.0, 0.01), start, method="LSODA", rtol=1e-8, atol=1e-10).y[:, -1]
            if np.abs(exact[:7]).max() < 2.9 and np.abs(exact[7:]).max() < 6.0:  # neither at a stop nor too fast
                tips.append(np.subtract(tip_of(after[copy].angle), tip_of(exact[:7])))
                speeds.append(after[copy].velocity - exact[7:])
    assert np.abs(tips).max() < 5e-4  # m
    assert np.percentile(np.abs(speeds), 99) < 0.05  # rad/s: contacts begin and end within a step


def arm_slope(state, params, _, y):
    return np.concatenate([y[7:], robot_assembly.acceleration(state, params, tuple(y[:7]), tuple(y[7:]))])


def tip_of(angles):
    return robot_assembly.pose(tuple(angles))[3]


def test_a_step_of_the_arm_is_that_of_scipy_at_corners():
    check_arm(6, 40)


@pytest.mark.slow
def test_steps_of_the_arm_are_those_of_scipy_at_many_corners():
    check_arm(20, 300)


def test_a_reactor_with_its_feed_shut_sells_no_more_than_it_holds():
    """It sold product from a level that its model kept at 5 cm."""
    plants = velocirl.make_vec(
        "ChemicalReactor-v0", 1, device="python", max_episode_steps=-1,
        params={"reactant_cost": 0.0, "coolant_cost": 0.0, "vent_cost": 0.0, "stock_value": 0.0},
    )  # fmt: skip
    plants.reset(seed=0)
    held = with_attributes(plants.read(("state",))["state"])[0]
    could_sell = held.level * (held.product + held.reactant)
    could_sell += (0.004 * 5.0 * 1.0) * 2000.0  # what flows in while the valve closes, and turns into product at best
    sold = 0.0
    for _ in range(1000):
        _, rewards, *_ = plants.step(np.array([[0.0, 2.0, 0.2]], np.float32))
        sold += 9.0 * 5.0 * rewards[0]
    assert sold < could_sell
    assert rewards[0] == pytest.approx(0.0, abs=1e-3)
