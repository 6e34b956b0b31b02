"""Models of compiled environments, beside Gymnasium's tables and hand computations."""

import numpy as np
import pytest

from velocirl import Discrete, Environment, TabularModel, int32, random, record, value_iteration
from velocirl.tabular.planning.drawn_outcomes import shares_of


@record
class State:
    place: int32


@record
class Params:
    length: int32 = 4


def reset(state, params, rng):
    state.place = random.integer(rng, 0, 2)


def step(state, params, action, rng):
    if random.uniform(rng) < 0.25:
        state.place += 0
    elif action == 1:
        state.place += random.integer(rng, 1, 3)
    else:
        state.place = max(state.place - 1, 0)
    over = state.place >= params.length - 1
    state.place = min(state.place, params.length - 1)
    return 1.0 if over else -0.5, over


def observe(state, params, observation):
    observation[0] = state.place


def corridor(**changes):
    parts = {"observation": Discrete(4), "action": Discrete(2), "step": step, "observe": observe, **changes}
    return Environment("Corridor-v0", state=State, params=Params, reset=reset, max_steps=50, **parts)


def test_shares_of_what_is_drawn():
    assert shares_of(lambda rng: 7, "x") == {7: 1.0}
    thirds = shares_of(lambda rng: int(random.integer(rng, -1, 2)), "x")
    assert thirds == pytest.approx({-1: 1 / 3, 0: 1 / 3, 1: 1 / 3}, abs=1e-9)
    assert shares_of(lambda rng: bool(random.uniform(rng) < 0.1), "x")[True] == pytest.approx(0.1, abs=1e-7)
    dice = shares_of(lambda rng: int(random.integer(rng, 1, 7) + random.integer(rng, 1, 7)), "x")
    assert dice == pytest.approx({k: (6 - abs(k - 7)) / 36 for k in range(2, 13)}, abs=1e-8)
    with pytest.raises(ValueError, match="it draws numbers that are continuous"):
        shares_of(lambda rng: random.uniform(rng), "it")


def test_the_model_of_an_environment_by_hand():
    model = TabularModel.from_environment(corridor())
    assert (model.states, model.actions) == (4, 2)
    assert model.start.tolist() == pytest.approx([0.5, 0.5, 0, 0])
    found = {
        (pair // 2, pair % 2, int(after), reward): chance
        for pair, after, reward, chance in zip(
            model.pairs, model.next_states, model.rewards, model.probabilities, strict=True
        )
        if pair // 2 == 1
    }
    assert found[1, 1, 1, -0.5] == pytest.approx(0.25, abs=1e-7)
    assert found[1, 1, 2, -0.5] == pytest.approx(0.375, abs=1e-7)
    assert found[1, 1, 1, 1.0] == pytest.approx(0.375, abs=1e-7)  # over: what comes next does not count
    assert found[1, 0, 0, -0.5] == pytest.approx(0.75, abs=1e-7)
    # Nowhere is it better to go back. V(2) = 0.75 + 0.25 (V(2) - 0.5), and so on.
    second = (0.75 - 0.125) / 0.75
    first = (0.375 + 0.375 * (second - 0.5) - 0.125) / 0.75
    plan = value_iteration(model, 1.0)
    assert plan.values[1:3] == pytest.approx([first, second], abs=1e-5)
    longer = TabularModel.from_environment(corridor(observation=Discrete(6)), {"length": 6})
    assert longer.states == 6
    assert not np.allclose(longer.probabilities[:4].sum(), 0)


@pytest.mark.parametrize("slippery", [True, False])
def test_a_built_in_environment_has_the_values_of_gymnasiums_table(slippery):
    ours = TabularModel.from_environment("FrozenLake-v1", {"is_slippery": slippery})
    theirs = TabularModel.from_gymnasium("FrozenLake-v1", is_slippery=slippery)
    np.testing.assert_allclose(value_iteration(ours, 0.97).values, value_iteration(theirs, 0.97).values, atol=1e-6)
    assert ours.start.tolist() == theirs.start.tolist()


def test_what_has_no_model_is_refused():
    with pytest.raises(ValueError, match=r"CartPole-v1 sees Box.* a model needs Discrete ones"):
        TabularModel.from_environment("CartPole-v1")

    def observe_half(state, params, observation):
        observation[0] = state.place // 2

    with pytest.raises(ValueError, match="Corridor-v0 shows the same number in several states"):
        TabularModel.from_environment(corridor(observe=observe_half))
    with pytest.raises(ValueError, match="more than 2 states can be reached"):
        TabularModel.from_environment(corridor(), max_states=2)
