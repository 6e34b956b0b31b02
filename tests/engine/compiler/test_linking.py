"""Units of the cache in processes that compile nothing: what they refer to is there."""

SCRIPT = """
import numpy as np

import velocirl
from velocirl import Box, Discrete, Environment, float32, int32, random, record

LENGTHS = (3, 9, 6, 1)


@record
class State:
    count: float32
    episode: int32


def reset(state, params, rng):
    state.count = 0
    state.episode = random.integer(rng, 0, 4)


def step(state, params, action, rng):
    state.count += 1
    return state.count, state.count >= LENGTHS[state.episode]


def observe(state, params, observation):
    observation[0] = np.array([state.count, 1.0, 2.0]).sum()


cycle = Environment("LinkedCycle-v0", state=State, observation=Box(0, np.inf, (1,)), action=Discrete(2), max_steps=4,
                    reset=reset, step=step, observe=observe)
envs = velocirl.make_vec(cycle, 4, seed=0)
print(envs.reset()[0].tolist(), envs.step(np.zeros(4, np.int64))[1].tolist())
"""


def test_an_environment_that_allocates_is_found_compiled(run_script, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    first = run_script(script, home=tmp_path / "home")
    assert first == "[[3.0], [3.0], [3.0], [3.0]] [1.0, 1.0, 1.0, 1.0]\n"
    assert run_script(script, home=tmp_path / "home") == first
