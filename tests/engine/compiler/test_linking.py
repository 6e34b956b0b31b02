"""Units of the cache in processes that compile nothing: what they refer to is there, and no more than is needed."""

from typing import Any, NamedTuple

import numba
import numpy as np
import pytest

from velocirl.engine.compiler.compiling import COUNTED, INLINED, compiler_settings
from velocirl.engine.compiler.frames import type_of
from velocirl.engine.fleets.loops import Chances

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


class Own(NamedTuple):
    """As a script may have one, whose arrays it may have made itself."""

    rng: Any
    action: Any
    mask: Any


@pytest.mark.parametrize(("kind", "counted"), [(Chances, False), (Own, True)])
def test_references_to_arguments_of_units_are_not_counted(kind, counted):
    look = numba.njit(**INLINED, **COUNTED)(lambda given: given.rng[0] + given.mask[1])
    hand_on = numba.njit(**INLINED, **COUNTED)(lambda given: look(given) + look(given))
    signature = (type_of(kind(*(np.zeros(2),) * 3)),)
    with compiler_settings(double=True):
        hand_on.compile(signature)
    assert ("NRT_incref" in hand_on.inspect_llvm(signature)) is counted
