"""Memory of episodes and runs in fresh processes, and leaks in training."""

from __future__ import annotations

from functools import partial

from velocirl.bench.comparison import Comparison, value
from velocirl.bench.machine.resident import told, told_in_turns, told_once
from velocirl.bench.measuring import Counted
from velocirl.bench.registry import benchmark
from velocirl.bench.units import BYTES, MEGABYTES

ROUNDS = 7  # measurements per process
MOST_LEAKED = 65_536.0  # bytes per thousand iterations: less is within the interpreter's own fluctuation
PLANT, MOST_OF_A_PLANT = "ChemicalReactor-v0", 1e6  # bytes per episode
# Peak memory of an episode beyond the memory before it; the first episodes load code lazily.
EPISODE = """
import numpy, velocirl
{prepare}
for _ in range(5):
    episode()
for _ in range({rounds}):
    forget_peak()
    before = resident()
    episodes = episode()
    print(max(peak() - before, 0) / episodes)
"""
SINGLE = """
env = velocirl.make({environment!r})
env.action_space.seed(0)
action = env.action_space.sample()
def episode():
    env.reset(seed=0)
    over = False
    while not over:
        _, _, terminated, truncated, _ = env.step(action)
        over = terminated or truncated
    return 1
"""
FLEET = """
env = velocirl.make_vec("CartPole-v1", 4096)
env.reset(seed=0)
actions = numpy.zeros(4096, numpy.int64)
def episode():
    ended = 0
    while ended < 4096:
        _, _, terminated, truncated, _ = env.step(actions)
        ended += int(numpy.count_nonzero(terminated | truncated))
    return ended
"""
TRAINING = """
agent = velocirl.{algorithm}({environment!r}, seed=0)
def episode():
    agent.learn({steps})
    return {steps} / agent.metrics["rollout/ep_len_mean"]
"""
RUN = """
import velocirl
velocirl.{algorithm}({environment!r}, seed=0).learn({steps})
print(peak() / 1e6)
"""
IMPORTS = """
import velocirl
velocirl.PPO
print(peak() / 1e6)
"""
RUNS = {
    "PPO, CartPole-v1, 200,000 steps": {"algorithm": "PPO", "environment": "CartPole-v1", "steps": 200_000},
    "DQN, CartPole-v1, 50,000 steps": {"algorithm": "DQN", "environment": "CartPole-v1", "steps": 50_000},
    "Q-learning, TicTacToe-v1, 1,000,000 steps": {
        "algorithm": "QLearning", "environment": "TicTacToe-v1", "steps": 1_000_000
    },
}  # fmt: skip
# Growth per thousand iterations; the first thousand fill intentional storage, such as recent returns.
LEAK = """
import velocirl
{prepare}
thousand()
for _ in range({rounds}):
    before = resident()
    thousand()
    print(resident() - before)
"""
PPO_THOUSAND = """
agent = velocirl.PPO(
    "CartPole-v1", num_envs=16, horizon=8, minibatch_size=64, epochs=1, seed=0, threads=1, device="cpu"
)
def thousand():
    agent.learn(1000 * 16 * 8, callbacks=lambda _: None)
"""
DQN_THOUSAND = """
agent = velocirl.DQN(
    "CartPole-v1", num_envs=1, buffer_size=2000, learning_starts=100, batch_size=32, seed=0, threads=1, device="cpu"
)
def thousand():
    for _ in range(1000):
        agent.learn(4)
"""
Q_LEARNING_THOUSAND = """
agent = velocirl.QLearning("TicTacToe-v1", num_envs=64, storage="dense", seed=0)
def thousand():
    for _ in range(1000):
        agent.learn(640)
"""


def leak_of(prepare: str, rounds: int = ROUNDS) -> list[float]:
    """Return the bytes a process retains after each call of `thousand`, a function defined by `prepare`."""
    return told(LEAK.format(prepare=prepare, rounds=rounds))


def peak_of_run(script: str) -> float:
    """Return the peak memory, in MB, of a process with cached compiled functions."""
    told(script)
    (found,) = told(script)
    return found


@benchmark(category="memory", quick=False)
def episode_memory() -> Comparison:
    """Memory that an episode takes at its peak, beyond what was there before it.

    Fresh processes, after five such episodes; each tells seven figures, which stand in the rounds in turns. A fleet's
    and training's are per episode that ended, with what is shared by all of them; training is of 20,000 steps of PPO
    and 100,000 of Q-learning.
    """
    ppo = TRAINING.format(algorithm="PPO", environment="CartPole-v1", steps=20_000)
    table = TRAINING.format(algorithm="QLearning", environment="TicTacToe-v1", steps=100_000)
    single = SINGLE.format(environment="CartPole-v1")
    scripts = {"one CartPole-v1": single, "4096 CartPoles": FLEET, "training PPO": ppo, "training Q-learning": table}
    contestants = {
        name: told_in_turns(EPISODE.format(prepare=script, rounds=ROUNDS)) for name, script in scripts.items()
    }
    return Comparison(BYTES, contestants)


@benchmark(category="memory", quick=False)
def plant_episode_memory() -> Comparison:
    """Memory that an episode of ChemicalReactor-v0 takes at its peak, beyond what was there before it.

    As for `episode_memory`; training is of 100,000 steps of PPO, per episode that ended.
    """
    scripts = {
        "one ChemicalReactor-v0": SINGLE.format(environment=PLANT),
        "training PPO": TRAINING.format(algorithm="PPO", environment=PLANT, steps=100_000),
    }
    contestants = {
        name: told_in_turns(EPISODE.format(prepare=script, rounds=ROUNDS)) for name, script in scripts.items()
    }
    return Comparison(BYTES, contestants, claims=[value(name, at_most=MOST_OF_A_PLANT) for name in scripts])


@benchmark(category="memory", quick=False)
def run_memory() -> Comparison:
    """Memory of a process that trains, at its peak.

    Whole processes with what Python, NumPy and numba take, with compiled functions from a warm cache and the settings
    that the environment brings; each is measured once. The import of velocirl alone stands beside them.
    """
    contestants = {name: partial(_run, RUN.format(**settings)) for name, settings in RUNS.items()}
    return Comparison(MEGABYTES, {"import velocirl": partial(told_once, IMPORTS), **contestants})


@benchmark(category="memory", quick=False)
def leaks() -> Comparison:
    """Memory that stays after a thousand iterations of training, in fresh processes, after a thousand before.

    Of PPO these are iterations of one call of `learn`, of DQN and Q-learning a thousand calls. Each process tells seven
    such growths, which stand in the rounds in turns; their median is judged, so that a page more or less now and then
    does not count.
    """
    scripts = {"PPO": PPO_THOUSAND, "DQN": DQN_THOUSAND, "Q-learning": Q_LEARNING_THOUSAND}
    return Comparison(
        unit=BYTES,
        contestants={
            name: told_in_turns(LEAK.format(prepare=script, rounds=ROUNDS)) for name, script in scripts.items()
        },
        claims=[value(name, at_most=MOST_LEAKED) for name in scripts],
    )


def _run(script: str) -> Counted:
    figure = peak_of_run(script)
    return Counted(lambda: figure)
