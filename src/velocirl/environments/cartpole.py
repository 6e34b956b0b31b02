"""CartPole: keep a pole upright on a cart by pushing it left or right (Barto, Sutton and Anderson, 1983)."""

from math import cos, inf, pi, sin

from velocirl import Box, Discrete, Environment, float32, random, record
from velocirl.engine.canvas import AMBER, INK, MIST, RED, SLATE, STONE


@record
class State:
    position: float32
    velocity: float32
    angle: float32
    angular_velocity: float32


@record
class Params:
    gravity: float32 = 9.8
    cart_mass: float32 = 1.0
    pole_mass: float32 = 0.1
    half_length: float32 = 0.5
    push: float32 = 10.0
    time_step: float32 = 0.02
    position_limit: float32 = 2.4
    angle_limit: float32 = 12 * pi / 180
    low: float32 = -0.05  # of each field at reset
    high: float32 = 0.05


def reset(state, params, rng):
    state.position = random.uniform(rng, params.low, params.high)
    state.velocity = random.uniform(rng, params.low, params.high)
    state.angle = random.uniform(rng, params.low, params.high)
    state.angular_velocity = random.uniform(rng, params.low, params.high)


def step(state, params, action, rng):
    mass = params.cart_mass + params.pole_mass
    lever = params.pole_mass * params.half_length
    force = params.push if action == 1 else -params.push

    thrust = (force + lever * state.angular_velocity**2 * sin(state.angle)) / mass
    angular_acceleration = (params.gravity * sin(state.angle) - cos(state.angle) * thrust) / (
        params.half_length * (4.0 / 3.0 - params.pole_mass * cos(state.angle) ** 2 / mass)
    )
    acceleration = thrust - lever * angular_acceleration * cos(state.angle) / mass

    state.position += params.time_step * state.velocity
    state.velocity += params.time_step * acceleration
    state.angle += params.time_step * state.angular_velocity
    state.angular_velocity += params.time_step * angular_acceleration

    fallen = abs(state.position) > params.position_limit or abs(state.angle) > params.angle_limit
    return 1.0, fallen


def observe(state, params, observation):
    observation[0] = state.position
    observation[1] = state.velocity
    observation[2] = state.angle
    observation[3] = state.angular_velocity


def draw(state, params, canvas):
    reach = 1.2 * params.position_limit
    canvas.view(-reach, reach, -reach / 3.0, reach)
    canvas.rectangle(-reach, -reach / 3.0, reach, -0.3, MIST)
    canvas.line(-params.position_limit, -0.2, params.position_limit, -0.2, 0.04, STONE)
    for end in (-params.position_limit, params.position_limit):
        canvas.rectangle(end - 0.03, -0.3, end + 0.03, 0.0, RED)

    x, top = state.position, 0.15
    length = 2.0 * params.half_length
    canvas.line(x - 0.25, 0.0, x + 0.25, 0.0, 0.26, SLATE)
    for wheel in (-0.2, 0.2):
        canvas.disc(x + wheel, -0.11, 0.07, INK)
    canvas.line(x, top, x + length * sin(state.angle), top + length * cos(state.angle), 0.1, AMBER)
    canvas.disc(x, top, 0.035, INK)


environment = Environment(
    "CartPole-v1",
    state=State,
    params=Params,
    observation=Box(-inf, inf, shape=(4,)),
    action=Discrete(2),
    action_meanings=("left", "right"),
    render_fps=50,
    max_steps=500,
    options=("low", "high"),
    reset=reset,
    step=step,
    observe=observe,
    draw=draw,
    presets={
        "ppo": {"total_steps": 100_000, "learning_rate": 0.005, "hidden": (64,)},
        "dqn": {
            "total_steps": 100_000,
            "train_every": 2,
            "batch_size": 128,
            "learning_rate": 1e-3,
            "learning_rate_schedule": "linear",
            "gamma": 0.98,
            "n_step": 5,
            "target_every": 1,
            "tau": 0.005,
            "exploration_fraction": 0.2,
        },
        "qr-dqn": {
            "total_steps": 100_000,
            "train_every": 1,
            "batch_size": 128,
            "learning_rate": 1e-3,
            "learning_rate_schedule": "linear",
            "n_step": 5,
            "target_every": 1,
            "tau": 0.005,
            "quantiles": 16,
            "huber": 10.0,
            "exploration_fraction": 0.3,
            "exploration_final": 0.02,
        },
        "discrete-sac": {"total_steps": 100_000, "gamma": 0.98},
    },
)
