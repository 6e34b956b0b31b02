"""Water treatment: make clear, neutral drinking water from a river with few chemicals, without a supply failure.

Alum and caustic are dosed into a basin, where turbidity forms flocs that settle. Filters remove the rest, and a clear
well stores water for the town. Turbidities in NTU, concentrations in mol/m3, doses in g/m3 and mol/m3:

    V_b dC/dt = q (C_raw - C),            V_b dA/dt = q (A_raw + caustic - alum / 99 - A)
    A = C (a1 + 2 a2) + Kw / H - H,       a1, a2: fractions of bicarbonate and carbonate at H;  pH = 3 - log10(H)
    V_s dN_s/dt = q (N_raw (1 - e) - N_s),   e = 0.95 alum / (alum + d sqrt(N_raw / 20)) exp(-((pH - 6.4) / 2)^2)
    N_f = N_s (1 - 0.95 (1 - (s / s_u)^4)),  ds/dt = q / F k (N_s - N_f) - w b s,   head loss ~ q / F (1 + 6 s / s_u)
    A_w dh/dt = q - q_w b - demand,          A_w h dN_w/dt = (q - q_w b) (N_f - N_w)

C is inorganic carbon; A is alkalinity, of which a gram of alum consumes 1/99 mol; s is the deposit in the filters, and
b the fraction of them being washed. The carbonate system follows Stumm and Morgan, "Aquatic Chemistry". Coagulation,
filtration and doses follow Crittenden and others, "MWH's Water Treatment: Principles and Design", as fitted curves.
Limits are those of the United States: pH 6.5 to 8.5, turbidity 0.3 NTU and never above 1. Pumps act with a lag, caustic
after a dead time. The reward is 1 less chemicals, pumping, wash water and turbidity; it is highest with a pH at its
limit. Water that a day takes from the clear well and deposit that it leaves in the filters are charged at its end.
"""

from math import exp, log, pi, sin, sqrt

import numpy as np

from velocirl import Box, Constraint, Environment, between, float32, int32, random, record
from velocirl.controllers import PID, Loop
from velocirl.engine.canvas import BLUE, INK, MIST, SKY, STONE, WOOD
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

LOG_10 = log(10.0)
DAY = 86400.0  # s
EPISODE = 288  # steps, a day
FIRST_ACIDITY, SECOND_ACIDITY = 10.0 ** (3.0 - 6.35), 10.0 ** (3.0 - 10.33)  # mol/m3, of carbonic acid at 298 K
WATER_PRODUCT = 1e-8  # (mol/m3)^2, of H and OH at 298 K
ALUM_MASS = 99.0  # g of alum that consume one mol of alkalinity: 594 g/mol over 6
BEST_ALUM, BEST_FILTER = 0.95, 0.95  # maximum fraction of the turbidity that flocs and clean filters remove
BEST_PH, PH_WIDTH = 6.4, 2.0  # best pH for flocculation, and the distance at which the effect falls by a factor of e
USUAL_TURBIDITY = 20.0  # NTU
CLOGGING = 6.0  # head loss of full filters over that of clean ones, less 1
ALUM, CAUSTIC, FLOW, WASH = 60.0, 0.5, 0.5, 0.1  # maximum: g/m3, mol/m3, m3/s, fraction of the filters
LEAST_FLOW = 0.05  # m3/s
LEAST_PH, MOST_PH = 3.0, 12.0  # range of the meter
MUDDIEST, CLEAREST = 500.0, 0.1  # NTU, maximum and minimum of raw water
LEVELS = (1.0, 4.5)  # m, limits of the clear well
DRY, FULL = 0.1, 5.0  # m: level below the pumps' reach, and overflow
SIGNALS = {
    "raw_turbidity": ("NTU", 0.0, MUDDIEST),
    "raw_ph": ("1", LEAST_PH, MOST_PH),
    "raw_alkalinity": ("mol/m3", 0.0, 10.0),
    "ph": ("1", LEAST_PH, MOST_PH),
    "settled_turbidity": ("NTU", 0.0, MUDDIEST),
    "filtered_turbidity": ("NTU", 0.0, MUDDIEST),
    "well_turbidity": ("NTU", 0.0, MUDDIEST),
    "head_loss": ("Pa", 0.0, 1e6),
    "level": ("m", 0.0, FULL),
    "demand": ("m3/s", 0.0, 1.0),
    "alum_dose": ("g/m3", 0.0, ALUM),
    "caustic_dose": ("mol/m3", 0.0, CAUSTIC),
    "flow": ("m3/s", 0.0, FLOW),
    "wash_share": ("1", 0.0, WASH),
    "day_sine": ("1", -1.0, 1.0),
}


@record
class State:
    carbon: float32  # mol/m3 of inorganic carbon in the basin
    alkalinity: float32  # mol/m3 in the basin
    settled_turbidity: float32  # NTU
    deposit: float32  # g/m2 in the filters
    level: float32  # m, in the clear well
    well_turbidity: float32  # NTU
    ph: float32
    filtered_turbidity: float32  # NTU
    head_loss: float32  # Pa
    raw_turbidity: float32  # NTU
    raw_ph: float32
    raw_alkalinity: float32  # mol/m3
    demand: float32  # m3/s
    thirst: float32  # the demand relative to that of the time of day
    alum_dose: float32  # g/m3
    caustic_dose: float32  # mol/m3
    flow: float32  # m3/s
    wash_share: float32
    time: float32  # s since midnight
    opening: float32  # reward, value of water and clean filters when last recorded
    elapsed: int32 = between(0, 2**31 - 1)  # steps since then
    caustic_commands: float32[4]  # mol/m3, newest first: commands still within the dead time
    sensor_errors: float32[8]  # of the first eight signals, in standard deviations


@record
class Params:
    time_step: float32 = between(30.0, 300.0, default=300.0)  # s
    basin_volume: float32 = between(150.0, 2000.0, default=300.0)  # m3
    settler_volume: float32 = between(500.0, 1e4, default=1500.0)  # m3
    filter_area: float32 = between(100.0, 1000.0, default=150.0)  # m2
    well_area: float32 = between(400.0, 5000.0, default=800.0)  # m2
    half_dose: float32 = between(0.0, 50.0, default=2.5)  # g/m3 of alum, at half of the maximum effect
    solids: float32 = between(0.0, 3.0, default=1.5)  # g/m3 of deposit per NTU
    filter_capacity: float32 = between(500.0, 5000.0, default=1000.0)  # g/m2, at which filters remove nothing
    clean_resistance: float32 = between(1e5, 1e7, default=3e6)  # Pa s/m
    wash_rate: float32 = between(0.0, 0.02, default=1.0 / 300.0)  # 1/s, at which washing removes the deposit
    wash_flow: float32 = between(0.0, 5.0, default=1.5)  # m3/s, if all filters were washed
    pump_lag: float32 = between(0.0, 3600.0, default=30.0)  # s
    caustic_delay: float32 = between(0.0, 1200.0, default=150.0)  # s, four time steps at most
    raw_turbidity: float32 = between(1.0, 60.0, default=20.0)  # NTU
    raw_turbidity_deviation: float32 = between(0.0, 10.0, default=2.0)  # NTU
    raw_ph: float32 = between(6.5, 8.5, default=7.2)
    raw_ph_deviation: float32 = between(0.0, 0.3, default=0.03)
    raw_alkalinity: float32 = between(0.3, 5.0, default=0.8)  # mol/m3
    raw_alkalinity_deviation: float32 = between(0.0, 0.2, default=0.02)  # mol/m3
    demand: float32 = between(0.0, 0.4, default=0.25)  # m3/s
    demand_swing: float32 = between(0.0, 0.8, default=0.3)  # relative amplitude over a day
    demand_deviation: float32 = between(0.0, 0.2, default=0.03)  # fraction
    disturbance_time: float32 = between(300.0, 1e6, default=14400.0)  # s, correlation time of disturbances
    sensor_noise: float32 = between(0.0, 10.0, default=0.0)  # 1: 0.03 of the pH, 2% of turbidities, 100 Pa, 1 cm
    alum_cost: float32 = between(0.0, 1.0, default=0.04)  # per g/s
    caustic_cost: float32 = between(0.0, 10.0, default=1.0)  # per mol/s
    pumping_cost: float32 = between(0.0, 1.0, default=0.03)  # per kW consumed by the filters
    wash_cost: float32 = between(0.0, 10.0, default=3.0)  # per m3/s of wash water
    turbidity_cost: float32 = between(0.0, 10.0, default=0.5)  # per NTU in the filtered water
    water_value: float32 = between(0.0, 10.0, default=3.0)  # per m3/s that a day takes from the clear well
    deposit_cost: float32 = between(0.0, 1.0, default=0.04)  # per g/m2 that a day leaves in the filters


def reset(state, params, rng):
    state.raw_turbidity = max(params.raw_turbidity + params.raw_turbidity_deviation * noise(rng), CLEAREST)
    state.raw_ph = params.raw_ph + params.raw_ph_deviation * noise(rng)
    state.raw_alkalinity = params.raw_alkalinity + params.raw_alkalinity_deviation * noise(rng)
    state.thirst = 1.0 + params.demand_deviation * noise(rng)
    state.time = 0.0
    state.demand = demand(params, state.thirst, state.time)
    state.alum_dose = 28.0
    state.caustic_dose = 0.1
    state.flow = params.demand
    state.wash_share = 0.008
    for k in range(4):
        state.caustic_commands[k] = state.caustic_dose
    state.carbon = carbon_of(state.raw_ph, state.raw_alkalinity)
    state.alkalinity = state.raw_alkalinity - state.alum_dose / ALUM_MASS + state.caustic_dose
    state.settled_turbidity = random.uniform(rng, 2.5, 4.0)
    state.deposit = random.uniform(rng, 150.0, 300.0)
    state.level = random.uniform(rng, 2.5, 3.5)
    state.well_turbidity = random.uniform(rng, 0.15, 0.22)
    tell(state, params)
    state.opening, state.elapsed = stores(state, params), 0
    read_sensors(state, rng)


def step(state, params, action, rng):
    time = params.time_step
    share = share_of(time, params.pump_lag)
    caustic = delayed(state.caustic_commands, clipped(action[1], 0.0, CAUSTIC), params.caustic_delay / time)
    state.alum_dose = lagged(state.alum_dose, clipped(action[0], 0.0, ALUM), share)
    state.caustic_dose = lagged(state.caustic_dose, caustic, share)
    state.flow = lagged(state.flow, clipped(action[2], LEAST_FLOW, FLOW), share)
    state.wash_share = lagged(state.wash_share, clipped(action[3], 0.0, WASH), share)

    start = (
        state.carbon,
        state.alkalinity,
        state.settled_turbidity,
        state.deposit,
        state.level,
        state.well_turbidity,
    )
    slope1 = slope(params, state, start)
    slope2 = slope(params, state, ahead(start, slope1, time / 2.0))
    slope3 = slope(params, state, ahead(start, slope2, time / 2.0))
    slope4 = slope(params, state, ahead(start, slope3, time))
    end = ahead(ahead(start, slope1, time / 6.0), slope2, time / 3.0)
    end = ahead(ahead(end, slope3, time / 3.0), slope4, time / 6.0)
    spent = time * relaxed(-time * state.flow / params.basin_volume)  # exact: a small error changes the pH considerably
    state.carbon = max(start[0] + spent * slope1[0], 0.0)
    state.alkalinity = start[1] + spent * slope1[1]
    state.settled_turbidity = clipped(end[2], 0.0, MUDDIEST)
    state.deposit = clipped(end[3], 0.0, params.filter_capacity)
    state.level = clipped(end[4], DRY, FULL)
    state.well_turbidity = clipped(end[5], 0.0, MUDDIEST)

    drift(state, params, rng)
    tell(state, params)
    read_sensors(state, rng)
    return 1.0 - cost(state, params) - shortfall(state, stores(state, params), EPISODE), False


def slope(params, state, point):
    """Return the derivatives of basin, settler, filters and well, with constant doses and raw water."""
    carbon, alkalinity, settled, deposit, level, well = point
    dosed = state.raw_alkalinity + state.caustic_dose - state.alum_dose / ALUM_MASS
    ph = acidity(carbon, alkalinity)
    entering = state.raw_turbidity * (1.0 - flocculated(params, state, ph))
    filtered = settled * (1.0 - held_back(params, deposit))
    made = max(state.flow - params.wash_flow * state.wash_share, 0.0)
    return (
        state.flow / params.basin_volume * (carbon_of(state.raw_ph, state.raw_alkalinity) - carbon),
        state.flow / params.basin_volume * (dosed - alkalinity),
        state.flow / params.settler_volume * (entering - settled),
        state.flow / params.filter_area * params.solids * (settled - filtered)
        - params.wash_rate * state.wash_share * deposit,
        (made - state.demand) / params.well_area,
        made / (params.well_area * max(level, DRY)) * (filtered - well),
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
    )


def improved(ph, carbon, alkalinity):
    """Improve an estimate of the pH that balances a water's charges: Newton's method with the buffer as slope."""
    hydrogen = exp(LOG_10 * (3.0 - ph))
    hydroxide = WATER_PRODUCT / hydrogen
    whole = hydrogen * hydrogen + FIRST_ACIDITY * hydrogen + FIRST_ACIDITY * SECOND_ACIDITY
    acid = hydrogen * hydrogen / whole  # fractions of carbonic acid, bicarbonate and carbonate
    bicarbonate = FIRST_ACIDITY * hydrogen / whole
    carbonate = FIRST_ACIDITY * SECOND_ACIDITY / whole
    excess = carbon * (bicarbonate + 2.0 * carbonate) + hydroxide - hydrogen - alkalinity
    pairs = acid * bicarbonate + bicarbonate * carbonate + 4.0 * acid * carbonate
    buffer = LOG_10 * (hydrogen + hydroxide + carbon * pairs)
    return clipped(ph - clipped(excess / buffer, -0.5, 0.5), LEAST_PH, MOST_PH)


def acidity(carbon, alkalinity):
    """Return the pH of a water, to 0.001: three steps of Newton's method from an estimate within 0.5.

    With much carbonic acid, the estimate neglects carbonate and hydroxide. With little, it neglects products of their
    fractions. Both cases leave a quadratic equation for hydrogen.
    """
    carbon = max(carbon, 1e-3)
    acid = carbon - alkalinity  # carbonic acid, if bicarbonate were the only other species
    taken = FIRST_ACIDITY + alkalinity
    root = sqrt(max(taken * taken + 4.0 * FIRST_ACIDITY * acid, 0.0))
    sour = 2.0 * FIRST_ACIDITY * acid / max(taken + root, 1e-9) if taken > 0.0 else (root - taken) / 2.0
    weak = carbon * SECOND_ACIDITY + WATER_PRODUCT
    root = sqrt(acid * acid + 4.0 * carbon / FIRST_ACIDITY * weak)
    neutral = 2.0 * weak / (root - acid) if acid < 0.0 else (root + acid) * FIRST_ACIDITY / (2.0 * carbon)
    guess = 3.0 - log(sour if acid > 0.1 * carbon else neutral) / LOG_10
    nearer = improved(improved(guess, carbon, alkalinity), carbon, alkalinity)
    return improved(nearer, carbon, alkalinity)


def carbon_of(ph, alkalinity):
    """Return a water's inorganic carbon, in mol/m3; for raw water, whose pH is well below that of carbonate."""
    return alkalinity * (1.0 + exp(LOG_10 * (3.0 - ph)) / FIRST_ACIDITY)


def flocculated(params, state, ph):
    """Return the fraction of the raw turbidity that settles."""
    needed = params.half_dose * sqrt(state.raw_turbidity / USUAL_TURBIDITY)
    off = (ph - BEST_PH) / PH_WIDTH
    return BEST_ALUM * state.alum_dose / (state.alum_dose + needed + 1e-6) * exp(-off * off)


def held_back(params, deposit):
    """Return the fraction of the settled turbidity that the filters remove."""
    load = deposit / params.filter_capacity
    return BEST_FILTER * (1.0 - min(load**4, 1.0))


def demand(params, thirst, time):
    """Return the town's demand in m3/s: lowest at 6:00, highest at 18:00."""
    return clipped(params.demand * thirst * (1.0 - params.demand_swing * sin(2.0 * pi * time / DAY)), 0.0, 1.0)


def drift(state, params, rng):
    """Disturb raw water and demand."""
    p, share = params, share_of(params.time_step, params.disturbance_time)
    turbidity = drifted(state.raw_turbidity, p.raw_turbidity, p.raw_turbidity_deviation, share, rng)
    alkalinity = drifted(state.raw_alkalinity, p.raw_alkalinity, p.raw_alkalinity_deviation, share, rng)
    state.raw_turbidity = clipped(turbidity, CLEAREST, MUDDIEST)
    state.raw_alkalinity = max(alkalinity, 0.1)
    state.raw_ph = drifted(state.raw_ph, p.raw_ph, p.raw_ph_deviation, share, rng)
    state.thirst = drifted(state.thirst, 1.0, p.demand_deviation, share, rng)
    state.time = state.time + p.time_step if state.time + p.time_step < DAY else 0.0
    state.demand = demand(params, state.thirst, state.time)


def tell(state, params):
    """Update the quantities derived from the state: pH, filtered turbidity and head loss."""
    state.ph = acidity(state.carbon, state.alkalinity)
    state.filtered_turbidity = state.settled_turbidity * (1.0 - held_back(params, state.deposit))
    load = state.deposit / params.filter_capacity
    state.head_loss = params.clean_resistance * state.flow / params.filter_area * (1.0 + CLOGGING * load)


def cost(state, params):
    """Return a step's cost: chemicals, pumping through the filters, wash water and turbidity."""
    chemicals = params.alum_cost * state.alum_dose + params.caustic_cost * state.caustic_dose
    pumping = params.pumping_cost * state.head_loss * state.flow / 1000.0
    washing = params.wash_cost * params.wash_flow * state.wash_share
    return chemicals * state.flow + pumping + washing + params.turbidity_cost * min(state.filtered_turbidity, 2.0)


def stores(state, params):
    """Return the value of the clear well's water less the cost of washing out the deposit, in units of reward."""
    held = params.well_area * state.level / params.time_step  # m3/s, for a step
    return params.water_value * held - params.deposit_cost * state.deposit


def read_sensors(state, rng):
    """Sample the errors of the sensors."""
    for k in range(8):
        state.sensor_errors[k] = noise(rng)


def observe(state, params, observation):
    errors, scale = state.sensor_errors, params.sensor_noise
    observation[0] = clipped(state.raw_turbidity * (1.0 + 0.02 * scale * errors[0]), 0.0, MUDDIEST)
    observation[1] = clipped(state.raw_ph + 0.03 * scale * errors[1], LEAST_PH, MOST_PH)
    observation[2] = clipped(state.raw_alkalinity, 0.0, 10.0)
    observation[3] = clipped(state.ph + 0.03 * scale * errors[2], LEAST_PH, MOST_PH)
    observation[4] = clipped(state.settled_turbidity * (1.0 + 0.02 * scale * errors[3]), 0.0, MUDDIEST)
    observation[5] = clipped(state.filtered_turbidity * (1.0 + 0.02 * scale * errors[4]), 0.0, MUDDIEST)
    observation[6] = clipped(state.well_turbidity * (1.0 + 0.02 * scale * errors[5]), 0.0, MUDDIEST)
    observation[7] = clipped(state.head_loss + 100.0 * scale * errors[6], 0.0, 1e6)
    observation[8] = clipped(state.level + 0.01 * scale * errors[7], 0.0, FULL)
    observation[9] = state.demand
    observation[10] = state.alum_dose
    observation[11] = state.caustic_dose
    observation[12] = state.flow
    observation[13] = state.wash_share
    observation[14] = sin(2.0 * pi * state.time / DAY)


def draw(state, params, canvas):
    canvas.view(0.0, 8.0, 0.0, 4.0, 800, 400)
    tanks = (state.raw_turbidity, state.settled_turbidity, 10.0 * state.filtered_turbidity)
    for k, turbidity in enumerate(tanks):  # basin, settler and filters: browner with turbidity
        left = 0.4 + 1.8 * k
        canvas.rectangle(left, 0.5, left + 1.5, 2.5, blended(SKY, WOOD, turbidity / 20.0))
    canvas.rectangle(4.0, 0.5, 5.5, 0.5 + 1.0 * state.deposit / params.filter_capacity, STONE)
    canvas.rectangle(5.8, 0.5, 7.6, 3.5, MIST)
    canvas.rectangle(5.8, 0.5, 7.6, 0.5 + 3.0 * state.level / FULL, blended(BLUE, WOOD, state.well_turbidity / 1.0))
    for limit in LEVELS:
        canvas.line(5.8, 0.5 + 3.0 * limit / FULL, 7.6, 0.5 + 3.0 * limit / FULL, 0.03, INK)
    canvas.line(0.4, 3.2, 0.4 + 1.5 * state.alum_dose / ALUM, 3.2, 0.15, WOOD)
    canvas.line(0.4, 2.9, 0.4 + 1.5 * state.caustic_dose / CAUSTIC, 2.9, 0.15, BLUE)


environment = Environment(
    "WaterTreatment-v0",
    state=State,
    params=Params,
    observation=Box(*np.array([limits for _, *limits in SIGNALS.values()], np.float32).T),
    action=Box(np.array([0.0, 0.0, LEAST_FLOW, 0.0], np.float32), np.array([ALUM, CAUSTIC, FLOW, WASH], np.float32)),
    max_steps=EPISODE,
    reset=reset,
    step=step,
    observe=observe,
    draw=draw,
    signals={name: unit for name, (unit, *_) in SIGNALS.items()},
    actuators={"alum_dose": "g/m3", "caustic_dose": "mol/m3", "flow": "m3/s", "wash_share": "1"},
    constraints=(
        Constraint("ph", value="ph", low=6.5, high=8.5, unit="1", penalty=1.0),
        Constraint("turbidity", value="well_turbidity", high=0.3, unit="NTU", penalty=1.0),
        Constraint("level", value="level", low=LEVELS[0], high=LEVELS[1], unit="m", penalty=1.0),
        Constraint("head_loss", value="head_loss", high=2e4, unit="Pa", penalty=1.0),
        Constraint("supply", value="level", low=0.3, unit="m", penalty=20.0, critical=True),
        Constraint("contamination", value="well_turbidity", high=1.0, unit="NTU", penalty=20.0, critical=True),
    ),
    scenarios={
        "nominal": {},
        "disturbed": {
            "raw_turbidity_deviation": 8.0,
            "raw_ph_deviation": 0.1,
            "raw_alkalinity_deviation": 0.08,
            "demand_deviation": 0.1,
            "sensor_noise": 1.0,
        },
        "degraded": {"filter_capacity": 700.0, "wash_rate": 0.002, "pump_lag": 300.0, "caustic_delay": 600.0},
    },
    controller=PID(
        Loop("settled_turbidity", "alum_dose", 4.0, gain=-4.0, integral_time=7200.0, bias=28.0),
        Loop("ph", "caustic_dose", 6.9, gain=0.1, integral_time=900.0, bias=0.1),
        Loop("level", "flow", 3.0, gain=0.1, integral_time=20000.0, bias=0.25),
        Loop("head_loss", "wash_share", 1e4, gain=-3e-6, integral_time=20000.0, bias=0.008),
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
    },
)
