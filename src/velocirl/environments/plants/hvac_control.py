"""HVAC control: keep three zones of a building comfortable and their air fresh on a winter day, with little energy.

An air handler mixes outdoor and return air, brings it to a fixed supply temperature and blows it into the zones. Each
zone has a reheat coil, a node for its air, one for its walls and furniture (a lumped network of resistances and
capacities), and a carbon dioxide balance:

    C_a dT_i/dt = H_m (M_i - T_i) + H_w (T_o - T_i) + m_i c (T_s - T_i) + Q_i + n_i q_p + o q_e
    C_m dM_i/dt = H_m (T_i - M_i) + H_o (T_o - M_i) + A_i I
    rho V dX_i/dt = m_i (X_s - X_i) + rho g n_i,       X_s = f X_o + (1 - f) sum_i(m_i X_i) / m

    T_mixed = f T_o + (1 - f) sum_i(m_i T_i) / m,      |m c (T_s - T_mixed)| <= capacity of the coil
    fan power ~ m^3

Heat balances and heat gains from people: ASHRAE Handbook, Fundamentals; ventilation by carbon dioxide: ASHRAE Standard
62.1; the cube is the affinity law of fans. While a step holds inputs constant the balances are linear, and are solved
exactly by the matrix exponential. Dampers and coils act with a lag, the fan also after a dead time. Sun, outdoor
temperature and people follow the time of day and random disturbances. Mixed air near freezing would burst the coil: a
frost thermostat then stops the plant. The reward is 1 less energy and discomfort. It is highest with little air at
night, and by day near the lower end of comfort. Heat that walls and air lose in a day is charged at its end.
"""

from math import cos, pi, sin, sqrt

import numpy as np

from velocirl import Box, Constraint, Environment, between, float32, int32, random, record
from velocirl.controllers import PID, Loop
from velocirl.engine.canvas import AMBER, BLUE, GREEN, INK, MIST, RED, SKY, SLATE
from velocirl.environments.plants.instruments import (
    clipped,
    delayed,
    drifted,
    lagged,
    noise,
    relaxed,
    share_of,
    shortfall,
)
from velocirl.environments.plants.pictures import blended

DAY, HOUR = 86400.0, 3600.0  # s
EPISODE = 288  # steps, a day
AIR_HEAT = 1005.0  # J/(kg K)
AIR_DENSITY = 1.2  # kg/m3
FRESH = 420.0  # ppm of carbon dioxide outdoors
MILLION = 1e6  # ppm
REHEAT, FLOW = 5000.0, 3.0  # W and kg/s: maximum of coils and fan
LEAST_FLOW = 0.2  # kg/s, at which the fan always runs
ZONES = 3
PEOPLE = (10.0, 14.0, 8.0)  # in zones 1 (south), 2 (meeting rooms) and 3 (north) at full occupancy
APERTURES = (5.0, 1.5, 0.5)  # m2, solar aperture of each zone
COMFORT = (293.0, 299.0)  # K, comfort range of occupied zones
COLDEST, HOTTEST = 240.0, 330.0  # K, range of the thermometers
STALEST = 5000.0  # ppm, full scale of the analyzers
SIGNALS = {
    **{f"zone_{k}_temperature": ("K", COLDEST, HOTTEST) for k in (1, 2, 3)},
    **{f"zone_{k}_co2": ("ppm", 0.0, STALEST) for k in (1, 2, 3)},
    **{f"zone_{k}_reheat": ("W", 0.0, REHEAT) for k in (1, 2, 3)},
    "supply_flow": ("kg/s", 0.0, FLOW),
    "outdoor_share": ("1", 0.0, 1.0),
    "supply_temperature": ("K", COLDEST, HOTTEST),
    "mixed_temperature": ("K", COLDEST, HOTTEST),
    "outdoor_temperature": ("K", COLDEST, HOTTEST),
    "radiation": ("W/m2", 0.0, 1200.0),
    "occupancy": ("1", 0.0, 1.0),
    "day_sine": ("1", -1.0, 1.0),
    "day_cosine": ("1", -1.0, 1.0),
}


@record
class State:
    temperature: float32[3]  # K, of the air in each zone
    mass_temperature: float32[3]  # K, of walls and furniture
    co2: float32[3]  # ppm
    reheat: float32[3]  # W, actual heat of the coils
    supply_flow: float32  # kg/s
    outdoor_share: float32
    supply_temperature: float32  # K
    mixed_temperature: float32  # K
    outdoor_temperature: float32  # K
    radiation: float32  # W/m2
    occupancy: float32  # fraction of the people present
    time: float32  # s since midnight
    weather: float32  # K, deviation from a usual day
    clouds: float32  # fraction of the sun that clouds block
    attendance: float32  # fraction of the people who came today
    opening: float32  # J, stored heat when last recorded
    elapsed: int32 = between(0, 2**31 - 1)  # steps since then
    flow_commands: float32[4]  # kg/s, newest first: commands still within the dead time
    sensor_errors: float32[6]  # of the first six signals, in standard deviations


@record
class Params:
    time_step: float32 = between(60.0, 600.0, default=300.0)  # s
    air_capacity: float32 = between(5e5, 1e7, default=2e6)  # J/K, of a zone's air and everything that warms with it
    mass_capacity: float32 = between(5e6, 2e8, default=3e7)  # J/K, of a zone's walls
    volume: float32 = between(50.0, 1000.0, default=300.0)  # m3, of a zone
    mass_conductance: float32 = between(0.0, 3000.0, default=800.0)  # W/K, between air and walls
    window_conductance: float32 = between(0.0, 500.0, default=60.0)  # W/K, between air and outdoors
    wall_conductance: float32 = between(0.0, 500.0, default=80.0)  # W/K, between walls and outdoors
    person_heat: float32 = between(0.0, 200.0, default=75.0)  # W
    person_co2: float32 = between(0.0, 2e-5, default=5.2e-6)  # m3/s
    equipment_heat: float32 = between(0.0, 5000.0, default=900.0)  # W, per zone at full occupancy
    supply_setpoint: float32 = between(280.0, 300.0, default=289.0)  # K
    coil_capacity: float32 = between(0.0, 1e5, default=2.5e4)  # W, of the air handler, for heating and for cooling
    damper_lag: float32 = between(0.0, 1800.0, default=60.0)  # s, of fan, dampers and coils
    fan_delay: float32 = between(0.0, 1200.0, default=60.0)  # s, four time steps at most
    outdoor_mean: float32 = between(260.0, 305.0, default=278.0)  # K
    outdoor_swing: float32 = between(0.0, 15.0, default=4.0)  # K, between the mean and the warmest hour
    weather_deviation: float32 = between(0.0, 8.0, default=1.0)  # K
    cloud_deviation: float32 = between(0.0, 0.3, default=0.1)  # fraction of the sun
    attendance_deviation: float32 = between(0.0, 0.25, default=0.05)  # fraction of the people
    disturbance_time: float32 = between(600.0, 1e6, default=10800.0)  # s, correlation time of disturbances
    sunshine: float32 = between(0.0, 1000.0, default=350.0)  # W/m2, at noon
    sensor_noise: float32 = between(0.0, 10.0, default=0.0)  # 1: thermometers 0.2 K, analyzers 20 ppm
    efficiency: float32 = between(0.5, 8.0, default=3.0)  # heat or cold per unit of electricity
    fan_power: float32 = between(0.0, 2e4, default=5000.0)  # W, at full flow
    power_scale: float32 = between(1e3, 1e5, default=1e4)  # W of electricity that cost 1 per step
    comfort_temperature: float32 = between(288.0, 302.0, default=295.5)  # K
    discomfort_cost: float32 = between(0.0, 1.0, default=0.02)  # per squared kelvin in an occupied zone


def reset(state, params, rng):
    for k in range(ZONES):
        state.temperature[k] = random.uniform(rng, 294.0, 296.0)
        state.mass_temperature[k] = state.temperature[k] - random.uniform(rng, 0.0, 1.0)
        state.co2[k] = random.uniform(rng, 430.0, 550.0)
        state.reheat[k] = 1000.0
    for k in range(4):
        state.flow_commands[k] = 1.0
    state.supply_flow = 1.0
    state.outdoor_share = 0.3
    state.time = 0.0
    state.weather = params.weather_deviation * noise(rng)
    state.clouds = 0.3 + params.cloud_deviation * noise(rng)
    state.attendance = 0.85 + params.attendance_deviation * noise(rng)
    tell_time(state, params)
    state.mixed_temperature = mixed(state.outdoor_share, state.outdoor_temperature, mean_of(state.temperature))
    state.supply_temperature = params.supply_setpoint
    state.opening, state.elapsed = stored_heat(state, params), 0
    read_sensors(state, rng)


def step(state, params, action, rng):
    time = params.time_step
    move_actuators(state, params, action)
    let_pass(state, params, time)

    state.time = state.time + time if state.time + time < DAY else 0.0
    share = share_of(time, params.disturbance_time)
    state.weather = drifted(state.weather, 0.0, params.weather_deviation, share, rng)
    state.clouds = drifted(state.clouds, 0.3, params.cloud_deviation, share, rng)
    state.attendance = drifted(state.attendance, 0.85, params.attendance_deviation, share, rng)
    tell_time(state, params)
    read_sensors(state, rng)
    lost = shortfall(state, stored_heat(state, params), EPISODE) / (params.efficiency * time)  # W of electricity
    return 1.0 - (power(state, params) + lost) / params.power_scale - discomfort(state, params), False


def move_actuators(state, params, action):
    """Move coils, fan and damper toward their commands, and compute the supply air within the coil's capacity."""
    share = share_of(params.time_step, params.damper_lag)
    for k in range(ZONES):
        state.reheat[k] = lagged(state.reheat[k], clipped(action[k], 0.0, REHEAT), share)
    flow = delayed(state.flow_commands, clipped(action[3], LEAST_FLOW, FLOW), params.fan_delay / params.time_step)
    state.supply_flow = lagged(state.supply_flow, flow, share)
    state.outdoor_share = lagged(state.outdoor_share, clipped(action[4], 0.0, 1.0), share)
    state.mixed_temperature = mixed(state.outdoor_share, state.outdoor_temperature, mean_of(state.temperature))
    reach = params.coil_capacity / (AIR_HEAT * state.supply_flow)
    state.supply_temperature = clipped(
        params.supply_setpoint, state.mixed_temperature - reach, state.mixed_temperature + reach
    )


def let_pass(state, params, time):
    """Advance the zones: y(t) = y + t phi(t A) y'(0), phi(x) = (exp(x) - 1) / x, for the matrix A of each balance."""
    warming, storing, co2_rates = slope(params, state, tuple_of(state))

    # Air and walls of a zone: the two rates have the mean `middle` and differ by twice `half`.
    conductance, flow = params.mass_conductance, state.supply_flow / ZONES
    air = -time * (conductance + flow * AIR_HEAT + params.window_conductance) / params.air_capacity
    walls = -time * (conductance + params.wall_conductance) / params.mass_capacity
    to_air, to_walls = time * conductance / params.air_capacity, time * conductance / params.mass_capacity
    middle, apart = (air + walls) / 2.0, (air - walls) / 2.0
    half = max(sqrt(apart * apart + to_air * to_walls), 1e-6)
    slow, fast = relaxed(min(middle + half, 0.0)), relaxed(middle - half)
    both, each = (slow + fast) / 2.0, (slow - fast) / (2.0 * half)

    # Carbon dioxide: return air mixes the zones' mean; differences between zones decay by ventilation.
    renewal = -time * flow / AIR_DENSITY / params.volume
    common, single = relaxed(renewal * state.outdoor_share), relaxed(renewal)
    mean = mean_of(co2_rates)
    for k in range(ZONES):
        warmed = both * warming[k] + each * (apart * warming[k] + to_air * storing[k])
        stored = both * storing[k] + each * (to_walls * warming[k] - apart * storing[k])
        state.temperature[k] = clipped(state.temperature[k] + time * warmed, COLDEST, HOTTEST)
        state.mass_temperature[k] = clipped(state.mass_temperature[k] + time * stored, COLDEST, HOTTEST)
        state.co2[k] = clipped(state.co2[k] + time * (common * mean + single * (co2_rates[k] - mean)), 0.0, STALEST)


def tell_time(state, params):
    """Update weather and people from the time of day and the disturbances."""
    angle = 2.0 * pi * state.time / DAY
    hour = state.time / HOUR
    state.outdoor_temperature = params.outdoor_mean + state.weather - params.outdoor_swing * cos(angle - pi / 4.0)
    state.radiation = clipped(params.sunshine * (1.0 - state.clouds) * (-cos(angle) - 0.2) / 0.8, 0.0, 1200.0)
    present = clipped(hour - 7.0, 0.0, 1.0) * clipped(
        19.0 - hour, 0.0, 1.0
    )  # arrivals from 7 to 8, departures from 18 to 19
    state.occupancy = clipped(state.attendance, 0.0, 1.0) * present


def tuple_of(state):
    """Return temperatures of air and walls, and carbon dioxide, of all zones."""
    t, m, x = state.temperature, state.mass_temperature, state.co2
    return (t[0], t[1], t[2]), (m[0], m[1], m[2]), (x[0], x[1], x[2])


def slope(params, state, point):
    """Return the derivatives of the zones, with constant supply air and outdoor conditions."""
    temperatures, masses, co2 = point
    supplied = mixed(state.outdoor_share, FRESH, mean_of(co2))  # ppm
    first = zone(params, state, 0, temperatures[0], masses[0], co2[0], supplied)
    second = zone(params, state, 1, temperatures[1], masses[1], co2[1], supplied)
    third = zone(params, state, 2, temperatures[2], masses[2], co2[2], supplied)
    return (first[0], second[0], third[0]), (first[1], second[1], third[1]), (first[2], second[2], third[2])


def zone(params, state, k, temperature, mass, co2, supplied):
    """Return a zone's derivatives: K/s of air and walls, ppm/s."""
    flow = state.supply_flow / ZONES
    people = state.occupancy * PEOPLE[k]
    outdoors = state.outdoor_temperature
    gains = state.reheat[k] + people * params.person_heat + state.occupancy * params.equipment_heat
    exchanged = params.mass_conductance * (mass - temperature)
    blown = flow * AIR_HEAT * (state.supply_temperature - temperature)
    lost = params.window_conductance * (temperature - outdoors)
    sun = APERTURES[k] * state.radiation
    leaked = params.wall_conductance * (mass - outdoors)
    return (
        (exchanged + blown + gains - lost) / params.air_capacity,
        (sun - exchanged - leaked) / params.mass_capacity,
        (flow / AIR_DENSITY * (supplied - co2) + MILLION * params.person_co2 * people) / params.volume,
    )


def mixed(share, outdoors, returned):
    """Mix outdoor and return air."""
    return share * outdoors + (1.0 - share) * returned


def mean_of(values):
    return (values[0] + values[1] + values[2]) / ZONES


def power(state, params):
    """Return the electricity of coils and fan, in W."""
    conditioned = abs(state.supply_temperature - state.mixed_temperature) * AIR_HEAT * state.supply_flow
    heated = state.reheat[0] + state.reheat[1] + state.reheat[2]
    return (conditioned + heated) / params.efficiency + params.fan_power * (state.supply_flow / FLOW) ** 3


def discomfort(state, params):
    """Return the cost of the zones' distance from the comfort temperature while people are present."""
    cost = 0.0
    for k in range(ZONES):
        cost += (state.temperature[k] - params.comfort_temperature) ** 2
    return params.discomfort_cost * state.occupancy * cost


def stored_heat(state, params):
    """Return the heat or cold that air and walls lack to the comfort temperature, as negative J."""
    short = 0.0
    for k in range(ZONES):
        short += params.air_capacity * abs(state.temperature[k] - params.comfort_temperature)
        short += params.mass_capacity * abs(state.mass_temperature[k] - params.comfort_temperature)
    return -short


def outside_comfort(state, params):
    """Return by how many kelvin the worst zone leaves the comfort range while people are present."""
    worst = 0.0
    for k in range(ZONES):
        worst = max(worst, max(COMFORT[0] - state.temperature[k], state.temperature[k] - COMFORT[1]))
    return worst if state.occupancy > 0.1 else 0.0


def stalest(state, params):
    """Return the carbon dioxide of the worst zone, in ppm."""
    return max(max(state.co2[0], state.co2[1]), state.co2[2])


def read_sensors(state, rng):
    """Sample the errors of the sensors."""
    for k in range(6):
        state.sensor_errors[k] = noise(rng)


def observe(state, params, observation):
    errors, scale = state.sensor_errors, params.sensor_noise
    for k in range(ZONES):
        observation[k] = clipped(state.temperature[k] + 0.2 * scale * errors[k], COLDEST, HOTTEST)
        observation[3 + k] = clipped(state.co2[k] + 20.0 * scale * errors[3 + k], 0.0, STALEST)
        observation[6 + k] = state.reheat[k]
    observation[9] = state.supply_flow
    observation[10] = state.outdoor_share
    observation[11] = clipped(state.supply_temperature, COLDEST, HOTTEST)
    observation[12] = clipped(state.mixed_temperature, COLDEST, HOTTEST)
    observation[13] = clipped(state.outdoor_temperature, COLDEST, HOTTEST)
    observation[14] = state.radiation
    observation[15] = state.occupancy
    observation[16] = sin(2.0 * pi * state.time / DAY)
    observation[17] = cos(2.0 * pi * state.time / DAY)


def draw(state, params, canvas):
    canvas.view(0.0, 6.0, 0.0, 4.0, 600, 400, blended(SLATE, SKY, state.radiation / 300.0))
    canvas.rectangle(0.0, 0.0, 6.0, 0.6, MIST)
    for k in range(ZONES):
        left = 0.6 + 1.6 * k
        canvas.rectangle(left, 0.6, left + 1.5, 2.4, blended(BLUE, RED, (state.temperature[k] - 288.0) / 15.0))
        canvas.rectangle(left + 0.1, 0.7, left + 0.1 + 1.3 * state.reheat[k] / REHEAT, 0.8, AMBER)
        canvas.disc(left + 0.75, 1.5, 0.1 + 0.3 * state.co2[k] / 1500.0, GREEN if state.co2[k] < 1000.0 else INK)
    canvas.line(0.0, 2.9, 5.5, 2.9, 0.4, MIST)  # the duct, with the outdoor air and the total air flow in it
    canvas.line(0.0, 2.9, 5.5, 2.9, 0.4 * state.supply_flow / FLOW, SLATE)
    canvas.line(0.0, 2.9, 0.6, 2.9, 0.4 * state.outdoor_share, BLUE)


environment = Environment(
    "HVACControl-v0",
    state=State,
    params=Params,
    observation=Box(*np.array([limits for _, *limits in SIGNALS.values()], np.float32).T),
    action=Box(
        np.array([0.0, 0.0, 0.0, LEAST_FLOW, 0.0], np.float32),
        np.array([REHEAT, REHEAT, REHEAT, FLOW, 1.0], np.float32),
    ),
    max_steps=EPISODE,
    reset=reset,
    step=step,
    observe=observe,
    draw=draw,
    signals={name: unit for name, (unit, *_) in SIGNALS.items()},
    actuators={
        "zone_1_reheat": "W",
        "zone_2_reheat": "W",
        "zone_3_reheat": "W",
        "supply_flow": "kg/s",
        "outdoor_share": "1",
    },
    constraints=(
        Constraint("comfort", value=outside_comfort, high=0.0, unit="K", penalty=1.0),
        Constraint("air_quality", value=stalest, high=1000.0, unit="ppm", penalty=1.0),
        Constraint("frost", value="mixed_temperature", low=277.0, unit="K", penalty=20.0, critical=True),
    ),
    scenarios={
        "nominal": {},
        "disturbed": {
            "weather_deviation": 3.0,
            "cloud_deviation": 0.25,
            "attendance_deviation": 0.15,
            "sensor_noise": 1.0,
        },
        "degraded": {"coil_capacity": 1e4, "efficiency": 2.0, "damper_lag": 600.0, "fan_delay": 600.0},
    },
    controller=PID(
        *(
            Loop(f"zone_{k}_temperature", f"zone_{k}_reheat", 294.5, gain=1500.0, integral_time=3600.0, bias=1000.0)
            for k in (1, 2, 3)
        ),
        Loop("zone_1_temperature", "supply_flow", 297.0, gain=-0.5, integral_time=3600.0, bias=0.8, low=0.8),
        Loop("zone_2_co2", "outdoor_share", 800.0, gain=-0.001, integral_time=3600.0, bias=0.3, low=0.1, high=0.7),
        time_step=300.0,
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
        "cql": {"conservatism": 1.0},  # for recorded data; rewards are small compared with the usual 5
    },
)
