"""Division by zero: what it gives in compiled code, and that plain Python gives the same or says so."""

import numpy as np
import pytest
from choosing import on_cuda
from toys.environments import drifting

import velocirl
from velocirl import DefinitionError, float32, int32, record


@record
class Quotients:
    count: int32
    zero: int32
    divided: int32
    remainder: int32
    small: float32
    nothing: float32
    infinite: float32
    undefined: float32
    true: float32


def reset(state, params, rng):
    state.count = 0
    state.zero = 0
    state.nothing = 0.0
    state.small = 0.5
    state.divided = state.remainder = 1
    state.infinite = state.undefined = state.true = 0.0


def divide(state, params, action, rng):
    state.count += 1
    state.divided = -1
    state.remainder = -1
    state.divided = state.count // state.zero
    state.remainder = state.count % state.zero
    state.infinite = state.small / state.nothing
    state.undefined = state.nothing / state.nothing
    state.true = state.count / state.zero
    return 0.0, False


def observe(state, params, observation):
    observation[0] = 0.0


def own_numbers(state, params, action, rng):
    return float(int(state.count) // int(state.count)), False


@pytest.mark.parametrize("device", ["python", "cpu", pytest.param("cuda", marks=on_cuda())])
def test_whole_numbers_give_0_and_floats_what_ieee_says(device):
    environment = drifting("Dividing-v0", state=Quotients, reset=reset, step=divide, observe=observe)
    with np.errstate(all="ignore"):
        fleet = velocirl.make_vec(environment, 3, device=device)
        fleet.reset()
        fleet.step([0, 0, 0])
    state = fleet.get_state()["state"]
    assert state["divided"].tolist() == state["remainder"].tolist() == [0, 0, 0]
    assert state["infinite"].tolist() == state["true"].tolist() == [np.inf] * 3
    assert np.isnan(state["undefined"]).all()


def test_where_plain_python_raises_the_line_is_told():
    with pytest.raises(DefinitionError, match=r"step fails with ZeroDivisionError: .*compiled code gives 0") as caught:
        velocirl.make_vec(drifting("Dividing-v0", step=own_numbers), 2)
    assert f"{__file__}:{own_numbers.__code__.co_firstlineno + 1}" in str(caught.value)
