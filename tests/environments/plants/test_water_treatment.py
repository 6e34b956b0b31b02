"""Water treatment: its chemistry against a root finder, its balances, its filters, and its path beside scipy's."""

import numpy as np
import pytest
from one_copy import OneCopy
from scipy.integrate import solve_ivp
from scipy.optimize import brentq

from velocirl.environments.plants.water_treatment import acidity, environment

CALM = {
    "raw_turbidity_deviation": 0.0, "raw_ph_deviation": 0.0, "raw_alkalinity_deviation": 0.0, "demand_deviation": 0.0,
}  # fmt: skip
WORKS = ("carbon", "alkalinity", "settled_turbidity", "deposit", "level", "well_turbidity")


def works(**params):
    return OneCopy(environment, **{**CALM, **params})


def balanced(carbon, alkalinity):
    """The pH at which charges balance, in mol/l as the textbooks have it."""
    first, second = 10**-6.35, 10**-10.33

    def charge(ph):
        h = 10.0**-ph
        shares = (first * h + 2 * first * second) / (h * h + first * h + first * second)
        return carbon / 1000 * shares + 1e-14 / h - h - alkalinity / 1000

    return brentq(charge, 2.0, 13.0, xtol=1e-12)


@pytest.mark.parametrize("carbon", [0.5, 0.9, 2.0])
@pytest.mark.parametrize("alkalinity", [0.1, 0.4, 0.48, 0.9, 1.5])
def test_the_ph_is_that_of_a_root_finder(carbon, alkalinity):
    assert acidity(carbon, alkalinity) == pytest.approx(balanced(carbon, alkalinity), abs=0.002)


def test_alum_takes_alkalinity_and_caustic_gives_it_back():
    plant = works(pump_lag=0.0, caustic_delay=0.0)
    for _ in range(60):
        plant.step(33.0, 0.2, 0.3, 0.0)
    carbon, alkalinity = plant.read("carbon", "alkalinity")
    assert alkalinity == pytest.approx(0.8 - 33.0 / 99.0 + 0.2, rel=1e-4)
    raw = balanced(carbon, 0.8)
    assert raw == pytest.approx(7.2, abs=0.01)  # raw water has the pH that it is said to have
    assert plant.state.ph == pytest.approx(balanced(carbon, alkalinity), abs=1e-3)


def test_the_well_keeps_what_comes_and_goes():
    plant = works(demand_swing=0.0, pump_lag=0.0)
    for _ in range(10):
        before = plant.read("level")[0]
        plant.step(28.0, 0.1, 0.4, 0.02)
        assert (plant.state.level - before) * 800.0 == pytest.approx(300.0 * (0.4 - 1.5 * 0.02 - 0.25), rel=1e-3)


def test_filters_clog_break_through_and_are_washed_clean():
    plant = works(pump_lag=0.0).write(settled_turbidity=4.0)
    seen = []
    for deposit in (0.0, 400.0, 800.0, 1000.0):
        plant.write(deposit=deposit)
        plant.step(28.0, 0.1, 0.3, 0.0)
        seen.append(plant.read("filtered_turbidity", "head_loss"))
    assert (np.diff(seen, axis=0) > 0).all()
    assert seen[0][0] == pytest.approx(0.05 * plant.state.settled_turbidity, rel=0.1)
    assert seen[-1][0] == pytest.approx(plant.state.settled_turbidity, rel=0.1)
    assert seen[-1][1] == pytest.approx(3e6 * 0.3 / 150.0 * 7.0, rel=0.01)
    plant.write(settled_turbidity=0.0, deposit=500.0)
    plant.step(60.0, 0.1, 0.05, 0.1)
    assert plant.state.deposit == pytest.approx(500.0 * np.exp(-0.1), rel=0.01)  # 300 s at a rate of 0.1 / 300 s


def test_a_trajectory_is_that_of_scipy():
    plant = works()
    p, draws = plant.params, np.random.default_rng(4)
    raw_carbon = 0.8 * (1 + 10 ** (6.35 - 7.2))

    def slope(_, y, alum, caustic, flow, wash, demand):
        carbon, alkalinity, settled, deposit, level, well = y
        ph = balanced(carbon, alkalinity)
        removed = 0.95 * alum / (alum + p.half_dose) * np.exp(-(((ph - 6.4) / 2.0) ** 2))
        filtered = settled * (1 - 0.95 * (1 - (deposit / p.filter_capacity) ** 4))
        made = flow - p.wash_flow * wash
        return [
            flow * (raw_carbon - carbon) / p.basin_volume,
            flow * (0.8 + caustic - alum / 99.0 - alkalinity) / p.basin_volume,
            flow * (20.0 * (1 - removed) - settled) / p.settler_volume,
            flow / p.filter_area * p.solids * (settled - filtered) - p.wash_rate * wash * deposit,
            (made - demand) / p.well_area,
            made * (filtered - well) / (p.well_area * level),
        ]

    exact, reached = plant.read(*WORKS), []
    for k in range(60):
        if k % 6 == 0:
            action = draws.uniform([10.0, 0.0, 0.2, 0.0], [45.0, 0.3, 0.35, 0.03])
        demand = plant.read("demand")
        plant.step(*action)
        held = (*plant.read("alum_dose", "caustic_dose", "flow", "wash_share"), *demand)
        exact = solve_ivp(slope, (0.0, 300.0), exact, args=held, rtol=1e-8, atol=1e-8).y[:, -1]
        np.testing.assert_allclose(plant.read(*WORKS), exact, rtol=2e-3)
        reached.append(plant.state.ph)
    assert np.ptp(reached) > 0.3
