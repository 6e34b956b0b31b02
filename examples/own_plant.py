"""A plant of your own: a heated tank that is fed cold water, its heater slow, against the controller it had so far."""

import velocirl
from velocirl import Box, Environment, float32, random, record

STEP = 10.0  # seconds between two decisions
PARTS = 4  # integration steps in each


@record
class Tank:
    temperature: float32  # degrees
    heater: float32  # what it gives now, as a share of its power
    feed: float32  # what flows in, of its temperature
    target: float32


@record
class Design:
    power: float32 = 0.2  # degrees a second, at full heat
    loss: float32 = 0.004  # share of the difference to the feed that is lost in a second
    delay: float32 = 240.0  # seconds that the heater takes to follow


def reset(tank, design, rng):
    tank.temperature = random.uniform(rng, 25.0, 45.0)
    tank.heater = 0.0
    tank.feed = random.uniform(rng, 5.0, 15.0)
    tank.target = random.uniform(rng, 30.0, 40.0)


def slope(temperature, tank, design):
    return design.power * tank.heater - design.loss * (temperature - tank.feed)


def step(tank, design, command, rng):
    for _ in range(PARTS):
        seconds = STEP / PARTS
        tank.heater += seconds / design.delay * (0.5 * (command[0] + 1.0) - tank.heater)
        half = tank.temperature + 0.5 * seconds * slope(tank.temperature, tank, design)  # the midpoint rule
        tank.temperature += seconds * slope(half, tank, design)
    tank.feed += 0.1 * random.normal(rng)
    error = tank.temperature - tank.target
    overheated = tank.temperature > 60.0
    return -0.1 * abs(error) - 0.01 * tank.heater - (100.0 if overheated else 0.0), overheated


def observe(tank, design, observation):
    observation[0] = (tank.temperature - tank.target) / 10.0
    observation[1] = tank.heater
    observation[2] = (tank.feed - 10.0) / 10.0
    observation[3] = (tank.target - 35.0) / 10.0


def draw(tank, design, canvas):
    canvas.view(0.0, 1.0, 0.0, 1.0)
    canvas.rectangle(0.3, 0.1, 0.7, 0.9, (200, 200, 200))
    canvas.rectangle(0.3, 0.1, 0.7, 0.1 + 0.8 * tank.temperature / 60.0, (200, 80, 60))


tank = Environment(
    "Tank-v0", state=Tank, params=Design, observation=Box(-10.0, 10.0, (4,)), action=Box(-1.0, 1.0, (1,)),
    max_steps=200, reset=reset, step=step, observe=observe, draw=draw,
)  # fmt: skip


def thermostat(observation):
    """What the tank had so far: full heat below its target, none above."""
    return [1.0 if observation[0] < 0.0 else -1.0]


if __name__ == "__main__":
    velocirl.check_env(tank)
    agent = velocirl.PPO(tank, seed=0, normalise_rewards=True, learning_rate=1e-3).learn(600_000)
    print("thermostat:", velocirl.evaluate(thermostat, tank, episodes=100, seed=1))
    print("learnt:    ", velocirl.evaluate(agent, episodes=100, seed=1))
