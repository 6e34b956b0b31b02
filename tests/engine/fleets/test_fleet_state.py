"""A fleet goes on from a saved state only where its environment could have been in it."""

import numpy as np
import pytest

import velocirl
from velocirl.engine import registry
from velocirl.engine.disk.saved import StateError
from velocirl.engine.fleets.fleet_state import try_copies
from velocirl.engine.records import between, int32, record


def saved(name, count=3):
    fleet = velocirl.make_vec(name, count, seed=0, device="python")
    fleet.reset()
    return fleet, fleet.get_state()


@pytest.mark.parametrize(
    ("name", "array", "field", "value", "message"),
    [
        ("GridWorld-v0", "state", "row", -1, r"state.row is -1 at \[0\]; it must be from 0 to 4"),
        ("FrozenLake-v1", "state", "column", 4, r"state.column is 4 at \[0\]; it must be from 0 to 3"),
        ("Catch-v0", "state", "ball_row", 9, r"state.ball_row is 9 at \[0\]; it must be from 0 to 8"),
        ("Memory-v0", "params", "length", 31, r"params.length is 31 at \[0\]; it must be from 1 to 30"),
        ("CartPole-v1", "params", "gravity", np.nan, r"params.gravity is nan"),
        ("CartPole-v1", "elapsed", None, 500, r"elapsed is 500 at \[0\]; it must be from 0 to 499"),
        ("CartPole-v1", "elapsed", None, -1, r"elapsed is -1"),
        ("CartPole-v1", "rng", None, 0, r"rng\[0\] is all zeros"),
        ("GridWorld-v0", "observation", None, 25, r"observation is 25 at \[0, 0\]; it must be from 0 to 24"),
        ("TicTacToe-v1", "mask", None, 2, r"mask is 2"),
        ("TicTacToe-v1", "mask", None, 0, r"mask\[0\] leaves no action legal"),
    ],
)
def test_a_state_beyond_its_bounds_is_refused(name, array, field, value, message):
    fleet, state = saved(name)
    fleet.set_state(state)
    (state[array] if field is None else state[array][field])[...] = value
    with pytest.raises(StateError, match=message):
        fleet.set_state(state)
    assert fleet.step(fleet.action_space.sample()) is not None  # nothing was changed


def test_arrays_that_are_missing_or_too_many_are_refused():
    fleet, state = saved("CartPole-v1")
    with pytest.raises(StateError, match="has no array 'total'"):
        fleet.set_state({name: one for name, one in state.items() if name != "total"})
    with pytest.raises(StateError, match="has an array 'totals'"):
        fleet.set_state({**state, "totals": state["total"]})


@record
class Walk:
    place: int32


STREET = (3, 1, 2, 0)


def _walker():
    def reset(state, params, rng):
        state.place = 0

    def step(state, params, action, rng):
        state.place = STREET[state.place]
        return 0.0, False

    def observe(state, params, observation):
        observation[0] = 0.0

    return velocirl.Environment(
        "TriedStreet-v0", state=Walk, observation=velocirl.Box(0, 1, (1,)), action=velocirl.Discrete(2), reset=reset,
        step=step, observe=observe,
    )  # fmt: skip


def test_whole_numbers_without_bounds_are_tried_in_plain_python():
    environment = _walker()
    fleet = velocirl.make_vec(environment, 4, seed=0, device="python")
    fleet.reset()
    state = fleet.get_state()
    state["state"]["place"] = [0, 1, 2, 3]
    try_copies(environment, state)
    state["state"]["place"][2] = 1000
    with pytest.raises(StateError, match=r"state\[2\] is not one of TriedStreet-v0: .*step fails with IndexError"):
        try_copies(environment, state)


def test_every_whole_number_of_a_built_in_state_has_bounds():
    for name in velocirl.list_envs():
        environment = registry.find(name)
        if environment.source.startswith("velocirl.environments"):
            whole = [one for one in environment.state.fields if environment.state.dtype[one].base.kind in "iu"]
            assert set(whole) <= set(environment.state.bounds), name


def test_a_function_that_leaves_the_bounds_is_told_of():
    @record
    class Short:
        place: int32 = between(0, 2)

    def reset(state, params, rng):
        state.place = 0

    def step(state, params, action, rng):
        state.place += 1
        return 0.0, state.place == 5

    def observe(state, params, observation):
        observation[0] = 0.0

    environment = velocirl.Environment(
        "LeavesBounds-v0", state=Short, observation=velocirl.Box(0, 1, (1,)), action=velocirl.Discrete(2), reset=reset,
        step=step, observe=observe,
    )  # fmt: skip
    message = r"step leaves 3 in state.place, which is declared to lie between 0 and 2"
    with pytest.raises(velocirl.DefinitionError, match=message):
        velocirl.make_vec(environment, 2, seed=0).reset()


def test_bounds_of_parameters_hold_for_whoever_gives_them():
    with pytest.raises(ValueError, match=r"Memory-v0: Params.length must be from 1 to 30, got 31"):
        velocirl.make_vec("Memory-v0", 2, params={"length": 31})
    with pytest.raises(velocirl.DefinitionError, match="field 'x' cannot lie between 2 and 1"):

        @record
        class Wrong:
            x: int32 = between(2, 1)

    with pytest.raises(ValueError, match=r"Off.x must be from 0 to 1, got 5"):

        @record
        class Off:
            x: int32 = between(0, 1, default=5)
