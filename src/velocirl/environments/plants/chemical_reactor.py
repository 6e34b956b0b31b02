"""Chemical reactor: maximize the production of a cooled, exothermic stirred tank without thermal runaway.

A feed of A reacts to the product B on a catalyst. B decomposes to gas, faster at higher temperature:

    A -> B,  r1 = k1 a cA        B -> C + gas,  r2 = k2 cB        k1 ~ g,  k2 ~ g^2,  g = exp(E/R (1/T0 - 1/T))

    A_c dh/dt       = q - q_out,                     q_out = c_v sqrt(h)        volume V = A_c h
    dcA/dt          = q (cA_feed - cA) / V - r1
    dcB/dt          = -q cB / V + r1 - r2
    rho cp V dT/dt  = rho cp q (T_feed - T) + V (H1 r1 + H2 r2) - U h (T - T_j)
    m_j c_w dT_j/dt = w c_w (T_w - T_j) + U h (T - T_j)
    dn/dt           = V r2 - (s K_v + s_r K_r) (p - p_0),      p = n R T / (A_c (H - h)),  s_r ~ p - p_r from 0 to 1
    da/dt           = -k_d g^2 a

Balances of a non-isothermal stirred tank with a jacket: Seborg, Edgar, Mellichamp and Doyle, "Process Dynamics and
Control", chapter 2; series reactions, multiple steady states and catalyst decay: Fogler, "Elements of Chemical Reaction
Engineering". Valves act with a lag, coolant also after a dead time, and are constant during a step. When temperature or
pressure exceed their trip points, an interlock that no controller can override shuts the feed and opens coolant and
vent until the reactor is cool. The reward is the value of the product less the cost of unreacted A, coolant and vented
gas, about 1 at full production. Contents missing at the end of an episode are charged. The reward increases with
temperature and level beyond the limits of their constraints. The dangerous state is a cold one: unreacted A accumulates
and later reacts all at once.
"""

from math import exp, sqrt

import numpy as np

from velocirl import Box, Constraint, Environment, between, float32, int32, random, record
from velocirl.controllers import PID, Loop
from velocirl.engine.canvas import AMBER, BLUE, INK, MIST, ORANGE, RED, SKY, SLATE, WHITE
from velocirl.environments.plants.instruments import clipped, delayed, drifted, lagged, noise, share_of, shortfall
from velocirl.environments.plants.pictures import blended

GAS_CONSTANT = 8.314  # J/(mol K)
FEED, COOLANT, VENT = 0.008, 6.0, 1.0  # valves fully open: m3/s, kg/s, fraction
COLDEST, HOTTEST = 250.0, 500.0  # K, valid range of thermometers and model
FASTEST = 420.0  # K, above which rates stay constant: the reactor is lost by then, and the integration stays stable
MIXING = 0.9  # 1/s, above which stirring limits a reaction: reactants must mix first
SHALLOWEST, DEEPEST, FULL = 0.05, 1.8, 2.0  # m: liquid that always remains, overflow, and height of the vessel
MOUTH = 0.05  # m, height of the outlet above the liquid that always remains
LIFT = 0.5  # fraction above its set pressure at which the relief valve is fully open
MOST_GAS = 1e4  # mol, at which any vessel has burst
EPISODE = 360  # steps, half an hour
LEVELS = (0.5, 1.6)  # m, limits of the level
RICHEST, STRONGEST = 4000.0, 2e6  # mol/m3 and Pa: full scale of analyzers and manometer
SIGNALS = {  # name: unit, range of the instrument
    "temperature": ("K", COLDEST, HOTTEST),
    "jacket_temperature": ("K", COLDEST, HOTTEST),
    "reactant": ("mol/m3", 0.0, RICHEST),
    "product": ("mol/m3", 0.0, RICHEST),
    "pressure": ("Pa", 0.0, STRONGEST),
    "level": ("m", 0.0, FULL),
    "feed_flow": ("m3/s", 0.0, FEED),
    "coolant_flow": ("kg/s", 0.0, COOLANT),
    "vent_opening": ("1", 0.0, VENT),
    "feed_temperature": ("K", COLDEST, HOTTEST),
    "coolant_temperature": ("K", COLDEST, HOTTEST),
    "shutdown": ("1", 0.0, 1.0),  # 1 while the interlock is active
}


@record
class State:
    temperature: float32  # K
    jacket_temperature: float32  # K
    reactant: float32  # mol/m3 of A
    product: float32  # mol/m3 of B
    level: float32  # m
    gas: float32  # mol above the liquid
    pressure: float32  # Pa
    activity: float32  # of the catalyst, 1 when fresh
    feed_flow: float32  # m3/s, actual flow
    coolant_flow: float32  # kg/s
    vent_opening: float32  # 0 to 1
    coolant_commands: float32[4]  # kg/s, newest first: commands still within the dead time
    feed_temperature: float32  # K
    feed_concentration: float32  # mol/m3
    coolant_temperature: float32  # K
    shutdown: int32 = between(0, 1)  # 1 while the interlock is active
    opening: float32  # mol, value of the contents when last recorded
    elapsed: int32 = between(0, 2**31 - 1)  # steps since then
    sensor_errors: float32[6]  # of the first six signals, in standard deviations


@record
class Params:
    time_step: float32 = between(0.5, 5.0, default=5.0)  # s
    cross_section: float32 = between(0.5, 5.0, default=1.0)  # m2
    outlet_coefficient: float32 = between(1e-3, 1e-2, default=0.004)  # m3/s at a level of 1 m
    heat_capacity: float32 = between(2e6, 5e6, default=2.7e6)  # J/(m3 K): density 900 kg/m3 times 3000 J/(kg K)
    reference_temperature: float32 = between(348.0, 400.0, default=350.0)  # K, at which the three rates are given
    activation_temperature: float32 = between(0.0, 9500.0, default=9000.0)  # K: activation energy over gas constant
    reaction_rate: float32 = between(0.0, 0.02, default=0.012)  # 1/s, of A -> B on a fresh catalyst
    decomposition_rate: float32 = between(0.0, 6e-5, default=3e-5)  # 1/s, of B -> C + gas
    catalyst_decay: float32 = between(0.0, 2e-5, default=6e-6)  # 1/s
    reaction_heat: float32 = between(0.0, 1.8e5, default=1.5e5)  # J/mol, released
    decomposition_heat: float32 = between(0.0, 1e5, default=0.8e5)  # J/mol, released
    heat_transfer: float32 = between(0.0, 3e4, default=12e3)  # W/(K m): jacket and coil, per meter of level
    fouling: float32 = between(0.0, 1.0, default=0.0)  # fraction of the heat transfer that is lost
    jacket_mass: float32 = between(100.0, 1000.0, default=250.0)  # kg of coolant
    coolant_heat_capacity: float32 = between(2000.0, 5000.0, default=4180.0)  # J/(kg K)
    vent_conductance: float32 = between(0.0, 2e-5, default=8e-6)  # mol/(s Pa), fully open
    relief_conductance: float32 = between(0.0, 2e-5, default=1e-5)  # mol/(s Pa), fully open
    relief_pressure: float32 = between(2e5, 1e6, default=6e5)  # Pa, at which the relief valve starts to open
    ambient_pressure: float32 = between(5e4, 1.5e5, default=1.013e5)  # Pa
    catalyst_activity: float32 = between(0.0, 1.0, default=1.0)  # at reset
    valve_lag: float32 = between(0.0, 120.0, default=5.0)  # s
    coolant_delay: float32 = between(0.0, 20.0, default=5.0)  # s, four time steps at most
    trip_temperature: float32 = between(COLDEST, HOTTEST, default=380.0)  # K
    trip_pressure: float32 = between(2e5, STRONGEST, default=7e5)  # Pa
    release_temperature: float32 = between(COLDEST, HOTTEST, default=345.0)  # K, at which the interlock releases
    feed_temperature: float32 = between(280.0, 340.0, default=300.0)  # K
    feed_temperature_deviation: float32 = between(0.0, 5.0, default=0.5)  # K
    feed_concentration: float32 = between(0.0, 2500.0, default=2000.0)  # mol/m3
    feed_concentration_deviation: float32 = between(0.0, 200.0, default=10.0)  # mol/m3
    coolant_temperature: float32 = between(275.0, 320.0, default=290.0)  # K
    coolant_temperature_deviation: float32 = between(0.0, 5.0, default=0.5)  # K
    disturbance_time: float32 = between(1.0, 1e5, default=300.0)  # s, correlation time of disturbances
    sensor_noise: float32 = between(0.0, 10.0, default=0.0)  # 1: 0.3 K, 10 mol/m3, 2 kPa and 5 mm
    full_production: float32 = between(1.0, 100.0, default=9.0)  # mol/s of B, which earns 1 per step
    reactant_cost: float32 = between(0.0, 10.0, default=0.5)  # per mol of A that leaves, in mol of B
    coolant_cost: float32 = between(0.0, 1.0, default=0.05)  # per kg, in mol of B
    vent_cost: float32 = between(0.0, 10.0, default=0.5)  # per mol of gas, in mol of B
    stock_value: float32 = between(0.0, 1.0, default=1.0)  # per mol that an episode takes from the contents


def reset(state, params, rng):
    state.temperature = random.uniform(rng, 347.0, 353.0)
    state.jacket_temperature = random.uniform(rng, 317.0, 323.0)
    state.reactant = random.uniform(rng, 450.0, 530.0)
    state.product = random.uniform(rng, 1450.0, 1530.0)
    state.level = random.uniform(rng, 0.9, 1.1)
    state.pressure = random.uniform(rng, 2.5e5, 3.5e5)
    state.gas = state.pressure * headspace(params, state.level) / (GAS_CONSTANT * state.temperature)
    state.activity = params.catalyst_activity
    state.feed_flow = 0.004
    state.coolant_flow = 2.9
    state.vent_opening = 0.03
    for k in range(4):
        state.coolant_commands[k] = state.coolant_flow
    state.feed_temperature = params.feed_temperature + params.feed_temperature_deviation * noise(rng)
    concentration = params.feed_concentration + params.feed_concentration_deviation * noise(rng)
    state.feed_concentration = max(concentration, 0.0)
    state.coolant_temperature = params.coolant_temperature + params.coolant_temperature_deviation * noise(rng)
    state.shutdown = 0
    state.opening, state.elapsed = contents(state, params), 0
    read_sensors(state, rng)


def step(state, params, action, rng):
    move_valves(state, params, action)
    react(state, params, params.time_step / 2.0)
    react(state, params, params.time_step / 2.0)
    drift(state, params, rng)
    read_sensors(state, rng)
    taken = params.stock_value * shortfall(state, contents(state, params), EPISODE) / params.time_step  # mol/s
    return profit(state, params) - taken / params.full_production, False


def react(state, params, time):
    """Advance the vessel by `time`: one step of the fourth-order Runge-Kutta method."""
    start = (
        state.temperature,
        state.jacket_temperature,
        state.reactant,
        state.product,
        state.level,
        state.gas,
        state.activity,
    )
    slope1 = slope(params, state, start)
    slope2 = slope(params, state, ahead(start, slope1, time / 2.0))
    slope3 = slope(params, state, ahead(start, slope2, time / 2.0))
    slope4 = slope(params, state, ahead(start, slope3, time))
    end = ahead(ahead(start, slope1, time / 6.0), slope2, time / 3.0)
    end = ahead(ahead(end, slope3, time / 3.0), slope4, time / 6.0)

    state.temperature = clipped(end[0], COLDEST, HOTTEST)
    state.jacket_temperature = clipped(end[1], COLDEST, HOTTEST)
    state.reactant = clipped(end[2], 0.0, RICHEST)
    state.product = clipped(end[3], 0.0, RICHEST)
    state.level = clipped(end[4], SHALLOWEST, DEEPEST)
    state.gas = clipped(end[5], 0.0, MOST_GAS)
    state.pressure = min(pressure(params, state.temperature, state.level, state.gas), STRONGEST)
    state.activity = clipped(end[6], 0.0, 1.0)


def move_valves(state, params, action):
    """Move the valves toward their commands, or to the interlock's positions if it is active."""
    share = share_of(params.time_step, params.valve_lag)
    tripped = state.temperature > params.trip_temperature or state.pressure > params.trip_pressure
    state.shutdown = 1 if tripped else (state.shutdown if state.temperature > params.release_temperature else 0)
    safe = state.shutdown == 1
    feed = 0.0 if safe else clipped(action[0], 0.0, FEED)
    coolant = COOLANT if safe else clipped(action[1], 0.0, COOLANT)
    vent = VENT if safe else clipped(action[2], 0.0, VENT)
    coolant = delayed(state.coolant_commands, coolant, params.coolant_delay / params.time_step)
    state.feed_flow = lagged(state.feed_flow, feed, share)
    state.coolant_flow = lagged(state.coolant_flow, coolant, share)
    state.vent_opening = lagged(state.vent_opening, vent, share)


def slope(params, state, point):
    """Return the derivatives of the vessel's state, with constant valves and feed."""
    temperature, jacket, reactant, product, level, gas, activity = point
    level = max(level, SHALLOWEST)
    volume = params.cross_section * level
    hot = clipped(temperature, COLDEST, FASTEST)
    acceleration = exp(params.activation_temperature * (1.0 / params.reference_temperature - 1.0 / hot))
    formed = min(params.reaction_rate * acceleration * activity, MIXING) * reactant  # mol/(m3 s)
    decomposed = min(params.decomposition_rate * acceleration**2, MIXING) * product
    renewal = state.feed_flow / volume  # 1/s
    heat = params.reaction_heat * formed + params.decomposition_heat * decomposed
    removed = (1.0 - params.fouling) * params.heat_transfer * level * (temperature - jacket)  # W
    above = pressure(params, temperature, level, gas)
    return (
        renewal * (state.feed_temperature - temperature)
        + heat / params.heat_capacity
        - removed / (params.heat_capacity * volume),
        state.coolant_flow / params.jacket_mass * (state.coolant_temperature - jacket)
        + removed / (params.jacket_mass * params.coolant_heat_capacity),
        renewal * (state.feed_concentration - reactant) - formed,
        formed - decomposed - renewal * product,
        (state.feed_flow - outflow(params, level)) / params.cross_section,
        volume * decomposed - vented(params, state.vent_opening, above),
        -params.catalyst_decay * acceleration**2 * activity,
    )


def ahead(point, slope, time):
    """Return the point reached after `time` along a slope."""
    return (
        point[0] + time * slope[0],
        point[1] + time * slope[1],
        point[2] + time * slope[2],
        point[3] + time * slope[3],
        point[4] + time * slope[4],
        point[5] + time * slope[5],
        point[6] + time * slope[6],
    )


def headspace(params, level):
    """Return the gas volume above the liquid, in m3."""
    return params.cross_section * (FULL - min(level, DEEPEST))


def pressure(params, temperature, level, gas):
    """Return the pressure of an ideal gas in the headspace, in Pa."""
    return gas * GAS_CONSTANT * temperature / headspace(params, level)


def vented(params, opening, pressure):
    """Return the flow through the vent and the relief valve, in mol/s."""
    relief = clipped((pressure / params.relief_pressure - 1.0) / LIFT, 0.0, 1.0)
    conductance = params.vent_conductance * opening + params.relief_conductance * relief
    return conductance * (pressure - params.ambient_pressure)


def outflow(params, level):
    """Return the gravity flow through the outlet, in m3/s; it stops when the level falls to the outlet."""
    return params.outlet_coefficient * sqrt(level) * clipped((level - SHALLOWEST) / MOUTH, 0.0, 1.0)


def drift(state, params, rng):
    """Apply disturbances to the feed and the coolant."""
    p, share = params, share_of(params.time_step, params.disturbance_time)
    state.feed_temperature = drifted(
        state.feed_temperature, p.feed_temperature, p.feed_temperature_deviation, share, rng
    )
    concentration = drifted(state.feed_concentration, p.feed_concentration, p.feed_concentration_deviation, share, rng)
    state.feed_concentration = max(concentration, 0.0)
    state.coolant_temperature = drifted(
        state.coolant_temperature, p.coolant_temperature, p.coolant_temperature_deviation, share, rng
    )


def read_sensors(state, rng):
    """Sample the errors of the sensors."""
    for k in range(6):
        state.sensor_errors[k] = noise(rng)


def profit(state, params):
    """Return a step's profit: product less unreacted A, coolant and vented gas; 1 for full production at no cost."""
    value = outflow(params, state.level) * (state.product - params.reactant_cost * state.reactant)
    gas = max(vented(params, state.vent_opening, state.pressure), 0.0)
    return (value - params.coolant_cost * state.coolant_flow - params.vent_cost * gas) / params.full_production


def contents(state, params):
    """Return the vessel's contents, in mol of B: its product less the cost of its unreacted A."""
    return params.cross_section * state.level * (state.product - params.reactant_cost * state.reactant)


def observe(state, params, observation):
    scale, errors = params.sensor_noise, state.sensor_errors
    kelvin, moles, pascal, metre = 0.3 * scale, 10.0 * scale, 2e3 * scale, 0.005 * scale
    observation[0] = clipped(state.temperature + kelvin * errors[0], COLDEST, HOTTEST)
    observation[1] = clipped(state.jacket_temperature + kelvin * errors[1], COLDEST, HOTTEST)
    observation[2] = clipped(state.reactant + moles * errors[2], 0.0, RICHEST)
    observation[3] = clipped(state.product + moles * errors[3], 0.0, RICHEST)
    observation[4] = clipped(state.pressure + pascal * errors[4], 0.0, STRONGEST)
    observation[5] = clipped(state.level + metre * errors[5], 0.0, FULL)
    observation[6] = state.feed_flow
    observation[7] = state.coolant_flow
    observation[8] = state.vent_opening
    observation[9] = state.feed_temperature
    observation[10] = state.coolant_temperature
    observation[11] = state.shutdown


def draw(state, params, canvas):
    canvas.view(-1.6, 1.6, -0.3, 2.3, 640, 520)
    jacket = blended(SKY, ORANGE, (state.jacket_temperature - 290.0) / 60.0)
    liquid = blended(BLUE, RED, (state.temperature - 300.0) / 90.0)
    canvas.rectangle(-0.8, -0.15, 0.8, FULL, jacket)
    canvas.rectangle(-0.6, 0.0, 0.6, FULL, blended(WHITE, AMBER, state.pressure / params.trip_pressure))
    canvas.rectangle(-0.6, 0.0, 0.6, state.level, liquid)
    for limit in LEVELS:
        canvas.line(-0.6, limit, 0.6, limit, 0.012, SLATE)
    for x, y, share in (
        (-1.2, 1.9, state.feed_flow / FEED),
        (-1.2, 0.2, state.coolant_flow / COOLANT),
        (1.2, 1.9, state.vent_opening / VENT),
    ):  # valves: pipes as wide as they are open
        canvas.line(x, y, 0.6 * x, y, 0.2, MIST)
        canvas.line(x, y, 0.6 * x, y, 0.2 * share, RED if state.shutdown else INK)
    canvas.line(0.0, 0.15, 0.0, FULL, 0.03, INK)  # the stirrer
    canvas.line(-0.3, 0.15, 0.3, 0.15, 0.06, INK)


environment = Environment(
    "ChemicalReactor-v0",
    state=State,
    params=Params,
    observation=Box(*np.array([limits for _, *limits in SIGNALS.values()], np.float32).T),
    action=Box(np.zeros(3, np.float32), np.array([FEED, COOLANT, VENT], np.float32)),
    max_steps=EPISODE,
    reset=reset,
    step=step,
    observe=observe,
    draw=draw,
    signals={name: unit for name, (unit, *_) in SIGNALS.items()},
    actuators={"feed_flow": "m3/s", "coolant_flow": "kg/s", "vent_opening": "1"},
    constraints=(
        Constraint("temperature", value="temperature", high=362.0, unit="K"),
        Constraint("pressure", value="pressure", high=5e5, unit="Pa"),
        Constraint("level", value="level", low=LEVELS[0], high=LEVELS[1], unit="m"),
        Constraint("accumulation", value="reactant", high=900.0, unit="mol/m3"),
        Constraint("runaway", value="temperature", high=390.0, unit="K", penalty=20.0, critical=True),
    ),
    scenarios={
        "nominal": {},
        "disturbed": {
            "feed_temperature_deviation": 3.0,
            "feed_concentration_deviation": 60.0,
            "coolant_temperature_deviation": 2.0,
            "sensor_noise": 1.0,
        },
        "degraded": {"catalyst_activity": 0.8, "fouling": 0.25, "valve_lag": 10.0, "coolant_delay": 10.0},
    },
    controller=PID(
        Loop(
            "temperature",
            "coolant_flow",
            setpoint=350.0,
            gain=-1.2,
            integral_time=400.0,
            derivative_time=40.0,
            bias=2.9,
        ),
        Loop("pressure", "vent_opening", 3e5, gain=-4e-6, integral_time=200.0, bias=0.03),
        Loop("level", "feed_flow", 1.0, gain=0.004, integral_time=600.0, bias=0.004),
        time_step=5.0,
    ),
    presets={
        "ppo": {
            "total_steps": 2_000_000,
            "gamma": 0.98,
            "learning_rate": 1e-3,
            "entropy_coefficient": 0.0,
            "normalise_observations": True,
            "normalise_rewards": True,
        },
        "ppo-lagrangian": {  # rollouts of whole episodes, so that multipliers follow the current policy's costs
            "total_steps": 1_000_000,
            "num_envs": 16,
            "horizon": 360,
            "minibatch_size": 256,
            "normalise_observations": True,
            "normalise_rewards": True,
            "gamma": 0.98,
            "proportional_gain": 0.1,
            "derivative_gain": 0.1,
        },
        "focops": {
            "total_steps": 1_000_000,
            "num_envs": 16,
            "horizon": 360,
            "minibatch_size": 256,
            "learning_rate": 1e-3,
            "temperature": 0.3,
            "trust_region": 0.05,
            "target_kl": 0.0,
            "multiplier_rate": 5e-4,
            "largest_multiplier": 0.2,
            "normalise_observations": True,
            "normalise_rewards": True,
            "gamma": 0.98,
        },
        "sac-lagrangian": {
            "total_steps": 300_000,
            "num_envs": 16,
            "train_every": 16,
            "gradient_steps": 4,
            "hidden": (64, 64),
            "critic_layer_norm": True,
            "scale_observations": True,
            "gamma": 0.98,
        },
        # For recorded data: critics without layer norms overestimate actions that trip the interlock. Effects of
        # actions appear late, so targets must be updated quickly to propagate that far.
        "td3-bc": {"alpha": 5.0, "critic_layer_norm": True, "tau": 0.02},
        "iql": {"temperature": 5.0, "critic_layer_norm": True, "tau": 0.01},
        "cql": {"critic_layer_norm": True, "tau": 0.02},
    },
)
