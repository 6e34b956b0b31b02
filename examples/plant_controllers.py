"""A plant that must stay safe: its PID, one that is tuned, model predictive control, and a shield around anything."""

import velocirl
from velocirl import Box, Constraint, Environment, float32, random, record
from velocirl.controllers import MPPI, PID, Loop, Random
from velocirl.safety import Shield

STEP = 1.0  # seconds between two actions


@record
class Tank:
    level: float32  # m
    valve: float32  # m3/s, which follows its command
    demand: float32  # m3/s, what flows out
    target: float32  # m


@record
class Design:
    area: float32 = 2.0  # m2
    lag: float32 = 4.0  # s


def reset(tank, design, rng):
    tank.level = random.uniform(rng, 0.8, 1.2)
    tank.valve = 0.1
    tank.demand = 0.1
    tank.target = random.uniform(rng, 0.8, 1.6)


def step(tank, design, command, rng):
    tank.valve += STEP / design.lag * (command[0] - tank.valve)
    tank.demand = min(max(tank.demand + 0.003 * random.normal(rng), 0.05), 0.2)
    tank.level += STEP / design.area * (tank.valve - tank.demand)
    return -abs(tank.level - tank.target), False


def observe(tank, design, observation):
    observation[0] = tank.level
    observation[1] = tank.valve
    observation[2] = tank.demand
    observation[3] = tank.target


tank = Environment(
    "BufferTank-v0", state=Tank, params=Design, observation=Box(-5.0, 5.0, (4,)), action=Box(0.0, 0.4, (1,)),
    max_steps=200, reset=reset, step=step, observe=observe,
    signals={"level": "m", "valve": "m3/s", "demand": "m3/s", "target": "m"}, actuators={"valve": "m3/s"},
    constraints=(Constraint("level", value="level", low=0.3, high=2.0, unit="m", penalty=10.0, critical=True),),
    controller=PID(Loop("level", "valve", setpoint="target", gain=0.05, integral_time=100.0, bias=0.1), time_step=STEP),
)  # fmt: skip

if __name__ == "__main__":
    tuned = tank.controller.tune(tank, seed=0)
    shield = Shield(Random(0), fallback=tuned, horizon=20, margin={"level": 0.2})
    print("random:  ", velocirl.evaluate(Random(0), tank, episodes=50, seed=1))
    print("shielded:", velocirl.evaluate(shield, tank, episodes=50, seed=1))
    print("PID:     ", velocirl.evaluate(tank.controller, tank, episodes=50, seed=1))
    print("tuned:   ", velocirl.evaluate(tuned, tank, episodes=50, seed=1))
    print("MPC:     ", velocirl.evaluate(MPPI(horizon=20), tank, episodes=4, seed=1))
    print(shield.interventions)
