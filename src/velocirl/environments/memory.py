"""Memory: a few bits are shown one by one; after a delay they must be repeated (after PufferLib's Memory).

While bits are shown and during the delay, actions have no effect. Then each action answers one bit and pays 1 if it is
right. The task requires memory: a perfect policy earns 3, the length, any memoryless policy 1.5.
"""

from velocirl import Box, Discrete, Environment, between, int32, random, record
from velocirl.engine.canvas import AMBER, GREEN, INK, MIST, RED, STONE

LONGEST = 30  # bits of a sequence
LATEST = 10_000  # maximum delay in steps


@record
class State:
    time: int32 = between(0, 2 * LONGEST + LATEST)
    bits: int32 = between(0, 2**LONGEST - 1)  # bit k is shown at time k
    answers: int32 = between(0, 2**LONGEST - 1)


@record
class Params:
    length: int32 = between(1, LONGEST, default=3)  # of the sequence
    delay: int32 = between(0, LATEST, default=2)


def reset(state, params, rng):
    state.time = 0
    state.bits = 0
    state.answers = 0
    for k in range(params.length):
        state.bits |= random.integer(rng, 0, 2) << k


def step(state, params, action, rng):
    question = state.time - params.length - params.delay
    state.time += 1
    if question < 0:
        return 0.0, False
    state.answers |= action << question
    right = action == state.bits >> question & 1
    return 1.0 if right else 0.0, question == params.length - 1


def observe(state, params, observation):
    shown = state.bits >> state.time & 1 if state.time < params.length else -1
    observation[0] = 1.0 if shown == 0 else 0.0
    observation[1] = 1.0 if shown == 1 else 0.0
    observation[2] = 1.0 if state.time >= params.length + params.delay else 0.0


def digits(bits, count):
    return "".join("1" if bits >> k & 1 else "0" for k in range(count))


def draw(state, params, canvas):
    """Draw the bits in the upper row, a ring around the one shown, and the answers below: right or wrong."""
    canvas.view(0, params.length, 2, 0, width=80 * params.length, height=160)
    for k in range(params.length):
        if k == state.time:
            canvas.disc(k + 0.5, 0.5, 0.45, AMBER)
        bit = state.bits >> k & 1
        canvas.disc(k + 0.5, 0.5, 0.35, INK if bit else STONE)
        answer = state.answers >> k & 1
        answered = state.time > params.length + params.delay + k
        canvas.disc(k + 0.5, 1.5, 0.35, MIST if not answered else GREEN if answer == bit else RED)


def text(state, params):
    answered = min(max(state.time - params.length - params.delay, 0), params.length)
    shown = digits(state.bits, min(state.time + 1, params.length))
    return f"shown   {shown}\nanswers {digits(state.answers, answered)}"


environment = Environment(
    "Memory-v0",
    state=State,
    params=Params,
    observation=Box(0, 1, shape=(3,)),  # a 0 is shown, a 1 is shown, answer now
    action=Discrete(2),
    action_meanings=("0", "1"),
    render_fps=4,
    reset=reset,
    step=step,
    observe=observe,
    draw=draw,
    text=text,
    # An answer pays at once, so a low discount suffices. Unnormalized advantages and a high entropy bonus keep a policy
    # from committing to wrong answers before the network distinguishes the bits.
    presets={
        "ppo": {
            "total_steps": 60_000,
            "network": "lstm(32)",
            "num_envs": 128,
            "horizon": 8,
            "minibatch_size": 256,
            "learning_rate": 0.01,
            "gamma": 0.5,
            "entropy_coefficient": 0.2,
            "normalise_advantages": False,
        }
    },
)
