"""A game of your own that is seen as a picture: dodge what falls. A convolutional network of torch learns it."""

import numpy

import velocirl
from velocirl import Box, Discrete, Environment, int32, random, record

SIZE = 8
STONES = 3


@record
class Sky:
    column: int32  # where the player stands
    rows: int32[STONES]
    columns: int32[STONES]


def reset(sky, _, rng):
    sky.column = SIZE // 2
    for k in range(STONES):
        sky.rows[k] = -random.integer(rng, 0, SIZE)
        sky.columns[k] = random.integer(rng, 0, SIZE)


def step(sky, _, action, rng):
    sky.column = min(max(sky.column + action - 1, 0), SIZE - 1)
    hit = False
    for k in range(STONES):
        sky.rows[k] += 1
        if sky.rows[k] == SIZE - 1 and sky.columns[k] == sky.column:
            hit = True
        if sky.rows[k] >= SIZE:
            sky.rows[k] = 0
            sky.columns[k] = random.integer(rng, 0, SIZE)
    return (0.0 if hit else 1.0), hit


def observe(sky, _, picture):
    for row in range(SIZE):
        for column in range(SIZE):
            picture[row, column, 0] = 0
    for k in range(STONES):
        if sky.rows[k] >= 0:
            picture[sky.rows[k], sky.columns[k], 0] = 128
    picture[SIZE - 1, sky.column, 0] = 255


def text(sky, _):
    lines = [["."] * SIZE for _ in range(SIZE)]
    for row, column in zip(sky.rows, sky.columns, strict=True):
        if row >= 0:
            lines[row][column] = "o"
    lines[-1][sky.column] = "A"
    return "\n".join("".join(line) for line in lines)


dodge = Environment(
    "Dodge-v0", state=Sky, observation=Box(0, 255, (SIZE, SIZE, 1), numpy.uint8), action=Discrete(3), max_steps=200,
    reset=reset, step=step, observe=observe, text=text,
)  # fmt: skip

if __name__ == "__main__":
    agent = velocirl.PPO(dodge, network="cnn(8, stride=2) mlp(64)", num_envs=64, minibatch_size=512, seed=0)
    print("before:", velocirl.evaluate(agent, episodes=64, seed=1))
    agent.learn(100_000)
    print("after: ", velocirl.evaluate(agent, episodes=64, seed=1))
