"""A cart on a short track, which it must not leave: whether an action is safe depends on how far it takes to brake."""

from velocirl import Box, Constraint, Environment, float32, record
from velocirl.controllers import PID, Loop

TIME_STEP, END = 0.1, 1.0


@record
class State:
    place: float32
    speed: float32


@record
class Params:
    force: float32 = 1.0
    end: float32 = END


def reset(state, params, rng):
    state.place = 0.0
    state.speed = 0.0


def step(state, params, action, rng):
    state.speed += TIME_STEP * params.force * action[0]
    state.place += TIME_STEP * state.speed
    return -((state.place - 0.5) ** 2), False


def observe(state, params, observation):
    observation[0] = state.place
    observation[1] = state.speed


def distance(state, params):
    return abs(state.place)


BRAKE = PID(Loop("speed", "force", setpoint=0.0, gain=1.0 / TIME_STEP), time_step=TIME_STEP)
cart = Environment(
    "Cart-v0", state=State, params=Params, observation=Box(-10.0, 10.0, (2,)), action=Box(-1.0, 1.0, (1,)),
    max_steps=200, reset=reset, step=step, observe=observe, signals={"place": "m", "speed": "m/s"},
    actuators={"force": "m/s2"},
    constraints=(Constraint("track", value=distance, high="end", unit="m", critical=True),),
    controller=BRAKE,
)  # fmt: skip
