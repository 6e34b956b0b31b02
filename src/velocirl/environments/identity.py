"""Identity: repeat the observation. Each step shows a new random target, independent of the actions.

Identity-v0 shows one of four symbols, one-hot. The action pays 1 if it is the symbol's number: a perfect policy earns
16, a random one 4. IdentityContinuous-v0 shows a number in [-1, 1). The action costs the squared difference: a perfect
policy earns 0, one that always outputs 0 earns -16/3 on average.
"""

from velocirl import Box, Discrete, Environment, between, float32, int32, random, record
from velocirl.engine.canvas import BLUE, MIST, STONE

SYMBOLS = 4


@record
class State:
    symbol: int32 = between(0, SYMBOLS - 1)


def reset(state, params, rng):
    state.symbol = random.integer(rng, 0, SYMBOLS)


def step(state, params, action, rng):
    reward = 1.0 if action == state.symbol else 0.0
    state.symbol = random.integer(rng, 0, SYMBOLS)
    return reward, False


def observe(state, params, observation):
    for symbol in range(SYMBOLS):
        observation[symbol] = 1.0 if symbol == state.symbol else 0.0


def draw(state, params, canvas):
    canvas.view(0, SYMBOLS, 0, 1, width=80 * SYMBOLS, height=80)
    for symbol in range(SYMBOLS):
        canvas.disc(symbol + 0.5, 0.5, 0.35, BLUE if symbol == state.symbol else MIST)


def text(state, params):
    return f"shown {state.symbol}"


environment = Environment(
    "Identity-v0",
    state=State,
    observation=Box(0, 1, shape=(SYMBOLS,)),
    action=Discrete(SYMBOLS),
    render_fps=4,
    max_steps=16,
    reset=reset,
    step=step,
    observe=observe,
    draw=draw,
    text=text,
    presets={
        "ppo": {"total_steps": 20_000, "learning_rate": 0.005, "hidden": (64,)},
        "dqn": {"total_steps": 10_000, "learning_rate": 0.004, "hidden": (64,), "exploration_fraction": 0.3},
    },
)

FROM_MEMORY = {  # preset of SAC and TD3
    "total_steps": 4000,
    "num_envs": 4,
    "hidden": (64,),
    "batch_size": 64,
    "learning_rate": 3e-3,
    "learning_rate_schedule": "linear",
    "learning_starts": 200,
    "gamma": 0.5,
}


@record
class ContinuousState:
    number: float32


def reset_continuous(state, params, rng):
    state.number = random.uniform(rng, -1.0, 1.0)


def step_continuous(state, params, action, rng):
    difference = action[0] - state.number
    state.number = random.uniform(rng, -1.0, 1.0)
    return -difference * difference, False


def observe_continuous(state, params, observation):
    observation[0] = state.number


def draw_continuous(state, params, canvas):
    canvas.view(-1.2, 1.2, -0.3, 0.3, width=320, height=80)
    canvas.line(-1, 0, 1, 0, 0.04, STONE)
    canvas.disc(state.number, 0, 0.12, BLUE)


def text_continuous(state, params):
    return f"shown {state.number:+.2f}"


continuous_environment = Environment(
    "IdentityContinuous-v0",
    state=ContinuousState,
    observation=Box(-1, 1, shape=(1,)),
    action=Box(-1, 1, shape=(1,)),
    render_fps=4,
    max_steps=16,
    reset=reset_continuous,
    step=step_continuous,
    observe=observe_continuous,
    draw=draw_continuous,
    text=text_continuous,
    presets={
        "ppo": {"total_steps": 50_000, "learning_rate": 0.005, "hidden": (64,)},
        "sac": FROM_MEMORY,
        "td3": FROM_MEMORY,
    },
)
