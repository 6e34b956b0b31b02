"""PowerGrid: keep a network of six buses at 50 Hz, with lines within their ratings and voltages within their band.

A steam, a gas and a hydro unit (buses 1 to 3) supply three towns (buses 4 to 6) over eight lines. There is a wind farm
and a static var compensator at bus 5 and a battery at bus 6. Every second the dispatcher sets the power of units and
battery, the terminal voltages of the units and the reactive power of the compensator. Fuel is expensive at the gas unit
and cheap at the steam unit, whose lines are too weak for its full power.

All units swing together, at the frequency of their center of inertia (Kundur, "Power System Stability and Control",
1994, chapters 3 and 11):

    df/dt   = f0 / (2 H S) (sum(Pm) + Pb + Pwind - Pload - Ploss - D Pload (f - f0) / f0)
    dPm/dt  = (limited(Pset - Pmax (f - f0) / (R f0)) - Pm) / T         turbines with droop R; Pset obeys its ramp
    dPb/dt  = (Pcommand - Pb) / Tb                                      the battery's converter

The imbalance changes the speed of the units, in proportion to their inertia, and does not enter the network. Flows
follow the direct-current approximation, voltages the decoupled power flow (`power_network`):

    F = PTDF Pin        B'' V = Q, with x F^2 / 2 drawn at either end of a line        Ploss = sum(r F^2 / V^2)

Units: s, Hz, MW, Mvar, MWh, EUR; voltages per unit of the nominal one, impedances per unit on a base of 100 MVA. The
reward is the profit of a second, as a fraction of the income at the nominal load, less a cost of frequency deviations.
"""

from math import sqrt

import numpy as np

from velocirl import Box, Constraint, Environment, between, float32, random, record
from velocirl.controllers import PID, Loop
from velocirl.engine.canvas import AMBER, BLUE, GREEN, MEADOW, MIST, RED, SLATE, TEAL
from velocirl.environments.plants.instruments import clipped, delayed, drifted, lagged, noise, share_of
from velocirl.environments.plants.pictures import blended
from velocirl.environments.plants.power_network import (
    BUSES,
    LINES,
    TOWNS,
    UNITS,
    highest_voltage,
    loading,
    lowest_voltage,
    transmit,
)  # fmt: skip

NOMINAL_FREQUENCY = 50.0  # Hz
TIME_STEP = 1.0  # s, a cycle of the dispatcher
PART = 0.25  # s, integration step
HOUR = 3600.0  # s
FORECAST = 300.0  # s ahead
WIND_PERSISTENCE = 0.1  # fraction of a deviation from the mean that remains by then

STEAM_POWER, GAS_POWER, HYDRO_POWER = 300.0, 250.0, 200.0  # MW, maximum of each unit
BATTERY_POWER, BATTERY_ENERGY = 50.0, 25.0  # MW, MWh
WIND_POWER = 150.0  # MW
COMPENSATOR_POWER = 100.0  # Mvar
TOWN_LOADS = (200.0, 240.0, 160.0)  # MW, at buses 4 to 6 at a load level of 1
TOTAL_LOAD = sum(TOWN_LOADS)

SIGNALS = {  # name: unit, range of the instrument
    "frequency": ("Hz", 45.0, 55.0),
    "frequency_change": ("Hz/s", -10.0, 10.0),
    "steam_power": ("MW", 0.0, 400.0),
    "gas_power": ("MW", 0.0, 400.0),
    "hydro_power": ("MW", 0.0, 400.0),
    "battery_power": ("MW", -60.0, 60.0),
    "battery_charge": ("MWh", 0.0, 30.0),
    "load_4": ("MW", 0.0, 500.0),
    "load_5": ("MW", 0.0, 500.0),
    "load_6": ("MW", 0.0, 500.0),
    "wind_power": ("MW", 0.0, 200.0),
    **{f"flow_{line[0]}_{line[1]}": ("MW", -400.0, 400.0) for line in LINES},
    **{f"voltage_{bus}": ("p.u.", 0.5, 1.5) for bus in range(1, BUSES + 1)},
    "steam_reactive": ("Mvar", -500.0, 500.0),
    "gas_reactive": ("Mvar", -500.0, 500.0),
    "hydro_reactive": ("Mvar", -500.0, 500.0),
    "compensator_reactive": ("Mvar", -500.0, 500.0),
    "losses": ("MW", 0.0, 200.0),
    "load_forecast": ("MW", 0.0, 1500.0),
    "wind_forecast": ("MW", 0.0, 200.0),
}
LEAST, MOST = (np.array([signal[k] for signal in SIGNALS.values()], np.float32) for k in (1, 2))
ACTUATORS = {  # name: unit, range
    "steam_setpoint": ("MW", 0.0, STEAM_POWER),
    "gas_setpoint": ("MW", 0.0, GAS_POWER),
    "hydro_setpoint": ("MW", 0.0, HYDRO_POWER),
    "battery_setpoint": ("MW", -BATTERY_POWER, BATTERY_POWER),
    "voltage_setpoint_1": ("p.u.", 0.92, 1.10),
    "voltage_setpoint_2": ("p.u.", 0.92, 1.10),
    "voltage_setpoint_3": ("p.u.", 0.92, 1.10),
    "compensator_setpoint": ("Mvar", -COMPENSATOR_POWER, COMPENSATOR_POWER),
}
LOWEST, HIGHEST = (np.array([actuator[k] for actuator in ACTUATORS.values()], np.float32) for k in (1, 2))


@record
class State:
    frequency: float32  # Hz
    frequency_change: float32  # Hz/s, over the last second
    power: float32[3]  # MW of steam, gas and hydro turbines
    setpoint: float32[3]  # MW, setpoints after ramp limits
    steam_commands: float32[4]  # MW, newest first: commands still within the delay
    gas_commands: float32[4]
    hydro_commands: float32[4]
    battery: float32  # MW, positive when discharging
    charge: float32  # MWh
    voltage: float32[6]  # p.u.
    reactive: float32[3]  # Mvar of the units
    compensator: float32  # Mvar
    load: float32[3]  # MW of the towns
    stray: float32[3]  # deviation of each town's load from the common level, as a fraction of its nominal load
    wind: float32  # MW
    flow: float32[8]  # MW of the lines
    losses: float32  # MW
    load_level: float32  # of all towns, as a fraction of their nominal load
    load_ramp: float32  # 1/s
    sensor_errors: float32[8]  # of frequency, loads, wind and voltages of the towns, in standard deviations


@record
class Params:
    inertia: float32 = between(2.0, 20.0, default=5.0)  # s, H, based on the total power of the units
    damping: float32 = between(0.0, 5.0, default=1.0)  # D, percent of load per percent of frequency
    droop: float32 = between(0.02, 0.2, default=0.05)  # R
    steam_lag: float32 = between(1.0, 60.0, default=6.0)  # s
    gas_lag: float32 = between(0.5, 60.0, default=1.0)
    hydro_lag: float32 = between(0.5, 60.0, default=2.0)
    battery_lag: float32 = between(0.25, 10.0, default=0.25)
    exciter_lag: float32 = between(0.0, 10.0, default=0.8)  # s, of a unit's voltage and of the compensator
    command_delay: float32 = between(0.0, 4.0, default=0.2)  # s, to the units
    steam_ramp: float32 = between(0.0, 100.0, default=0.5)  # MW/s
    gas_ramp: float32 = between(0.0, 100.0, default=2.0)
    hydro_ramp: float32 = between(0.0, 100.0, default=4.0)
    steam_limit: float32 = between(0.0, STEAM_POWER, default=STEAM_POWER)  # MW, maximum of the steam unit
    power_factor: float32 = between(0.0, 1.0, default=0.3)  # reactive over active power of the towns
    lowest_level: float32 = between(0.5, 1.2, default=0.85)  # of the load at reset
    highest_level: float32 = between(0.5, 1.2, default=1.05)
    steepest_ramp: float32 = between(0.0, 0.01, default=0.0002)  # 1/s, of the load level
    load_deviation: float32 = between(0.0, 0.2, default=0.015)  # of a town's load from the level, as a fraction
    load_step: float32 = between(0.0, 0.5, default=0.0)  # fraction of a town's load that changes at once
    load_step_rate: float32 = between(0.0, 1.0, default=0.0)  # 1/s, rate of such steps
    wind_mean: float32 = between(0.0, 150.0, default=80.0)  # MW
    wind_deviation: float32 = between(0.0, 50.0, default=8.0)  # MW
    memory: float32 = between(1.0, 1e6, default=120.0)  # s, correlation time of these deviations
    sensor_noise: float32 = between(0.0, 10.0, default=0.0)  # 1: 2 mHz, meters of load and wind 0.5 MW, voltages 0.001
    price: float32 = 80.0  # EUR/MWh paid by the towns
    steam_cost: float32 = 22.0  # EUR/MWh, rising with the load by `rising_cost`
    gas_cost: float32 = 70.0
    hydro_cost: float32 = 30.0
    rising_cost: float32 = 0.03  # EUR/MWh per MW
    storage_value: float32 = 70.0  # EUR/MWh of stored energy: about what gas would cost instead
    battery_wear: float32 = 8.0  # EUR/MWh
    frequency_cost: float32 = 0.1  # reward lost at a deviation of 0.2 Hz


def reset(state, params, rng):
    # Powers are computed in double precision, so that they round alike on all devices: flows between the towns are
    # small differences of large powers.
    lowest, highest = np.float64(params.lowest_level), np.float64(params.highest_level)
    state.load_level = random.uniform(rng, lowest, highest)
    state.load_ramp = random.uniform(rng, -params.steepest_ramp, params.steepest_ramp)
    gust = np.float64(params.wind_deviation) * noise(rng)
    state.wind = clipped(params.wind_mean + gust, 0.0, WIND_POWER)
    state.charge = BATTERY_ENERGY * random.uniform(rng, 0.4, 0.6)
    for town in range(TOWNS):
        state.stray[town] = 0.0
        state.load[town] = TOWN_LOADS[town] * state.load_level
    for sensor in range(8):
        state.sensor_errors[sensor] = 0.0
    # The units share the load evenly, so that the network is in balance except for its losses.
    needed = (TOTAL_LOAD * np.float64(state.load_level) - state.wind) / (STEAM_POWER + GAS_POWER + HYDRO_POWER)
    state.power[0], state.power[1], state.power[2] = STEAM_POWER * needed, GAS_POWER * needed, HYDRO_POWER * needed
    for unit in range(UNITS):
        state.setpoint[unit] = state.power[unit]
        state.voltage[unit] = 1.03
    for k in range(4):
        state.steam_commands[k] = state.power[0]
        state.gas_commands[k] = state.power[1]
        state.hydro_commands[k] = state.power[2]
    state.frequency, state.frequency_change, state.battery = NOMINAL_FREQUENCY, 0.0, 0.0
    state.compensator, state.losses = 0.0, 0.0
    transmit(state, params)


def step(state, params, action, rng):
    disturb(state, params, rng)
    late = params.command_delay / TIME_STEP
    steam = delayed(state.steam_commands, clipped(action[0], 0.0, params.steam_limit), late)
    gas = delayed(state.gas_commands, clipped(action[1], 0.0, GAS_POWER), late)
    hydro = delayed(state.hydro_commands, clipped(action[2], 0.0, HYDRO_POWER), late)
    state.setpoint[0] = ramped(state.setpoint[0], steam, params.steam_ramp)
    state.setpoint[1] = ramped(state.setpoint[1], gas, params.gas_ramp)
    state.setpoint[2] = ramped(state.setpoint[2], hydro, params.hydro_ramp)

    # The battery's power is limited by its charge and its free capacity.
    held = state.charge * (HOUR / TIME_STEP)
    room = (BATTERY_ENERGY - state.charge) * (HOUR / TIME_STEP)
    battery = clipped(clipped(action[3], -BATTERY_POWER, BATTERY_POWER), -room, held)

    # Fourth-order Runge-Kutta in fractions of a second; written out, so that fleets are vectorized.
    demand = state.load[0] + state.load[1] + state.load[2]
    steady = state.wind - demand - state.losses
    told = (state.setpoint[0], state.setpoint[1], state.setpoint[2], battery, steady, demand)
    before = state.frequency
    point = (before, state.power[0], state.power[1], state.power[2], state.battery)
    point = advanced(params, point, told)
    point = advanced(params, point, told)
    point = advanced(params, point, told)
    point = advanced(params, point, told)
    state.frequency, state.power[0], state.power[1], state.power[2], state.battery = point
    state.frequency_change = (state.frequency - before) / TIME_STEP
    state.charge = clipped(state.charge - state.battery * (TIME_STEP / HOUR), 0.0, BATTERY_ENERGY)

    # Reactive power follows from small differences of voltages: double precision rounds them alike on all devices.
    exciter = share_of(TIME_STEP, np.float64(params.exciter_lag))
    for unit in range(UNITS):
        wanted = clipped(action[4 + unit], LOWEST[4], HIGHEST[4])
        state.voltage[unit] = lagged(np.float64(state.voltage[unit]), np.float64(wanted), exciter)
    wanted = clipped(action[7], -COMPENSATOR_POWER, COMPENSATOR_POWER)
    state.compensator = lagged(state.compensator, wanted, exciter)
    transmit(state, params)
    return margin(state, params), False


def disturb(state, params, rng):
    """Disturb loads and wind, and sample the errors of the sensors."""
    state.load_level = clipped(state.load_level + state.load_ramp * TIME_STEP, 0.6, 1.2)
    share = share_of(TIME_STEP, params.memory)
    spread = params.load_deviation * sqrt(share * (2.0 - share))
    for town in range(TOWNS):
        chance = random.uniform(rng, -1.0, 1.0)
        jump = params.load_step if abs(chance) < params.load_step_rate * TIME_STEP else 0.0
        stray = (1.0 - share) * state.stray[town] + spread * noise(rng) + (jump if chance > 0.0 else -jump)
        state.stray[town] = clipped(stray, -0.3, 0.3)
        state.load[town] = TOWN_LOADS[town] * (state.load_level + state.stray[town])
    wind = drifted(state.wind, params.wind_mean, params.wind_deviation, share, rng)
    state.wind = clipped(wind, 0.0, WIND_POWER)
    for sensor in range(8):
        state.sensor_errors[sensor] = noise(rng)


def ramped(setpoint, command, ramp):
    """Move a unit's setpoint toward its command, limited by its ramp."""
    return setpoint + clipped(command - setpoint, -ramp * TIME_STEP, ramp * TIME_STEP)


def slope(params, point, told):
    """Return the derivatives of frequency, turbines and battery under constant commands."""
    frequency, steam, gas, hydro, battery = point
    deviation = (frequency - NOMINAL_FREQUENCY) / NOMINAL_FREQUENCY
    support = deviation / params.droop  # droop's reduction of a unit's power, as a fraction of its maximum
    surplus = steam + gas + hydro + battery + told[4] - params.damping * told[5] * deviation
    return (
        NOMINAL_FREQUENCY / (2.0 * params.inertia * (STEAM_POWER + GAS_POWER + HYDRO_POWER)) * surplus,
        (clipped(told[0] - STEAM_POWER * support, 0.0, params.steam_limit) - steam) / params.steam_lag,
        (clipped(told[1] - GAS_POWER * support, 0.0, GAS_POWER) - gas) / params.gas_lag,
        (clipped(told[2] - HYDRO_POWER * support, 0.0, HYDRO_POWER) - hydro) / params.hydro_lag,
        (told[3] - battery) / params.battery_lag,
    )


def ahead(point, slope, time):
    """Return the point reached after `time` along a slope."""
    return (
        point[0] + time * slope[0],
        point[1] + time * slope[1],
        point[2] + time * slope[2],
        point[3] + time * slope[3],
        point[4] + time * slope[4],
    )


def advanced(params, point, told):
    """Return the point one integration step later."""
    slope1 = slope(params, point, told)
    slope2 = slope(params, ahead(point, slope1, PART / 2.0), told)
    slope3 = slope(params, ahead(point, slope2, PART / 2.0), told)
    slope4 = slope(params, ahead(point, slope3, PART), told)
    end = ahead(ahead(point, slope1, PART / 6.0), slope2, PART / 3.0)
    return ahead(ahead(end, slope3, PART / 3.0), slope4, PART / 6.0)


def margin(state, params):
    """Return the reward: a second's profit as a fraction of the nominal income, less a cost of frequency deviations."""
    steam, gas, hydro = state.power[0], state.power[1], state.power[2]
    cost = (
        (params.steam_cost + params.rising_cost * steam) * steam
        + (params.gas_cost + params.rising_cost * gas) * gas
        + (params.hydro_cost + params.rising_cost * hydro) * hydro
        + params.storage_value * state.battery
        + params.battery_wear * abs(state.battery)
    )
    income = params.price * (state.load[0] + state.load[1] + state.load[2])
    off = (state.frequency - NOMINAL_FREQUENCY) / 0.2
    return (income - cost) / (params.price * TOTAL_LOAD) - params.frequency_cost * off * off


def observe(state, params, observation):
    errors = state.sensor_errors
    hertz, megawatt, per_unit = 0.002 * params.sensor_noise, 0.5 * params.sensor_noise, 0.001 * params.sensor_noise
    observation[0] = state.frequency + hertz * errors[0]
    observation[1] = state.frequency_change
    for unit in range(TOWNS):
        observation[2 + unit] = state.power[unit]
        observation[7 + unit] = state.load[unit] + megawatt * errors[1 + unit]
        observation[25 + unit] = state.reactive[unit]
        observation[19 + unit] = state.voltage[unit]
        observation[22 + unit] = state.voltage[3 + unit] + per_unit * errors[5 + unit]
    observation[5] = state.battery
    observation[6] = state.charge
    observation[10] = state.wind + megawatt * errors[4]
    for line in range(8):
        observation[11 + line] = state.flow[line]
    observation[28] = state.compensator
    observation[29] = state.losses
    observation[30] = TOTAL_LOAD * (state.load_level + FORECAST * state.load_ramp)
    observation[31] = params.wind_mean + WIND_PERSISTENCE * (state.wind - params.wind_mean)
    for signal in range(32):  # sensors have a range
        observation[signal] = clipped(observation[signal], LEAST[signal], MOST[signal])


def draw(state, params, canvas):
    canvas.view(0.0, 6.0, 0.0, 4.0)
    places = ((1.0, 3.0), (3.0, 3.4), (5.0, 3.0), (1.6, 1.4), (3.0, 0.9), (4.4, 1.4))
    for k, (start, end, *_, rating) in enumerate(LINES):
        loading = abs(state.flow[k]) / rating
        color = RED if loading > 1.0 else blended(MEADOW, AMBER, loading)
        canvas.line(*places[start - 1], *places[end - 1], 0.04 + 0.1 * loading, color)
    for bus, (x, y) in enumerate(places):
        size = 0.15 + 0.2 * (state.power[bus] if bus < UNITS else state.load[bus - UNITS]) / STEAM_POWER
        canvas.disc(x, y, size, TEAL if bus < UNITS else SLATE)
        canvas.disc(x, y, 0.1, blended(BLUE, RED, (state.voltage[bus] - 0.9) / 0.2))
    canvas.rectangle(5.4, 0.2, 5.4 + 0.4 * state.charge / BATTERY_ENERGY, 0.4, GREEN)
    off = 2.0 * clipped(state.frequency - NOMINAL_FREQUENCY, -1.0, 1.0)  # needle of a frequency meter
    canvas.line(1.0, 0.2, 5.0, 0.2, 0.05, MIST)
    canvas.disc(3.0 + off, 0.2, 0.1, GREEN if abs(off) < 0.4 else RED)


# Automatic generation control distributes the imbalance among the units in proportion to their size. The compensator
# holds the voltage at bus 5, and the battery returns to half of its charge.
CONTROLLER = PID(
    Loop("frequency", "steam_setpoint", 50.0, gain=20.0, integral_time=4.0, bias=200.0),
    Loop("frequency", "gas_setpoint", 50.0, gain=40.0, integral_time=4.0, bias=175.0),
    Loop("frequency", "hydro_setpoint", 50.0, gain=40.0, integral_time=4.0, bias=140.0),
    Loop("battery_charge", "battery_setpoint", 0.5 * BATTERY_ENERGY, gain=-2.0),
    Loop("voltage_5", "compensator_setpoint", 1.0, gain=400.0, integral_time=4.0),
    bias={"voltage_setpoint_1": 1.03, "voltage_setpoint_2": 1.03, "voltage_setpoint_3": 1.03},
    time_step=TIME_STEP,
)

LEARNING = {
    "total_steps": 750_000,
    "normalise_observations": True,
    "normalise_rewards": True,
    "gamma": 0.98,
    "log_deviation": -1.0,
    "entropy_coefficient": 0.0,
}

environment = Environment(
    "PowerGrid-v0",
    state=State,
    params=Params,
    observation=Box(LEAST, MOST),
    action=Box(LOWEST, HIGHEST),
    max_steps=600,
    time_step=TIME_STEP,
    reset=reset,
    step=step,
    observe=observe,
    draw=draw,
    signals={name: signal[0] for name, signal in SIGNALS.items()},
    actuators={name: actuator[0] for name, actuator in ACTUATORS.items()},
    constraints=(
        Constraint("frequency", value="frequency", low=49.0, high=51.0, unit="Hz", penalty=10.0, critical=True),
        Constraint("frequency_band", value="frequency", low=49.8, high=50.2, unit="Hz", penalty=1.0),
        Constraint("line_loading", value=loading, high=1.0, unit="1", penalty=1.0),
        Constraint("undervoltage", value=lowest_voltage, low=0.95, unit="p.u.", penalty=1.0),
        Constraint("overvoltage", value=highest_voltage, high=1.05, unit="p.u.", penalty=1.0),
        Constraint("battery_charge", value="charge", low=2.5, high=22.5, unit="MWh", penalty=1.0),
    ),
    scenarios={
        "nominal": {},
        "disturbed": {
            "load_step": 0.08,
            "load_step_rate": 0.005,
            "load_deviation": 0.03,
            "wind_deviation": 20.0,
            "sensor_noise": 1.0,
        },
        "degraded": {
            "steam_limit": 190.0,
            "gas_lag": 4.0,
            "hydro_ramp": 1.0,
            "inertia": 2.5,
            "exciter_lag": 4.0,
            "command_delay": 2.0,
        },
    },
    controller=CONTROLLER,
    presets={
        "ppo": {**LEARNING, "total_steps": 1_500_000, "learning_rate": 1e-3},
        "ppo-lagrangian": {**LEARNING, "proportional_gain": 0.1, "derivative_gain": 0.1},
    },
)
