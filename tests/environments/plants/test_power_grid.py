"""PowerGrid: its balances, its laws, and a trajectory against scipy's solver with equations written down again here."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from velocirl.engine import random
from velocirl.engine.records import with_attributes
from velocirl.environments.plants import power_grid, power_network
from velocirl.environments.plants.power_network import LINES

QUIET = {"load_deviation": 0.0, "wind_deviation": 0.0, "steepest_ramp": 0.0}
FROM = np.array([line[0] for line in LINES]) - 1
TO = np.array([line[1] for line in LINES]) - 1
RESISTANCE, REACTANCE = (np.array([line[k] for line in LINES]) for k in (2, 3))


class Grid:
    """One copy in plain Python."""

    def __init__(self, seed=0, **params):
        self.params = with_attributes(power_grid.Params.rows(1, {**QUIET, **params}))[0]
        self.state = with_attributes(power_grid.State.rows(1))[0]
        self.rng = random.streams(seed, 1)[0]
        power_grid.reset(self.state, self.params, self.rng)
        self.action = np.array([*self.state.power, 0.0, 1.03, 1.03, 1.03, 0.0], np.float32)

    def run(self, steps):
        for _ in range(steps):
            reward, _ = power_grid.step(self.state, self.params, self.action, self.rng)
        return reward


def injections(state):
    """What enters the network at each bus, without losses: the surplus stays in the units."""
    surplus = state.power.sum() + state.battery + state.wind - state.load.sum()
    injected = np.zeros(6)
    injected[:3] = state.power - np.array([0.4, 0.3, 0.3]) * surplus
    injected[3:] = -np.array([state.load[0], state.load[1] - state.wind, state.load[2] - state.battery])
    return injected


def test_flows_leave_a_bus_as_power_enters_it_and_obey_the_law_of_loops():
    grid = Grid(seed=1)
    grid.action[3] = 30.0
    grid.run(5)
    left = np.zeros(6)
    np.add.at(left, FROM, grid.state.flow)
    np.add.at(left, TO, -grid.state.flow)
    np.testing.assert_allclose(left, injections(grid.state), atol=1e-3)
    drops = dict(zip([line[:2] for line in LINES], REACTANCE * grid.state.flow, strict=True))
    np.testing.assert_allclose(drops[1, 4] + drops[4, 5] - drops[1, 5], 0.0, atol=1e-4)
    np.testing.assert_allclose(drops[3, 5] + drops[5, 6] - drops[3, 6], 0.0, atol=1e-4)


def test_reactive_power_is_in_balance():
    grid = Grid(seed=2)
    grid.action[4:] = (1.02, 1.05, 1.04, 60.0)
    grid.run(10)
    state = grid.state
    drawn_by_lines = 100.0 * (REACTANCE * (state.flow / 100.0) ** 2).sum()
    given = state.reactive.sum() + state.compensator
    assert given == pytest.approx(0.3 * state.load.sum() + drawn_by_lines, rel=1e-4)


def test_rounding_shows_nowhere_in_what_is_small():
    """Flows between towns and reactive power, small differences of what is large, as in double precision throughout."""
    for seed in range(20):
        state = Grid(seed, wind_deviation=8.0).state
        power, load, wind = (np.float64(part) for part in (state.power, state.load, state.wind))
        surplus = power.sum() + wind - load.sum()
        taken = power - np.float64(power_network.INERTIA_SHARE) * surplus
        flow = np.float64(power_network.FLOW_BY_POWER) @ [*taken, -load[0], wind - load[1], -load[2]]
        np.testing.assert_allclose(state.flow, flow, rtol=1e-7, atol=1e-7)

        drawn = np.float64(power_network.DRAWN_BY_FLOW) @ flow**2
        at_units = np.full(3, np.float64(np.float32(1.03)))
        sources = np.concatenate([at_units, -np.float64(np.float32(0.3)) * load / 100.0 - drawn[3:]])
        at_towns = np.float64(power_network.VOLTAGE_BY_SOURCE) @ sources
        given = np.float64(power_network.REACTIVE_BY_VOLTAGE) @ np.concatenate([at_units, at_towns]) + drawn[:3]
        np.testing.assert_allclose(state.reactive, 100.0 * given, rtol=2e-7)


def test_voltages_follow_reactive_control():
    grid = Grid(seed=3)
    grid.run(20)
    before = grid.state.voltage.copy()
    grid.action[7] = 50.0
    grid.run(20)
    change = grid.state.voltage - before
    assert change[4] == change.max() > 0.01  # most where the compensator is
    np.testing.assert_allclose(change[:3], 0.0, atol=1e-6)  # none where exciters hold the voltage


def test_droop_holds_the_frequency_where_nobody_sets_the_units_anew():
    grid = Grid(seed=4)
    grid.run(120)
    before = grid.state.frequency
    state, step = grid.state, 30.0
    for town in range(3):  # the town's usual load is its share of the level
        state.load[town] += 10.0
    state.load_level += step / 600.0
    grid.params.memory = 1e6
    losses = state.losses
    grid.run(120)
    stiffness = 750.0 / (0.05 * 50.0) + state.load.sum() / 50.0
    assert state.frequency - before == pytest.approx(-(step + state.losses - losses) / stiffness, rel=0.03)


def test_units_obey_their_ramps_and_limits():
    grid = Grid(seed=5, command_delay=0.0)
    before = grid.state.setpoint.copy()
    grid.action[:3] = (300.0, 0.0, 200.0)
    grid.run(1)
    np.testing.assert_allclose(grid.state.setpoint - before, [0.5, -2.0, 4.0], atol=1e-4)
    grid.action[:4] = (1e9, -1e9, 1e9, 1e9)
    for _ in range(600):
        grid.run(1)
        assert (grid.state.power >= 0.0).all()
        assert (grid.state.power <= [300.0, 250.0, 200.0]).all()
    assert grid.state.battery == pytest.approx(50.0)


def test_a_command_comes_late_by_its_delay():
    prompt, late = Grid(seed=6, command_delay=0.0, gas_ramp=100.0), Grid(seed=6, command_delay=3.0, gas_ramp=100.0)
    for grid in (prompt, late):
        grid.action[1] = 100.0
    prompt.run(1)
    late.run(3)
    assert prompt.state.setpoint[1] == pytest.approx(100.0)
    assert late.state.setpoint[1] > 110.0
    late.run(1)
    assert late.state.setpoint[1] == pytest.approx(100.0)


def test_the_battery_gives_what_it_holds_and_no_more():
    grid = Grid(seed=7)
    grid.action[3] = 50.0
    held, given = grid.state.charge, 0.0
    for _ in range(900):
        grid.run(1)
        given += grid.state.battery / 3600.0
    assert grid.state.charge == pytest.approx(held - given, abs=1e-3)
    grid.state.charge = 0.01
    grid.run(60)
    assert 0.0 <= grid.state.charge < 1e-3
    assert grid.state.battery < 0.5


def oracle(grid, seconds):
    """Frequency, powers and flows second by second, solved by scipy in double precision from the same beginning."""
    state, setpoint = grid.state, grid.state.setpoint.astype(float)
    load, wind, wanted = state.load.astype(float), float(state.wind), grid.action.astype(float)
    limits, lags, ramps = np.array([300.0, 250.0, 200.0]), np.array([6.0, 1.0, 2.0]), np.array([0.5, 2.0, 4.0])
    point = np.array([state.frequency, *state.power, state.battery], float)
    voltage, losses = np.array(state.voltage[:3], float), float(state.losses)
    rows = []
    for _ in range(seconds):
        setpoint = setpoint + np.clip(wanted[:3] - setpoint, -ramps, ramps)

        def slope(_, point, setpoint=setpoint, losses=losses):
            off = point[0] / 50.0 - 1.0
            balance = point[1:4].sum() + point[4] + wind - load.sum() * (1.0 + off) - losses
            target = np.clip(setpoint - limits * off / 0.05, 0.0, limits)
            return [50.0 * balance / (2 * 5.0 * 750.0), *((target - point[1:4]) / lags), (wanted[3] - point[4]) / 0.25]

        point = solve_ivp(slope, (0.0, 1.0), point, rtol=1e-9, atol=1e-9).y[:, -1]
        voltage = voltage + (wanted[4:7] - voltage) / (1.0 + 0.8)

        # Angles from the susceptances of the lines, bus 1 at zero.
        nodes = np.zeros((6, 6))
        for start, end, reactance in zip(FROM, TO, REACTANCE, strict=True):
            nodes[[start, end], [start, end]] += 1.0 / reactance
            nodes[[start, end], [end, start]] -= 1.0 / reactance
        power = np.zeros(6)
        power[:3] = point[1:4] - np.array([0.4, 0.3, 0.3]) * (point[1:].sum() + wind - load.sum())
        power[3:] = -load
        power[4] += wind
        power[5] += point[4]
        angles = np.concatenate([[0.0], np.linalg.solve(nodes[1:, 1:], power[1:])])
        flow = (angles[FROM] - angles[TO]) / REACTANCE
        at_buses = np.concatenate([voltage, np.zeros(3)])  # the towns' are not needed: lines begin at units or at 4, 5
        reactive = -0.3 * load / 100.0
        for start, end, reactance, one in zip(FROM, TO, REACTANCE, flow / 100.0, strict=True):
            for bus in (start, end):
                if bus >= 3:
                    reactive[bus - 3] -= 0.5 * reactance * one**2
        at_buses[3:] = np.linalg.solve(nodes[3:, 3:], reactive - nodes[3:, :3] @ voltage)
        losses = 100.0 * (RESISTANCE * (flow / 100.0 / at_buses[FROM]) ** 2).sum()
        rows.append([*point, *flow, *at_buses])
    return np.array(rows)


def test_a_trajectory_is_that_of_scipy():
    grid = Grid(seed=8, command_delay=0.0, wind_mean=80.0, memory=1e6, lowest_level=1.0, highest_level=1.0)
    grid.action[:7] = (260.0, 90.0, 190.0, -20.0, 1.05, 1.04, 1.02)
    expected = oracle(grid, 60)
    for row in expected:
        grid.run(1)
        state = grid.state
        assert state.frequency == pytest.approx(row[0], abs=1e-3)  # Hz
        np.testing.assert_allclose([*state.power, state.battery, *state.flow], row[1:13], atol=0.05)  # MW
        np.testing.assert_allclose(state.voltage, row[13:], atol=1e-4)
