"""Actions of several parts: golf, where each stroke is a club to choose and a power to hit with.

    python examples/hybrid_actions.py

Whatever the space calls a part, `step` reads as a field: `action.club`, `action.power[0]`. Of a Tuple it reads
`action[0]` and `action[1]`. PPO draws all parts at once; `predict` gives them as Gymnasium does, in a dict or a tuple.
"""

import numpy as np

import velocirl
from velocirl import Box, Dict, Discrete, Environment, float32, random, record

REACH = (200.0, 60.0, 10.0)  # metres at full power: driver, iron, putter
HOLE = 0.6  # metres: nearer than this the ball is in


@record
class Ball:
    distance: float32  # metres to the hole


def reset(state, params, rng):
    state.distance = random.uniform(rng, 50.0, 200.0)


def step(state, params, action, rng):
    flight = action.power[0] * REACH[action.club] * random.uniform(rng, 0.95, 1.05)
    state.distance = abs(state.distance - flight)
    return -1.0, state.distance < HOLE  # each stroke costs one


def observe(state, params, observation):
    for club in range(3):  # what each club could do here
        observation[club] = min(state.distance / REACH[club], 2.0)


golf = Environment(
    "Golf-v0", state=Ball, observation=Box(0, 2, (3,)), action=Dict(club=Discrete(3), power=Box(0, 1, (1,))),
    reset=reset, step=step, observe=observe, max_steps=20,
)  # fmt: skip


if __name__ == "__main__":
    velocirl.check_env(golf)  # plain Python and compiled code do the same
    agent = velocirl.PPO(golf, seed=0, gamma=0.95, entropy_coefficient=0.0)
    print("before:", velocirl.evaluate(agent, episodes=200, seed=1))
    agent.learn(400_000)
    print("after: ", velocirl.evaluate(agent, episodes=200, seed=1))
    for distance in (150.0, 40.0, 4.0):
        seen = np.minimum(distance / np.array(REACH, np.float32), 2.0)
        action, _ = agent.predict(seen, deterministic=True)
        print(f"{distance:5.0f} m: club {action['club']}, power {action['power'][0]:.2f}")
