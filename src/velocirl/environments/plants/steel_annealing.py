"""Steel annealing: heat a running strip to its grade's target temperature, as fast as the furnace can.

The strip passes three heating zones and a soaking zone, which radiate on both sides, and is then cooled by gas jets.
Each zone has two cells of strip, which moves through them at line speed (upwind differences). Each
heating zone has one temperature for its tubes and walls:

    dT/dt = -v (T - T_before) / l + 2 e sigma (W^4 - T^4) / (rho c d)        strip in a heating zone
    dT/dt = -v (T - T_before) / l - 2 h f (T - T_gas) / (rho c d)            strip between jets with flow f
    C dW/dt = P - k (W - T_hall) - 2 b l sum over both cells of e sigma (W^4 - T^4)

Radiation and convection at a thin plate: Incropera and DeWitt, "Fundamentals of Heat and Mass Transfer"; the upwind
method: LeVeque, "Finite Volume Methods for Hyperbolic Problems". Burners, drives and fans act with a lag, burners also
after a dead time. Coils of different thickness and grade follow each other. The passage of the seam between them is a
lag with the strip's residence time. The reward is the produced mass, weighted by how close soak and exit temperature
are to their targets, less energy. Heat taken from the tubes counts as energy. Tubes hotter than their constraint allows
would produce more. A strip that is too hot breaks.
"""

from math import exp

import numpy as np

from velocirl import Box, Constraint, Environment, between, float32, int32, random, record
from velocirl.controllers import PID, Loop
from velocirl.engine.canvas import AMBER, BLUE, INK, MIST, ORANGE, RED, SLATE, STONE
from velocirl.environments.plants.instruments import clipped, delayed, drifted, lagged, noise, share_of, shortfall
from velocirl.environments.plants.pictures import blended

STEFAN_BOLTZMANN = 5.67e-8  # W/(m2 K4)
DENSITY = 7850.0  # kg/m3
HEATED, ZONES = 4, 5  # zones with burners, and all zones
EPISODE = 360  # steps, half an hour
POWER, COOLING = 4e6, 1.0  # maximum: W per zone, fraction of the jets' flow
SLOWEST, FASTEST = 0.8, 4.0  # m/s
COLDEST, HOTTEST = 250.0, 1700.0  # K, range of the pyrometers
THINNEST, THICKEST = 0.6e-3, 1.2e-3  # m
SIGNALS = {
    **{f"strip_{k}_temperature": ("K", COLDEST, HOTTEST) for k in (1, 2, 3, 4, 5)},
    **{f"tube_{k}_temperature": ("K", COLDEST, HOTTEST) for k in (1, 2, 3, 4)},
    **{f"power_{k}": ("W", 0.0, POWER) for k in (1, 2, 3, 4)},
    "speed": ("m/s", 0.0, FASTEST),
    "cooling_flow": ("1", 0.0, COOLING),
    "entry_temperature": ("K", COLDEST, HOTTEST),
    "thickness": ("m", 0.0, 2e-3),
    "coil_thickness": ("m", 0.0, 2e-3),
    "soak_target": ("K", COLDEST, HOTTEST),
    "exit_target": ("K", COLDEST, HOTTEST),
}


@record
class State:
    early: float32[5]  # K, of the strip in the first half of each zone
    late: float32[5]  # K, in the second half, at the pyrometers
    tubes: float32[4]  # K, of the heating zones
    power: float32[4]  # W, actual power of the burners
    speed: float32  # m/s
    cooling_flow: float32  # fraction of the jets' full flow
    power_commands: float32[4, 4]  # W, for each zone newest first: commands still within the dead time
    entry_temperature: float32  # K
    thickness: float32  # m, of the strip in the furnace
    coil_thickness: float32  # m, of the entering coil
    coil_left: float32  # m, of the entering coil
    soak_target: float32  # K
    exit_target: float32  # K
    opening: float32  # J, heat of the tubes when last recorded
    elapsed: int32 = between(0, 2**31 - 1)  # steps since then
    sensor_errors: float32[9]  # of the first nine signals, in standard deviations


@record
class Params:
    time_step: float32 = between(1.0, 5.0, default=5.0)  # s
    cell_length: float32 = between(15.0, 50.0, default=20.0)  # m, half of a zone
    width: float32 = between(0.5, 2.0, default=1.2)  # m, of the strip
    strip_heat: float32 = between(500.0, 900.0, default=600.0)  # J/(kg K)
    emissivity: float32 = between(0.05, 0.4, default=0.25)  # of strip and tubes together
    jet_coefficient: float32 = between(0.0, 200.0, default=90.0)  # W/(m2 K), at full flow
    gas_temperature: float32 = between(280.0, 400.0, default=320.0)  # K, of the jets
    tube_capacity: float32 = between(1e6, 5e7, default=5e6)  # J/K, of a zone
    wall_loss: float32 = between(0.0, 5000.0, default=500.0)  # W/K, of a zone
    hall_temperature: float32 = between(260.0, 320.0, default=300.0)  # K
    burner_lag: float32 = between(0.0, 300.0, default=10.0)  # s
    burner_delay: float32 = between(0.0, 20.0, default=5.0)  # s, four time steps at most
    drive_lag: float32 = between(0.0, 60.0, default=5.0)  # s, of the drives of the line and of the fans
    tube_wear: float32 = between(0.0, 0.9, default=0.0)  # fraction of the power lost to worn burners
    entry_temperature: float32 = between(280.0, 500.0, default=310.0)  # K
    entry_deviation: float32 = between(0.0, 30.0, default=2.0)  # K
    disturbance_time: float32 = between(5.0, 1e5, default=120.0)  # s, correlation time of the entry temperature
    thickness: float32 = between(0.7e-3, 1.1e-3, default=0.8e-3)  # m, mean of the coils
    thickness_spread: float32 = between(0.0, 0.1e-3, default=0.04e-3)  # m, maximum deviation from the mean
    soak_temperature: float32 = between(1000.0, 1100.0, default=1070.0)  # K, mean target of the grades
    soak_spread: float32 = between(0.0, 30.0, default=5.0)  # K, maximum deviation from the mean
    exit_temperature: float32 = between(500.0, 900.0, default=720.0)  # K
    coil_length: float32 = between(200.0, 1e4, default=1200.0)  # m
    sensor_noise: float32 = between(0.0, 10.0, default=0.0)  # 1: pyrometers and thermocouples 2 K
    full_production: float32 = between(1.0, 100.0, default=25.0)  # kg/s, which earns 1 per step
    tolerance: float32 = between(1.0, 100.0, default=20.0)  # K, at which quality falls by a factor of e
    energy_cost: float32 = between(0.0, 1.0, default=0.02)  # per MW
    jet_cost: float32 = between(0.0, 1.0, default=0.05)  # at full flow


def reset(state, params, rng):
    profile = (450.0, 600.0, 740.0, 845.0, 945.0, 1010.0, 1045.0, 1068.0, 870.0, 720.0)  # K, along the strip
    shift = random.uniform(rng, -5.0, 5.0)
    for k in range(ZONES):
        state.early[k] = profile[2 * k] + shift
        state.late[k] = profile[2 * k + 1] + shift
    for k in range(HEATED):
        state.tubes[k] = SETPOINTS[k] + random.uniform(rng, -5.0, 5.0)
        state.power[k] = BIASES[k]
        for age in range(4):
            state.power_commands[k, age] = BIASES[k]
    state.speed = 1.9
    state.cooling_flow = 0.7
    state.entry_temperature = params.entry_temperature + params.entry_deviation * noise(rng)
    state.coil_thickness = params.thickness + params.thickness_spread * random.uniform(rng, -1.0, 1.0)
    state.thickness = state.coil_thickness
    state.coil_left = params.coil_length * random.uniform(rng, 0.3, 1.0)
    state.soak_target = params.soak_temperature + params.soak_spread * random.uniform(rng, -1.0, 1.0)
    state.exit_target = params.exit_temperature
    state.opening, state.elapsed = heat_of_tubes(state, params), 0
    read_sensors(state, rng)


def step(state, params, action, rng):
    time = params.time_step
    move_actuators(state, params, action)
    pass_through(state, params, time / 2.0)
    pass_through(state, params, time / 2.0)
    cooled = 1e-6 * shortfall(state, heat_of_tubes(state, params), EPISODE) / time  # MW
    reward = profit(state, params) - params.energy_cost * cooled
    bring_coils(state, params, rng)
    share = share_of(time, params.disturbance_time)
    state.entry_temperature = drifted(
        state.entry_temperature, params.entry_temperature, params.entry_deviation, share, rng
    )
    read_sensors(state, rng)
    return reward, False


def pass_through(state, params, time):
    """Advance strip and tubes by one step of the fourth-order Runge-Kutta method."""
    start = tuple_of(state)
    slope1 = slope(params, state, start)
    slope2 = slope(params, state, ahead(start, slope1, time / 2.0))
    slope3 = slope(params, state, ahead(start, slope2, time / 2.0))
    slope4 = slope(params, state, ahead(start, slope3, time))
    end = ahead(ahead(start, slope1, time / 6.0), slope2, time / 3.0)
    end = ahead(ahead(end, slope3, time / 3.0), slope4, time / 6.0)
    for k in range(ZONES):
        state.early[k] = clipped(end[0][k], COLDEST, HOTTEST)
        state.late[k] = clipped(end[1][k], COLDEST, HOTTEST)
    for k in range(HEATED):
        state.tubes[k] = clipped(end[2][k], COLDEST, HOTTEST)


def move_actuators(state, params, action):
    """Move burners, drives and fans toward their commands."""
    burner, drive = share_of(params.time_step, params.burner_lag), share_of(params.time_step, params.drive_lag)
    late = params.burner_delay / params.time_step
    for k in range(HEATED):
        wanted = delayed(state.power_commands[k], clipped(action[k], 0.0, POWER), late)
        state.power[k] = lagged(state.power[k], wanted, burner)
    state.speed = lagged(state.speed, clipped(action[4], SLOWEST, FASTEST), drive)
    state.cooling_flow = lagged(state.cooling_flow, clipped(action[5], 0.0, COOLING), drive)


def bring_coils(state, params, rng):
    """Move the strip, and start the next coil when one ends."""
    run = state.speed * params.time_step
    left = state.coil_left - run
    thickness = params.thickness + params.thickness_spread * random.uniform(rng, -1.0, 1.0)
    target = params.soak_temperature + params.soak_spread * random.uniform(rng, -1.0, 1.0)
    state.coil_thickness = thickness if left <= 0.0 else state.coil_thickness
    state.soak_target = target if left <= 0.0 else state.soak_target
    state.coil_left = left + params.coil_length if left <= 0.0 else left
    passing = 2.0 * HEATED * params.cell_length / state.speed  # s, residence time of the strip in the furnace
    state.thickness = lagged(state.thickness, state.coil_thickness, share_of(params.time_step, passing))


def tuple_of(state):
    """Return the temperatures of the strip in both halves of all zones, and of the tubes."""
    e, t, w = state.early, state.late, state.tubes
    return (e[0], e[1], e[2], e[3], e[4]), (t[0], t[1], t[2], t[3], t[4]), (w[0], w[1], w[2], w[3], 0.0)


def slope(params, state, point):
    """Return the derivatives of strip and tubes, with constant burners, speed and jets."""
    early, late, tubes = point
    first = heated(params, state, 0, state.entry_temperature, early[0], late[0], tubes[0])
    second = heated(params, state, 1, late[0], early[1], late[1], tubes[1])
    third = heated(params, state, 2, late[1], early[2], late[2], tubes[2])
    soaked = heated(params, state, 3, late[2], early[3], late[3], tubes[3])
    moving = state.speed / params.cell_length
    loss = 2.0 * params.jet_coefficient * state.cooling_flow / area_heat(params, state)
    gas = params.gas_temperature
    jets = (
        moving * (late[3] - early[4]) - loss * (early[4] - gas),
        moving * (early[4] - late[4]) - loss * (late[4] - gas),
    )
    return (
        (first[0], second[0], third[0], soaked[0], jets[0]),
        (first[1], second[1], third[1], soaked[1], jets[1]),
        (first[2], second[2], third[2], soaked[2], 0.0),
    )


def heated(params, state, k, before, early, late, tubes):
    """Return the derivatives of a heating zone: its strip in both halves and its tubes, in K/s."""
    moving = state.speed / params.cell_length
    to_early = radiated(params, tubes, early)
    to_late = radiated(params, tubes, late)
    heat = area_heat(params, state)
    given = params.width * params.cell_length * (to_early + to_late)
    burnt = (1.0 - params.tube_wear) * state.power[k]
    return (
        moving * (before - early) + to_early / heat,
        moving * (early - late) + to_late / heat,
        (burnt - params.wall_loss * (tubes - params.hall_temperature) - given) / params.tube_capacity,
    )


def radiated(params, tubes, strip):
    """Return the radiation from the tubes to both sides of the strip, in W/m2."""
    return 2.0 * params.emissivity * STEFAN_BOLTZMANN * (tubes**4 - strip**4)


def area_heat(params, state):
    """Return the heat capacity of a square meter of strip, in J/(m2 K)."""
    return DENSITY * params.strip_heat * state.thickness


def ahead(point, slope, time):
    """Return the point reached after `time` along a slope."""
    return moved(point[0], slope[0], time), moved(point[1], slope[1], time), moved(point[2], slope[2], time)


def moved(values, slopes, time):
    return (
        values[0] + time * slopes[0],
        values[1] + time * slopes[1],
        values[2] + time * slopes[2],
        values[3] + time * slopes[3],
        values[4] + time * slopes[4],
    )


def profit(state, params):
    """Return a step's profit: produced mass times quality, less fuel and the power of the jets."""
    mass = state.speed * state.thickness * params.width * DENSITY  # kg/s
    soak = (state.late[3] - state.soak_target) / params.tolerance
    leaving = (state.late[4] - state.exit_target) / (2.0 * params.tolerance)
    quality = 0.8 * exp(-soak * soak) + 0.2 * exp(-leaving * leaving)
    fuel = 1e-6 * (state.power[0] + state.power[1] + state.power[2] + state.power[3])  # MW
    return mass / params.full_production * quality - params.energy_cost * fuel - params.jet_cost * state.cooling_flow**3


def heat_of_tubes(state, params):
    """Return the heat in the tubes and walls of all heating zones above the hall's temperature, in J."""
    hotter = state.tubes[0] + state.tubes[1] + state.tubes[2] + state.tubes[3] - HEATED * params.hall_temperature
    return params.tube_capacity * hotter


def off_target(state, params):
    """Return the deviation of the strip from its soak target at the end of the soaking zone, in K."""
    return abs(state.late[3] - state.soak_target)


def hottest_tube(state, params):
    """Return the highest tube temperature, in K."""
    return max(max(state.tubes[0], state.tubes[1]), max(state.tubes[2], state.tubes[3]))


def hottest_strip(state, params):
    """Return the highest strip temperature, in K."""
    return max(max(state.late[1], state.late[2]), state.late[3])


def exit_temperature(state, params):
    """Return the exit temperature of the strip, in K."""
    return state.late[4]


def read_sensors(state, rng):
    """Sample the errors of the sensors."""
    for k in range(9):
        state.sensor_errors[k] = noise(rng)


def observe(state, params, observation):
    kelvin, errors = 2.0 * params.sensor_noise, state.sensor_errors
    for k in range(ZONES):
        observation[k] = clipped(state.late[k] + kelvin * errors[k], COLDEST, HOTTEST)
    for k in range(HEATED):
        observation[5 + k] = clipped(state.tubes[k] + kelvin * errors[5 + k], COLDEST, HOTTEST)
        observation[9 + k] = state.power[k]
    observation[13] = state.speed
    observation[14] = state.cooling_flow
    observation[15] = clipped(state.entry_temperature, COLDEST, HOTTEST)
    observation[16] = state.thickness
    observation[17] = state.coil_thickness
    observation[18] = state.soak_target
    observation[19] = state.exit_target


def draw(state, params, canvas):
    canvas.view(0.0, 11.0, 0.0, 4.0, 880, 320)
    for k in range(HEATED):
        canvas.rectangle(
            0.5 + 2.0 * k, 0.8, 2.4 + 2.0 * k, 3.2, blended(SLATE, ORANGE, (state.tubes[k] - 900.0) / 500.0)
        )
        canvas.rectangle(0.6 + 2.0 * k, 0.3, 0.6 + 2.0 * k + 1.7 * state.power[k] / POWER, 0.5, AMBER)
    canvas.rectangle(8.5, 0.8, 10.4, 3.2, blended(MIST, BLUE, state.cooling_flow))
    for k in range(ZONES):
        for half, temperature in enumerate((state.early[k], state.late[k])):
            left = 0.5 + 2.0 * k + half
            canvas.rectangle(left, 1.9, left + 1.0, 2.1, blended(STONE, RED, (temperature - 300.0) / 800.0))
    canvas.rectangle(0.6, 3.5, 0.6 + 9.8 * state.speed / FASTEST, 3.7, INK)


SETPOINTS = (1180.0, 1180.0, 1180.0, 1130.0)  # K, tube setpoints of the controller
BIASES = (2.95e6, 2.5e6, 1.85e6, 0.95e6)  # W

environment = Environment(
    "SteelAnnealing-v0",
    state=State,
    params=Params,
    observation=Box(*np.array([limits for _, *limits in SIGNALS.values()], np.float32).T),
    action=Box(
        np.array([0.0, 0.0, 0.0, 0.0, SLOWEST, 0.0], np.float32),
        np.array([POWER, POWER, POWER, POWER, FASTEST, COOLING], np.float32),
    ),
    max_steps=EPISODE,
    reset=reset,
    step=step,
    observe=observe,
    draw=draw,
    signals={name: unit for name, (unit, *_) in SIGNALS.items()},
    actuators={**{f"power_{k}": "W" for k in (1, 2, 3, 4)}, "speed": "m/s", "cooling_flow": "1"},
    constraints=(
        Constraint("soak", value=off_target, high=25.0, unit="K", penalty=0.3),
        Constraint("exit", value=exit_temperature, high=780.0, unit="K", penalty=0.3),
        Constraint("tubes", value=hottest_tube, high=1250.0, unit="K", penalty=0.3),
        Constraint("strip_break", value=hottest_strip, high=1140.0, unit="K", penalty=20.0, critical=True),
    ),
    scenarios={
        "nominal": {},
        "disturbed": {"entry_deviation": 10.0, "thickness_spread": 0.08e-3, "soak_spread": 10.0, "sensor_noise": 1.0},
        "degraded": {
            "emissivity": 0.22,
            "tube_wear": 0.15,
            "burner_lag": 30.0,
            "burner_delay": 15.0,
            "drive_lag": 10.0,
        },
    },
    controller=PID(
        *(
            Loop(f"tube_{k}_temperature", f"power_{k}", setpoint, gain=4e4, integral_time=300.0, bias=bias)
            for k, setpoint, bias in zip((1, 2, 3, 4), SETPOINTS, BIASES, strict=True)
        ),
        Loop("strip_4_temperature", "speed", "soak_target", gain=-0.01, integral_time=40.0, bias=1.9),
        Loop("strip_5_temperature", "cooling_flow", "exit_target", gain=-0.002, integral_time=20.0, bias=0.7),
        time_step=5.0,
    ),
    presets={
        "ppo": {
            "total_steps": 2_000_000,
            "gamma": 0.98,
            "learning_rate": 1e-3,
            "log_deviation": -1.0,
            "entropy_coefficient": 0.0,
            "normalise_observations": True,
            "normalise_rewards": True,
        },
    },
)
