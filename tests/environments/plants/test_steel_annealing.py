"""The annealing furnace: its balance of heat, its strip, its coils, and its path beside scipy's."""

import numpy as np
import pytest
from one_copy import OneCopy
from scipy.integrate import solve_ivp

from velocirl.environments.plants.steel_annealing import environment

CALM = {"entry_deviation": 0.0, "thickness_spread": 0.0, "soak_spread": 0.0}
POWERS = (2.9e6, 2.5e6, 1.85e6, 0.95e6)
SIGMA = 5.67e-8


def furnace(**params):
    return OneCopy(environment, **{**CALM, **params})


def temperatures(plant):
    s = plant.state
    return np.concatenate([np.stack([s.early, s.late], axis=1).ravel(), s.tubes]).astype(np.float64)


def test_what_the_burners_give_the_strip_takes_or_the_walls_lose():
    plant = furnace(tube_capacity=1e6)  # which settles soon
    for _ in range(500):
        plant.step(*POWERS, 1.9, 0.7)
    settled = temperatures(plant)
    plant.step(*POWERS, 1.9, 0.7)
    np.testing.assert_allclose(temperatures(plant), settled, rtol=1e-5)
    lost = 500.0 * (plant.state.tubes - 300.0).sum()
    carried = 1.9 * 0.8e-3 * 1.2 * 7850.0 * 600.0 * (plant.state.late[3] - 310.0)
    assert lost + carried == pytest.approx(sum(POWERS), rel=1e-3)
    # Between the jets it falls towards the gas, by the same factor in each half.
    fall = (plant.state.early[4] - 320.0) / (plant.state.late[3] - 320.0)
    assert fall == pytest.approx(1.0 / (1.0 + 2 * 90.0 * 0.7 / (7850.0 * 600.0 * 0.8e-3) * 20.0 / 1.9), rel=1e-3)
    assert (plant.state.late[4] - 320.0) / (plant.state.early[4] - 320.0) == pytest.approx(fall, rel=1e-3)


def test_a_trajectory_is_that_of_scipy():
    plant = furnace()
    p, draws = plant.params, np.random.default_rng(5)

    def slope(_, y, power, speed, cooling, thickness):
        strip, tubes = y[:10], y[10:]
        before = np.concatenate([[310.0], strip[:-1]])
        flux = 0.25 * SIGMA * (np.repeat(tubes, 2) ** 4 - strip[:8] ** 4)
        surface = np.concatenate([flux, -90.0 * cooling * (strip[8:] - 320.0)])
        taken = 1.2 * 20.0 * 2 * flux.reshape(4, 2).sum(axis=1)
        return np.concatenate([
            speed * (before - strip) / 20.0 + 2 * surface / (7850.0 * 600.0 * thickness),
            (power - p.wall_loss * (tubes - 300.0) - taken) / p.tube_capacity,
        ])  # fmt: skip

    exact, changed = temperatures(plant), 0.0
    first = exact.copy()
    for k in range(80):
        if k % 10 == 0:
            action = draws.uniform([1e6, 1e6, 1e6, 0.3e6, 1.2, 0.3], [3.5e6, 3.5e6, 2.5e6, 1.5e6, 2.8, 0.9])
        thickness = plant.read("thickness")[0]
        plant.step(*action)
        held = (plant.state.power.astype(float), *plant.read("speed", "cooling_flow"), thickness)
        exact = solve_ivp(slope, (0.0, 5.0), exact, args=held, rtol=1e-9, atol=1e-7).y[:, -1]
        np.testing.assert_allclose(temperatures(plant), exact, rtol=1e-3)
        changed = max(changed, np.abs(exact - first).max())
    assert changed > 50.0


def test_coils_follow_each_other():
    plant = furnace(coil_length=200.0, thickness_spread=0.1e-3, soak_spread=20.0)
    plant.write(coil_left=25.0, speed=2.0, thickness=0.8e-3, coil_thickness=0.8e-3)
    asked = plant.read("coil_thickness", "soak_target")
    plant.step(*POWERS, 2.0, 0.7)
    plant.step(*POWERS, 2.0, 0.7)
    np.testing.assert_array_equal(plant.read("coil_thickness", "soak_target"), asked)
    plant.step(*POWERS, 2.0, 0.7)  # 30 m have run
    new = plant.read("coil_thickness", "soak_target")
    assert (new != asked).all()
    assert plant.state.coil_left == pytest.approx(195.0)
    # The seam passes the furnace, 160 m, in 80 s: of those a step is 5.
    assert plant.state.thickness == pytest.approx(asked[0] + (new[0] - asked[0]) * 5.0 / 85.0, rel=1e-5)


def test_burners_have_a_dead_time_and_no_more_than_their_power():
    plant = furnace(burner_lag=0.0, burner_delay=10.0)
    before = plant.state.power.copy()
    for expected in (before, before, np.full(4, 4e6)):
        plant.step(9e6, 9e6, 9e6, 9e6, 2.0, 0.7)
        np.testing.assert_allclose(plant.state.power, expected, rtol=1e-6)
    assert plant.step(9e6, 9e6, 9e6, 9e6, 99.0, 9.0) < 1.5
    for _ in range(100):
        plant.step(9e6, 9e6, 9e6, 9e6, 99.0, 9.0)
    np.testing.assert_allclose(plant.read("speed", "cooling_flow"), (4.0, 1.0))
