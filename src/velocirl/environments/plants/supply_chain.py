"""SupplyChain: a factory, a warehouse and four stores serve an uncertain demand for two products.

Every day the planner orders the production of each product, and the shipments from the warehouse to each store. Goods
arrive after a lead time. Demand that a store cannot serve at once is backordered; customers wait for some time and are
then lost. Stock costs money every day and takes room; backorders cost money. A day, for each product:

    arrive     warehouse: stock += started(t - L_production)       stores: stock += sent(t - L_shipping)
    ship       sent = wanted min(1, stock / sum(wanted))           stock -= sum(sent) in the warehouse
    make       started = wanted min(1, capacity / sum(wanted)), summed over both products
    serve      net stock += arrived - demand, at least -patience daily demands
    demand     mean (1 + amplitude sin(2 pi t / season + phase)) (1 + deviation noise), at least 0

Net stock is stock on hand less backorders. With goods in transit it is the inventory position, which a base-stock
policy lifts to a fixed level. The warehouse's position is that of its echelon: all stock in the warehouse, in the
stores, and in between (Clark and Scarf, "Optimal policies for a multi-echelon inventory problem", 1960; Zipkin,
"Foundations of Inventory Management", 2000). A fixed level must suffice for the whole season; a planner who follows the
forecast needs less stock.

Units: pallets, days (d), EUR. The reward is the profit of a day as a fraction of the mean income. Stock missing at the
end of an episode is charged at its making cost.
"""

from math import pi, sin

import numpy as np

from velocirl import Box, Constraint, Environment, between, float32, int32, random, record
from velocirl.controllers import BaseStock, Order
from velocirl.engine.canvas import AMBER, INK, RED, SLATE, TEAL
from velocirl.environments.plants.instruments import clipped, noise, shortfall

DAY = 86400.0  # s, a step
PRODUCTS, STORES, SLOTS = 2, 4, 8  # a slot is a product in a store: slot = PRODUCTS * store + product
MEAN_DEMAND = np.array([12.0, 6.0, 8.0, 8.0, 10.0, 4.0, 6.0, 5.0])  # pallets/d in each slot
TOTAL_DEMAND = (36.0, 23.0)  # pallets/d of each product
PRICE, MAKING_COST = np.array([100.0, 160.0]), (45.0, 80.0)  # EUR per pallet
MEAN_INCOME = TOTAL_DEMAND[0] * PRICE[0] + TOTAL_DEMAND[1] * PRICE[1]  # EUR/d
MOST_MADE, MOST_SENT = (100.0, 60.0), 40.0  # pallets/d, maximum orders
EPISODE = 180  # days
REPORT_ERROR = 0.05  # fraction of a demand
MOST_STOCK = 2000.0  # pallets of a product, physical limit

SIGNALS = {  # name: unit, range
    **{f"warehouse_stock_{p}": ("pallets", 0.0, MOST_STOCK) for p in "ab"},
    **{f"in_production_{p}": ("pallets", 0.0, 500.0) for p in "ab"},
    **{f"stock_{store}{p}": ("pallets", -200.0, MOST_STOCK) for store in range(1, STORES + 1) for p in "ab"},
    **{f"in_transit_{store}{p}": ("pallets", 0.0, 200.0) for store in range(1, STORES + 1) for p in "ab"},
    **{f"forecast_{store}{p}": ("pallets/d", 0.0, 100.0) for store in range(1, STORES + 1) for p in "ab"},
}
LEAST, MOST = (np.array([signal[k] for signal in SIGNALS.values()], np.float32) for k in (1, 2))
ACTUATORS = {
    **{f"make_{p}": ("pallets/d", most) for p, most in zip("ab", MOST_MADE, strict=True)},
    **{f"send_{store}{p}": ("pallets/d", MOST_SENT) for store in range(1, STORES + 1) for p in "ab"},
}
HIGHEST = np.array([most for _, most in ACTUATORS.values()], np.float32)


@record
class State:
    warehouse: float32[2]  # pallets on hand of each product
    started: float32[2, 4]  # pallets started by the factory on the last days, newest first
    stock: float32[8]  # pallets on hand in each slot, less backorders
    sent: float32[8, 4]  # pallets sent on the last days, newest first
    forecast: float32[8]  # pallets/d, smoothed demand
    service: float32  # fraction of demand served at once, smoothed
    phase: float32  # of the season
    day: int32 = between(0, 2**31 - 1)
    opening: float32  # EUR, cost of all stock when last recorded
    elapsed: int32 = between(0, 2**31 - 1)  # days since then
    broken: float32  # remaining days of a breakdown


@record
class Params:
    production_time: float32 = between(0.0, 4.0, default=3.0)  # d
    shipping_time: float32 = between(0.0, 4.0, default=2.0)  # d
    capacity: float32 = between(0.0, 200.0, default=100.0)  # pallets/d, of both products
    breakdown_rate: float32 = between(0.0, 1.0, default=0.0)  # 1/d
    breakdown_time: float32 = between(1.0, 30.0, default=3.0)  # duration, in d
    demand_deviation: float32 = between(0.0, 1.0, default=0.25)  # as a fraction of the demand
    season: float32 = between(7.0, 1000.0, default=90.0)  # d
    season_amplitude: float32 = between(0.0, 0.9, default=0.3)
    patience: float32 = between(0.0, 10.0, default=3.0)  # d of mean demand that customers accept as backorders
    sensor_noise: float32 = between(0.0, 10.0, default=0.0)  # 1: reported demands have an error of 5%
    smoothing_time: float32 = between(0.0, 100.0, default=7.0)  # d, of forecasts
    service_time: float32 = between(0.0, 100.0, default=10.0)  # d, of the service level
    holding_cost: float32 = 2.0  # EUR/d per pallet in a store or the warehouse
    waiting_cost: float32 = 15.0  # EUR/d per backordered pallet
    shipping_cost: float32 = 4.0  # EUR per pallet
    warehouse_space: float32 = between(0.0, 1e6, default=400.0)  # pallets
    store_space: float32 = between(0.0, 1e6, default=150.0)  # pallets


def reset(state, params, rng):
    state.phase = random.uniform(rng, 0.0, 2.0 * pi)
    state.day, state.broken, state.service = 0, 0.0, 1.0
    level = season_level(state, params)
    for product in range(PRODUCTS):
        state.warehouse[product] = TOTAL_DEMAND[product] * random.uniform(rng, 2.0, 4.0)
        for age in range(4):
            state.started[product, age] = TOTAL_DEMAND[product] * level
    for slot in range(SLOTS):
        state.stock[slot] = MEAN_DEMAND[slot] * random.uniform(rng, 1.5, 3.0)
        state.forecast[slot] = MEAN_DEMAND[slot] * level
        for age in range(4):
            state.sent[slot, age] = MEAN_DEMAND[slot] * level
    state.opening, state.elapsed = stock_value(state, params), 0


def step(state, params, action, rng):
    profit = make(state, params, action, rng) + ship(state, params, action)
    for product in range(PRODUCTS):
        profit -= params.holding_cost * state.warehouse[product]
    profit += serve(state, params, rng)
    state.day += 1
    profit -= shortfall(state, stock_value(state, params), EPISODE)
    return profit / MEAN_INCOME, False


def season_level(state, params):
    """Return today's demand as a fraction of its yearly mean."""
    return 1.0 + params.season_amplitude * sin(2.0 * pi * state.day / params.season + state.phase)


def make(state, params, action, rng):
    """Start orders within the capacity, and take in finished goods; returns the profit."""
    breaks = random.uniform(rng) < params.breakdown_rate
    state.broken = params.breakdown_time if breaks else max(state.broken - 1.0, 0.0)
    first, second = clipped(action[0], 0.0, MOST_MADE[0]), clipped(action[1], 0.0, MOST_MADE[1])
    share = 0.0 if state.broken > 0.0 else min(1.0, params.capacity / max(first + second, 1e-6))
    first, second = share * first, share * second
    done = arriving(state.started, 0, first, params.production_time)
    state.warehouse[0] = min(state.warehouse[0] + done, MOST_STOCK)
    done = arriving(state.started, 1, second, params.production_time)
    state.warehouse[1] = min(state.warehouse[1] + done, MOST_STOCK)
    return -MAKING_COST[0] * first - MAKING_COST[1] * second


def ship(state, params, action):
    """Ship orders, scaled down equally if stock is short, and take in arrivals at the stores.

    Returns the profit: backorders are paid for on arrival.
    """
    return ship_product(state, params, action, 0) + ship_product(state, params, action, 1)


def ship_product(state, params, action, product):
    """Ship one product; stores are written out, so that fleets are vectorized."""
    wanted = 0.0
    for store in range(STORES):
        wanted += clipped(action[2 + PRODUCTS * store + product], 0.0, MOST_SENT)
    share = min(1.0, state.warehouse[product] / max(wanted, 1e-6))
    profit = send(state, params, share, action, product) + send(state, params, share, action, product + 2)
    profit += send(state, params, share, action, product + 4) + send(state, params, share, action, product + 6)
    state.warehouse[product] = max(state.warehouse[product] - share * wanted, 0.0)
    return profit


def send(state, params, share, action, slot):
    """Ship a fraction of a store's order, and take in its arrivals; returns the profit."""
    sent = share * clipped(action[2 + slot], 0.0, MOST_SENT)
    arrived = arriving(state.sent, slot, sent, params.shipping_time)
    profit = PRICE[slot % PRODUCTS] * clipped(-state.stock[slot], 0.0, arrived) - params.shipping_cost * sent
    state.stock[slot] = min(state.stock[slot] + arrived, MOST_STOCK)
    return profit


def serve(state, params, rng):
    """Serve customers in all stores and update reported demands; returns the profit."""
    level = season_level(state, params)
    first, second = serve_in(state, params, rng, level, 0), serve_in(state, params, rng, level, 1)
    third, fourth = serve_in(state, params, rng, level, 2), serve_in(state, params, rng, level, 3)
    fifth, sixth = serve_in(state, params, rng, level, 4), serve_in(state, params, rng, level, 5)
    seventh, eighth = serve_in(state, params, rng, level, 6), serve_in(state, params, rng, level, 7)
    asked = first[1] + second[1] + third[1] + fourth[1] + fifth[1] + sixth[1] + seventh[1] + eighth[1]
    at_once = first[2] + second[2] + third[2] + fourth[2] + fifth[2] + sixth[2] + seventh[2] + eighth[2]
    state.service += (at_once / max(asked, 1e-6) - state.service) / (params.service_time + 1.0)
    return first[0] + second[0] + third[0] + fourth[0] + fifth[0] + sixth[0] + seventh[0] + eighth[0]


def serve_in(state, params, rng, level, slot):
    """Serve one product's customers in one store; returns the profit, the demand, and the part served at once."""
    smoothing = 1.0 / (params.smoothing_time + 1.0)
    demand = MEAN_DEMAND[slot] * max(level * (1.0 + params.demand_deviation * noise(rng)), 0.0)
    reported = demand * max(1.0 + REPORT_ERROR * params.sensor_noise * noise(rng), 0.0)
    state.forecast[slot] += smoothing * (reported - state.forecast[slot])
    on_hand, owed = max(state.stock[slot], 0.0), max(-state.stock[slot], 0.0)
    at_once = min(on_hand, demand)
    owed_now = min(owed + demand - at_once, params.patience * MEAN_DEMAND[slot])
    state.stock[slot] = on_hand - at_once - owed_now
    profit = PRICE[slot % PRODUCTS] * at_once
    profit -= params.holding_cost * (on_hand - at_once) + params.waiting_cost * owed_now
    return profit, demand, at_once


def arriving(sent, k, newest, time):
    """Return today's arrivals of goods sent `time` days ago, up to 4, and record today's shipment `newest`.

    The first of the four columns is yesterday. With a fractional `time`, that fraction of the goods arrives a day
    later.
    """
    arrived = (1.0 - clipped(time, 0.0, 1.0)) * newest
    for age in range(4):
        arrived += (clipped(time - age, 0.0, 1.0) - clipped(time - age - 1.0, 0.0, 1.0)) * sent[k, age]
    for age in range(3):
        sent[k, 3 - age] = sent[k, 2 - age]
    sent[k, 0] = newest
    return arrived


def under_way(sent, k, time):
    """Return the pallets sent on the last days that have not arrived."""
    total = 0.0
    for age in range(4):
        total += clipped(time - age, 0.0, 1.0) * sent[k, age]
    return total


def observe(state, params, observation):
    for product in range(PRODUCTS):
        observation[product] = state.warehouse[product]
        observation[2 + product] = under_way(state.started, product, params.production_time)
    for slot in range(SLOTS):
        observation[4 + slot] = state.stock[slot]
        observation[12 + slot] = under_way(state.sent, slot, params.shipping_time)
        observation[20 + slot] = clipped(state.forecast[slot], 0.0, 100.0)


def stock_value(state, params):
    """Return the making cost of all pallets in the warehouse, in the stores and in transit, in EUR."""
    return stock_of(state, params, 0) * MAKING_COST[0] + stock_of(state, params, 1) * MAKING_COST[1]


def stock_of(state, params, product):
    """Return the pallets of a product at all locations; backorders count as negative."""
    total = state.warehouse[product] + under_way(state.started, product, params.production_time)
    for store in range(STORES):
        slot = PRODUCTS * store + product
        total += state.stock[slot] + under_way(state.sent, slot, params.shipping_time)
    return total


def warehouse_stock(state, params):
    """Return the pallets in the warehouse, of both products."""
    return state.warehouse[0] + state.warehouse[1]


def fullest_store(state, params):
    """Return the pallets in the fullest store."""
    most = 0.0
    for store in range(STORES):
        first, second = state.stock[PRODUCTS * store], state.stock[PRODUCTS * store + 1]
        most = max(most, max(first, 0.0) + max(second, 0.0))
    return most


def owed(state, params):
    """Return the backordered pallets of all stores."""
    total = 0.0
    for slot in range(SLOTS):
        total += max(-state.stock[slot], 0.0)
    return total


def draw(state, params, canvas):
    canvas.view(0.0, 6.0, -1.0, 3.0)
    canvas.rectangle(0.2, 0.0, 1.2, 0.8, RED if state.broken > 0.0 else SLATE)
    for product, color in enumerate((TEAL, AMBER)):
        left = 1.6 + 0.4 * product
        canvas.rectangle(left, 0.0, left + 0.35, state.warehouse[product] / 100.0, color)
        for store in range(STORES):
            stock, left = state.stock[PRODUCTS * store + product], 2.8 + 0.8 * store + 0.35 * product
            canvas.rectangle(
                left, min(stock, 0.0) / 30.0, left + 0.3, max(stock, 0.0) / 30.0, color if stock > 0 else RED
            )
    canvas.line(0.0, 0.0, 6.0, 0.0, 0.03, INK)


def base_stock(made, sent):
    """Return a base-stock policy with levels in days of mean demand, for each product's echelon and for each slot."""
    orders = []
    for product, total in zip("ab", TOTAL_DEMAND, strict=True):
        echelon = [f"warehouse_stock_{product}", f"in_production_{product}"]
        for store in range(1, STORES + 1):
            echelon += [f"stock_{store}{product}", f"in_transit_{store}{product}"]
            slot = PRODUCTS * (store - 1) + "ab".index(product)
            position = (f"stock_{store}{product}", f"in_transit_{store}{product}")
            orders.append(Order(f"send_{store}{product}", sent * float(MEAN_DEMAND[slot]), plus=position))
        orders.append(Order(f"make_{product}", made * total, plus=tuple(echelon)))
    return BaseStock(*orders)


environment = Environment(
    "SupplyChain-v0",
    state=State,
    params=Params,
    observation=Box(LEAST, MOST),
    action=Box(np.zeros_like(HIGHEST), HIGHEST),
    max_steps=EPISODE,
    time_step=DAY,
    reset=reset,
    step=step,
    observe=observe,
    draw=draw,
    signals={name: signal[0] for name, signal in SIGNALS.items()},
    actuators={name: actuator[0] for name, actuator in ACTUATORS.items()},
    constraints=(
        Constraint("owed", value=owed, high=80.0, unit="pallets", penalty=10.0, critical=True),
        Constraint("service", value="service", low=0.9, unit="1", penalty=1.0),
        Constraint("warehouse_space", value=warehouse_stock, high="warehouse_space", unit="pallets", penalty=1.0),
        Constraint("store_space", value=fullest_store, high="store_space", unit="pallets", penalty=1.0),
    ),
    scenarios={
        "nominal": {},
        "disturbed": {"demand_deviation": 0.5, "season_amplitude": 0.4, "breakdown_rate": 0.01, "sensor_noise": 1.0},
        "degraded": {"capacity": 80.0, "production_time": 4.0, "shipping_time": 3.0},
    },
    controller=base_stock(made=11.0, sent=5.0),
    presets={
        "ppo": {
            "total_steps": 4_000_000,
            "num_envs": 64,
            "horizon": 180,
            "minibatch_size": 512,
            "epochs": 5,
            "learning_rate": 1e-3,
            "normalise_observations": True,
            "normalise_rewards": True,
            "gamma": 0.97,
            "log_deviation": -1.0,
            "entropy_coefficient": 0.0,
        },
    },
)
