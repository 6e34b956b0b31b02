"""RiggedBandit: one of two arms always pays 1, the other never pays.

One pull is one episode, and there is nothing to observe: the simplest task for any learner. A perfect policy earns 1, a
random one 0.5.
"""

from velocirl import Discrete, Environment, between, int32, record
from velocirl.engine.canvas import AMBER, MIST, RED, SLATE


@record
class State:
    arm: int32 = between(-1, 1)  # the arm pulled, -1 before the pull


@record
class Params:
    paying_arm: int32 = between(0, 1, default=1)


def reset(state, params, rng):
    state.arm = -1


def step(state, params, action, rng):
    state.arm = action
    return 1.0 if action == params.paying_arm else 0.0, True


def observe(state, params, observation):
    observation[0] = 0


def draw(state, params, canvas):
    canvas.view(0, 2, 0, 1, width=320, height=160)
    for arm in range(2):
        canvas.rectangle(arm + 0.2, 0.1, arm + 0.7, 0.9, SLATE)
        canvas.disc(arm + 0.45, 0.55, 0.17, AMBER if arm == params.paying_arm else MIST)
        knob = 0.35 if arm == state.arm else 0.8
        canvas.line(arm + 0.72, 0.5, arm + 0.82, knob, 0.04, SLATE)
        canvas.disc(arm + 0.82, knob, 0.06, RED)


def text(state, params):
    arms = " ".join("$" if arm == params.paying_arm else "-" for arm in range(2))
    pulled = "not pulled yet" if state.arm < 0 else f"pulled arm {state.arm}"
    return f"arms {arms}\n{pulled}"


environment = Environment(
    "RiggedBandit-v0",
    state=State,
    params=Params,
    observation=Discrete(1),
    action=Discrete(2),
    render_fps=4,
    reset=reset,
    step=step,
    observe=observe,
    draw=draw,
    text=text,
    presets={
        "ppo": {"total_steps": 10_000, "learning_rate": 0.005, "hidden": (64,)},
        "dqn": {"total_steps": 10_000, "hidden": (64,), "exploration_fraction": 0.3},
        "tabular": {"total_steps": 10_000},
    },
)
