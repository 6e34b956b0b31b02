"""Industrial Benchmark: control a machine whose fatigue, consumption and calibration respond late and noisily.

Hein, Depeweg, Tokic, Udluft, Hentschel, Runkler and Sterzing, "A benchmark environment motivated by industrial control
problems", IEEE SSCI 2017. Step for step it matches the package `industrial-benchmark-python` 2.0 if both sample the
same random numbers. All quantities are dimensionless: setpoint p, velocity v, gain g and shift h are between 0 and 100.
An action moves v by up to 1, g by 10 and h by 5.75. A step has four parts:

    operational cost   o = exp((2 p + 4 v + 2.5 g) / 100); 5 to 9 steps later 1/9, 2/9, 3/9, 2/9, 1/9 of it are paid
    miscalibration     m = (r^4 - 2 r^2 - k sin(phi) r) / l, with r the effective shift, stretched so that the
                       minimum is at max(|sin(phi)|, sin(15 deg)); the angle phi turns by 15 degrees per step,
                       back to 0 while the effective shift is small (the rotational symmetry of a Goldstone potential)
    fatigue            f = max(0, 30000 / (5 v + 100) - g^2 / 100) (1 + 2 alpha) / 3, with alpha sampled from 0 to 1,
                       larger once a hidden state of v or g has exceeded 1.2, from which it grows by itself
    consumption        c = e - normal (1 + e / 200), e = delayed operational cost + 25 (m + 1)

    reward = -(c + 3 f)
"""

from math import exp, log, pi, sin, sqrt

import numpy as np

from velocirl import Box, Constraint, Environment, between, bool_, float32, int32, random, record
from velocirl.controllers import PID, Loop
from velocirl.engine.canvas import AMBER, BLUE, RED, STONE, TEAL, VIOLET
from velocirl.environments.plants.instruments import clipped

# Effect of actions on the steerings; an optimal shift is never turned by more than 15 degrees.
VELOCITY_STEP, GAIN_STEP = 1.0, 10.0
LARGEST_TURN = sin(pi / 12.0)
SHIFT_RANGE, SHIFT_BY_SETPOINT = 1.5, 0.02
SHIFT_SCALE = 2.0 * SHIFT_RANGE + 100.0 * SHIFT_BY_SETPOINT
SHIFT_STEP = LARGEST_TURN / 0.9 * 100.0 / SHIFT_SCALE
SAFE_SHIFT = LARGEST_TURN / 2.0  # within which the calibration recovers

# Operational cost.
SETPOINT_COST, VELOCITY_COST, GAIN_COST = 0.02, 0.04, 0.025
PAID = (0.11111, 0.22222, 0.33333, 0.22222, 0.11111)  # fractions of the costs of 9, 8, ... 5 steps ago

# Fatigue.
TOLERANCE = 0.05  # effective velocity or gain below which its hidden state is reset
RUNAWAY, WORST = 1.2, 5.0  # hidden states at which they start to grow by themselves, and their maximum
NOISE_SCALE = 0.1  # of the exponential distribution
WORST_MEAN, WORST_DEVIATION = 2.4, 0.4  # of alpha's logit when a hidden state is at its maximum

# Weights of the costs.
FATIGUE_WEIGHT, CALIBRATION_WEIGHT, CONSUMPTION_NOISE = 3.0, 25.0, 0.005

# Potential of miscalibration: its tilt, its norm, and for each angle its minimum and where that must lie.
QUARTER = 6  # steps of the angle from 0 to 90 degrees
TILT = 8.0 * sqrt(2.0 / 27.0)
SINES = np.sin(np.arange(-QUARTER, QUARTER + 1) * pi / (2.0 * QUARTER))
MINIMA = np.array([np.roots([4.0, 0.0, -4.0, -TILT * abs(sine)]).real.max() for sine in SINES])
NORM = 2.0 * MINIMA[-1] ** 2 - MINIMA[-1] ** 4 + TILT * MINIMA[-1]
OPTIMA = np.maximum(np.abs(SINES), LARGEST_TURN)
EXPONENTS = (2.0 - OPTIMA) / (2.0 - MINIMA)
STRETCHES = (2.0 - MINIMA) / (2.0 - OPTIMA) ** EXPONENTS

SIGNALS = {  # name: unit, range
    "setpoint": ("1", 0.0, 100.0),
    "velocity": ("1", 0.0, 100.0),
    "gain": ("1", 0.0, 100.0),
    "shift": ("1", 0.0, 100.0),
    "fatigue": ("1", 0.0, 300.0),
    "consumption": ("1", -50.0, 6000.0),
}
LEAST, MOST = (np.array([signal[k] for signal in SIGNALS.values()], np.float32) for k in (1, 2))
ACTUATORS = {"velocity_change": "1", "gain_change": "1", "shift_change": "1"}


@record
class State:
    setpoint: float32
    velocity: float32
    gain: float32
    shift: float32
    effective_shift: float32
    hidden_velocity: float32
    hidden_gain: float32
    fatigue: float32
    consumption: float32
    costs: float32[10]  # operational costs, oldest first
    angle: int32 = between(-QUARTER, QUARTER)  # phi, in steps of 15 degrees
    domain: int32 = between(-1, 1)  # sign of the last large shift
    response: int32 = between(-1, 1)  # 1 while turning is advantageous, -1 after a quarter turn
    drift: float32  # of the setpoint per step
    drift_left: int32 = between(0, 99)  # remaining steps of this drift


@record
class Params:
    setpoint: float32 = between(0.0, 100.0, default=50.0)  # initial setpoint, constant unless it varies
    varies: bool_ = False
    amplification: float32 = between(1.0, 2.0, default=1.1)  # growth factor of hidden states that grow by themselves


def reset(state, params, rng):
    state.setpoint = params.setpoint
    state.velocity, state.gain, state.shift = 50.0, 50.0, 50.0
    state.hidden_velocity, state.hidden_gain = 0.0, 0.0
    state.angle, state.domain, state.response = 0, 1, 1
    begin_drift(state, random.uniform(rng), random.uniform(rng), random.uniform(rng))
    if params.varies:
        vary(state, vary_draws(rng))
    for k in range(10):
        state.costs[k] = operational_cost(state)
    wear(state, params, wear_draws(rng))
    calibrate(state, 0.0)
    consume(state, random.normal(rng))


def step(state, params, action, rng):
    if params.varies:
        vary(state, vary_draws(rng))
    velocity, gain, shift = clipped(action[0], -1.0, 1.0), clipped(action[1], -1.0, 1.0), clipped(action[2], -1.0, 1.0)
    state.velocity = clipped(state.velocity + VELOCITY_STEP * velocity, 0.0, 100.0)
    state.gain = clipped(state.gain + GAIN_STEP * gain, 0.0, 100.0)
    wear(state, params, wear_draws(rng))
    for k in range(9):
        state.costs[k] = state.costs[k + 1]
    state.costs[9] = operational_cost(state)
    calibrate(state, shift)
    consume(state, random.normal(rng))
    return -(state.consumption + FATIGUE_WEIGHT * state.fatigue), False


def begin_drift(state, length, slope, rest):
    """Start a drift of the setpoint for 1 to 99 steps, zero with probability 0.1, from uniform random numbers."""
    state.drift_left = 1 + int(99.0 * length)
    state.drift = 0.0 if rest < 0.1 else 2.0 * slope - 1.0


def vary_draws(rng):
    """Sample the random numbers of a varying setpoint: four uniform ones."""
    return random.uniform(rng), random.uniform(rng), random.uniform(rng), random.uniform(rng)


def vary(state, draws):
    """Move the setpoint along its drift; at the ends of its range the drift reverses with probability 0.5."""
    length, slope, rest, turn = draws
    if state.drift_left == 0:
        begin_drift(state, length, slope, rest)
    moved = state.setpoint + state.drift
    if (moved > 100.0 or moved < 0.0) and turn > 0.5:
        state.drift = -state.drift
    state.setpoint = clipped(moved, 0.0, 100.0)
    state.drift_left -= 1


def operational_cost(state):
    return exp(SETPOINT_COST * state.setpoint + VELOCITY_COST * state.velocity + GAIN_COST * state.gain)


def wear_draws(rng):
    """Sample the random numbers of fatigue: three uniform ones each for velocity and gain, and one normal one."""
    of_velocity = (random.uniform(rng), random.uniform(rng), random.uniform(rng))
    of_gain = (random.uniform(rng), random.uniform(rng), random.uniform(rng))
    return of_velocity, of_gain, random.normal(rng)


def wear(state, params, draws):
    """Update fatigue and its hidden states from velocity and gain."""
    of_velocity, of_gain, worst = draws
    p, v, g = state.setpoint, state.velocity, state.gain

    # Effective velocity and gain, between 0 and 1: 0 is gentle to the machine.
    gentlest, harshest = (p + 2.0) / (201.0 - p), (p + 102.0) / (101.0 - p)
    velocity = ((g + p + 2.0) / (v + 101.0 - p) - gentlest) / (harshest - gentlest)
    gain = (1.0 / (g + p + 1.0) - 1.0 / (p + 101.0)) / (1.0 / (p + 1.0) - 1.0 / (p + 101.0))

    velocity_noise, gain_noise = burst(velocity, of_velocity), burst(gain, of_gain)
    state.hidden_velocity = hidden(state.hidden_velocity, velocity, velocity_noise, params.amplification)
    state.hidden_gain = hidden(state.hidden_gain, gain, gain_noise, params.amplification)
    alpha = max(velocity_noise, gain_noise)
    if max(state.hidden_velocity, state.hidden_gain) == WORST:
        alpha = logistic(WORST_MEAN + WORST_DEVIATION * worst)
    basic = max(0.0, 30000.0 / (5.0 * v + 100.0) - 0.01 * g * g)
    state.fatigue = basic * (1.0 + 2.0 * alpha) / 3.0


def logistic(x):
    return 1.0 / (1.0 + exp(-x))


def burst(effective, draws):
    """Return noise between 0 and 1: always a little, and with probability `effective` a large burst."""
    noise = 2.0 * logistic(-NOISE_SCALE * log(1.0 - draws[0])) - 1.0
    strikes = draws[2] < clipped(effective, 0.001, 0.999)
    return noise + (1.0 - noise) * draws[1] * (effective if strikes else 0.0)


def hidden(before, effective, noise, amplification):
    """Return the hidden state of velocity or gain one step later."""
    if effective <= TOLERANCE:
        return effective
    if before >= RUNAWAY:
        return min(WORST, amplification * before)
    return 0.9 * before + noise / 3.0


def calibrate(state, change):
    """Move the shift, and turn the potential's angle depending on the effective shift."""
    state.shift = clipped(state.shift + SHIFT_STEP * change, 0.0, 100.0)
    effective = SHIFT_SCALE / 100.0 * state.shift - SHIFT_BY_SETPOINT * state.setpoint - SHIFT_RANGE
    state.effective_shift = clipped(effective, -SHIFT_RANGE, SHIFT_RANGE)
    side = 1 if state.effective_shift > 0.0 else -1
    if abs(state.effective_shift) <= SAFE_SHIFT:
        state.angle -= min(max(state.angle, -1), 1)
    else:
        if side != state.domain:
            state.domain, state.response = side, 1
        if state.angle != -state.domain * QUARTER:
            state.angle += state.response * side
    if abs(state.angle) >= QUARTER:
        state.response = -1
        state.angle = (2 * QUARTER if state.angle > 0 else -2 * QUARTER) - state.angle
    if state.angle == 0 and abs(state.effective_shift) <= SAFE_SHIFT:
        state.domain, state.response = 1, 1


def miscalibration(state):
    """Return the potential at the effective shift; -1 is the optimum."""
    k = state.angle + QUARTER
    size = abs(state.effective_shift)
    beyond = max(size - OPTIMA[k], 0.0)
    radius = size * MINIMA[k] / OPTIMA[k] if beyond == 0.0 else MINIMA[k] + STRETCHES[k] * beyond ** EXPONENTS[k]
    square = radius * radius
    tilted = -radius if state.effective_shift < 0.0 else radius
    return (square * square - 2.0 * square - TILT * SINES[k] * tilted) / NORM


def consume(state, chance):
    """Update the consumption from delayed operational costs and miscalibration."""
    expected = CALIBRATION_WEIGHT * (miscalibration(state) + 1.0)
    for k in range(5):
        expected += PAID[k] * state.costs[k]
    state.consumption = expected - chance * (1.0 + CONSUMPTION_NOISE * expected)


def observe(state, params, observation):
    observation[0] = state.setpoint
    observation[1] = state.velocity
    observation[2] = state.gain
    observation[3] = state.shift
    observation[4] = state.fatigue
    observation[5] = state.consumption


def draw(state, params, canvas):
    canvas.view(0.0, 6.0, 0.0, 100.0)
    colors = (STONE, TEAL, BLUE, VIOLET, RED, AMBER)
    heights = (state.setpoint, state.velocity, state.gain, state.shift, state.fatigue, 0.5 * state.consumption)
    for k, (height, color) in enumerate(zip(heights, colors, strict=True)):
        canvas.rectangle(k + 0.1, 0.0, k + 0.9, height, color)


# Moves to a good operating point and stays there; does not exploit well-timed shifts.
CONTROLLER = PID(
    Loop("velocity", "velocity_change", 45.0, gain=1.0 / VELOCITY_STEP),
    Loop("gain", "gain_change", 50.0, gain=1.0 / GAIN_STEP),
    Loop("shift", "shift_change", 50.0, gain=1.0 / SHIFT_STEP),
    time_step=1.0,
)

environment = Environment(
    "IndustrialBenchmark-v0",
    state=State,
    params=Params,
    observation=Box(LEAST, MOST),
    action=Box(-1.0, 1.0, (3,)),
    max_steps=1000,
    time_step=1.0,  # s, for the controller: the paper defines no duration of a step
    reset=reset,
    step=step,
    observe=observe,
    draw=draw,
    signals={name: signal[0] for name, signal in SIGNALS.items()},
    actuators=ACTUATORS,
    constraints=(  # no penalties, not critical: rewards and episodes match the paper
        Constraint("fatigue", value="fatigue", high=75.0, unit="1"),
        Constraint("consumption", value="consumption", high=150.0, unit="1"),
    ),
    scenarios={"nominal": {}, "disturbed": {"varies": True}, "degraded": {"setpoint": 70.0, "amplification": 1.3}},
    controller=CONTROLLER,
    presets={
        "ppo": {
            "total_steps": 2_000_000,
            "learning_rate": 1e-3,
            "normalise_observations": True,
            "normalise_rewards": True,
        },
    },
)
