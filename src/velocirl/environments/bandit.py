"""Bandit: pull one of four arms; each pays 1 with its own fixed probability (Robbins, 1952).

One pull is one episode, and there is nothing to observe. The environment tests whether an agent finds the best arm
despite noise. A perfect policy always pulls arm 2 and earns 0.8 on average, a random one 0.45.
"""

from velocirl import Discrete, Environment, between, float32, int32, random, record
from velocirl.engine.canvas import AMBER, MIST, SLATE, STONE


@record
class State:
    arm: int32 = between(-1, 3)  # the arm pulled, -1 before the pull
    pay: float32


@record
class Params:
    probability: float32[4] = (0.2, 0.5, 0.8, 0.3)


def reset(state, params, rng):
    state.arm = -1
    state.pay = 0.0


def step(state, params, action, rng):
    state.arm = action
    state.pay = 1.0 if random.uniform(rng, 0.0, 1.0) < params.probability[action] else 0.0
    return state.pay, True


def observe(state, params, observation):
    observation[0] = 0


def draw(state, params, canvas):
    canvas.view(0, 4, -0.25, 1.1, width=320, height=270)
    for arm in range(4):
        color = STONE if arm != state.arm else AMBER if state.pay else SLATE
        canvas.rectangle(arm + 0.2, 0, arm + 0.8, 1, MIST)
        canvas.rectangle(arm + 0.2, 0, arm + 0.8, params.probability[arm], color)
        if arm == state.arm:
            canvas.polygon([(arm + 0.3, -0.2), (arm + 0.7, -0.2), (arm + 0.5, -0.05)], color)


def text(state, params):
    arms = " ".join(f"{probability:4.0%}" for probability in params.probability)
    pulled = "not pulled yet" if state.arm < 0 else f"arm {state.arm} paid {state.pay:.0f}"
    return f"arms pay {arms}\n{pulled}"


environment = Environment(
    "Bandit-v0",
    state=State,
    params=Params,
    observation=Discrete(1),
    action=Discrete(4),
    render_fps=4,
    reset=reset,
    step=step,
    observe=observe,
    draw=draw,
    text=text,
    presets={
        "ppo": {"total_steps": 20_000, "learning_rate": 0.005, "hidden": (64,)},
        "dqn": {"total_steps": 10_000, "hidden": (64,), "exploration_fraction": 0.3},
        "tabular": {"total_steps": 20_000, "learning_rate_schedule": "linear"},
    },
)
