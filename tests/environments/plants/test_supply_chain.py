"""SupplyChain against a plain NumPy reference that keeps a calendar of arrivals, and the conservation of pallets."""

from collections import defaultdict

import numpy as np
import pytest
from one_copy import OneCopy

from velocirl.engine import random
from velocirl.environments.plants.instruments import noise
from velocirl.environments.plants.supply_chain import environment

MEAN = np.array([[12, 6], [8, 8], [10, 4], [6, 5]], float)  # stores, products
PRICE, MAKING = np.array([100.0, 160.0]), np.array([45.0, 80.0])


class Reference:
    """The same chain as arrays (stores, products), its goods under way as a calendar by the day of arrival."""

    def __init__(self, copy, production_time, shipping_time):
        state = copy.state
        self.warehouse, self.stock = state.warehouse.astype(float), state.stock.reshape(4, 2).astype(float)
        self.forecast, self.service, self.phase = state.forecast.reshape(4, 2).astype(float), 1.0, float(state.phase)
        self.production_time, self.shipping_time, self.day = production_time, shipping_time, 0
        self.to_warehouse, self.to_stores = defaultdict(lambda: np.zeros(2)), defaultdict(lambda: np.zeros((4, 2)))
        for age in range(4):  # what had been started and sent on the days before
            self.to_warehouse[production_time - 1 - age] += state.started[:, age]
            self.to_stores[shipping_time - 1 - age] += state.sent[:, age].reshape(4, 2)
        self.opening = self.value()

    def under_way(self):
        late = [goods for day, goods in self.to_stores.items() if day >= self.day]
        return sum(late, np.zeros((4, 2)))

    def value(self):
        made = sum((goods for day, goods in self.to_warehouse.items() if day >= self.day), np.zeros(2))
        return MAKING @ (made + self.warehouse + (self.under_way() + self.stock).sum(0))

    def step(self, make, send, chances):
        demands, reports = chances
        make = make * min(1.0, 100.0 / make.sum())
        self.to_warehouse[self.day + self.production_time] += make
        self.warehouse = self.warehouse + self.to_warehouse[self.day]
        send = send * np.minimum(1.0, self.warehouse / send.sum(0))
        self.warehouse = self.warehouse - send.sum(0)
        self.to_stores[self.day + self.shipping_time] += send
        arrived = self.to_stores[self.day]
        settled = np.minimum(np.maximum(-self.stock, 0.0), arrived)
        self.stock = self.stock + arrived

        level = 1.0 + 0.3 * np.sin(2 * np.pi * self.day / 90.0 + self.phase)
        demand = np.maximum(MEAN * level * (1.0 + 0.25 * demands), 0.0)
        self.forecast = self.forecast + (demand * (1.0 + 0.05 * reports) - self.forecast) / 8.0
        at_once = np.minimum(np.maximum(self.stock, 0.0), demand)
        self.stock = np.maximum(self.stock - demand, -3.0 * MEAN)
        self.service += (at_once.sum() / demand.sum() - self.service) / 11.0
        self.day += 1
        on_hand, owed = np.maximum(self.stock, 0.0).sum() + self.warehouse.sum(), np.maximum(-self.stock, 0.0).sum()
        income = (PRICE * (settled + at_once)).sum()
        profit = income - MAKING @ make - 4.0 * send.sum() - 2.0 * on_hand - 15.0 * owed
        if self.day % 180 == 0:  # the books are closed
            profit -= max(self.opening - self.value(), 0.0)
            self.opening = self.value()
        return profit / (PRICE @ MEAN.sum(0))


def draws_of(rng):
    """What a day will draw: the breakdown first, then for each slot its demand and its report."""
    rng = rng.copy()
    random.uniform(rng)
    drawn = np.array([[noise(rng), noise(rng)] for _ in range(8)], float)
    return drawn[:, 0].reshape(4, 2), drawn[:, 1].reshape(4, 2)


@pytest.mark.parametrize(("production_time", "shipping_time"), [(3, 2), (4, 1)])
def test_a_year_is_that_of_a_plain_reference(production_time, shipping_time):
    copy = OneCopy(environment, seed=1, production_time=production_time, shipping_time=shipping_time, sensor_noise=1.0)
    reference, actions = Reference(copy, production_time, shipping_time), np.random.default_rng(2)
    ran_dry = False
    for day in range(360):
        most = 0.9 if day // 40 % 2 else 0.4  # fat and lean times, so that all that is limited is met
        make, send = actions.uniform(0.0, [100.0, 60.0]) * most, actions.uniform(0.0, 40.0, (4, 2)) * most
        expected = reference.step(make, send, draws_of(copy.rng))
        reward = copy.step(*make, *send.ravel())
        assert reward == pytest.approx(expected, rel=1e-4, abs=1e-4)
        np.testing.assert_allclose(copy.state.warehouse, reference.warehouse, rtol=1e-4, atol=1e-2)
        np.testing.assert_allclose(copy.state.stock.reshape(4, 2), reference.stock, rtol=1e-4, atol=1e-2)
        np.testing.assert_allclose(copy.state.forecast.reshape(4, 2), reference.forecast, rtol=1e-4)
        assert copy.state.service == pytest.approx(reference.service, rel=1e-4)
        seen = copy.seen()
        in_transit = [[seen[f"in_transit_{store}{product}"] for product in "ab"] for store in range(1, 5)]
        np.testing.assert_allclose(in_transit, reference.under_way(), rtol=1e-4, atol=1e-3)
        ran_dry |= bool((reference.warehouse < 1e-6).any())
    assert ran_dry
    assert (reference.stock < 0.0).any() or reference.service < 0.99


def test_no_pallet_is_lost_or_made_on_the_way():
    copy = OneCopy(environment, seed=3, production_time=2.5, shipping_time=1.25, patience=10.0)
    for name in ("demand_deviation", "season_amplitude"):
        setattr(copy.params, name, 0.0)

    def pallets():
        seen = copy.seen()
        return sum(seen[name] for name in seen if not name.startswith("forecast"))

    before = pallets()
    for _ in range(60):
        copy.step(36.0, 23.0, *MEAN.ravel())  # as much as customers take
    assert pallets() == pytest.approx(before, rel=1e-4)


def test_a_broken_factory_makes_nothing():
    copy = OneCopy(environment, seed=4, breakdown_rate=1.0, breakdown_time=3)
    copy.step(50.0, 30.0, *MEAN.ravel())
    assert copy.state.broken == 3
    copy.params.breakdown_rate = 0.0
    for _ in range(2):
        copy.step(50.0, 30.0, *MEAN.ravel())
    assert copy.state.started[:, :3].max() == 0.0
    copy.step(50.0, 30.0, *MEAN.ravel())
    assert copy.state.started[:, 0].tolist() == [50.0, 30.0]
