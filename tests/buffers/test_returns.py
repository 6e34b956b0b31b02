"""GAE and V-trace against references in double precision, written from their definitions rather than backwards."""

from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from velocirl.buffers.rollout import GOES_ON, TERMINATED, TRUNCATED, sample_type

from velocirl.buffers.returns import Discount, gae, vtrace
from velocirl.engine.compiling import compile_loop, learning_translator

LIMITS = (1.0, 0.75)  # of rho and c, constants of a compiled loop
numbers = some.floats(-10, 10, width=32)
shares = some.floats(0, 1, width=32)


@some.composite
def columns(draw):
    """One copy's rollout: any values, any layout of episodes, the end of one at the last step among them."""
    length = draw(some.integers(1, 24))
    column = np.zeros(length, sample_type(1, 1, "int32", 0)).view(np.recarray)
    ends = some.sampled_from([GOES_ON, GOES_ON, GOES_ON, TERMINATED, TRUNCATED])
    for name, kind in (("reward", numbers), ("value", numbers), ("current_value", numbers), ("ended", ends),
                       ("ratio", some.floats(0, 4, width=32))):  # fmt: skip
        column[name] = draw(some.lists(kind, min_size=length, max_size=length))
    column["final_value"] = np.where(column["ended"] == TRUNCATED, draw(numbers), 0)
    column["advantage"], column["target"] = 77, 77  # of the rollout before
    return column, draw(numbers)


def discounts(scales=(1.0, 1.0), limits=(inf, inf)):
    scale, limit = (
        some.floats(*bounds, width=32) if bounds[1] < inf else some.just(inf) for bounds in (scales, limits)
    )
    return some.builds(lambda *given: Discount(*map(np.float32, given)), scale, limit, shares, shares)


def following(column, last_value, values):
    """V of what follows each step, as its episode went on."""
    after = np.append(values[1:], last_value)
    return np.where(column["ended"] == GOES_ON, after, column["final_value"].astype(np.float64))


def expected(column, last_value, discount, weights, decays, values):
    """sum over k of gamma^k lambda^k (product of decays) weight delta, until the end of the episode."""
    scale, limit, gamma, gae_lambda = map(float, discount)
    rewards = np.clip(column["reward"].astype(np.float64) * scale, -limit, limit)
    deltas = weights * (rewards + gamma * following(column, last_value, values) - values)
    advantages = np.zeros(len(column))
    for t in range(len(column)):
        factor = 1.0
        for k in range(t, len(column)):
            advantages[t] += factor * deltas[k]
            if column["ended"][k] != GOES_ON:
                break
            factor *= gamma * gae_lambda * decays[k]
    return advantages


def assert_estimate(column, advantages, values):
    scale = max(1.0, np.abs(advantages).max(), np.abs(values).max())
    assert np.abs(column["advantage"] - advantages).max() < 1e-5 * scale
    assert np.abs(column["target"] - (advantages + values)).max() < 1e-5 * scale


def gae_all(column, last_value, discount):
    gae(column, last_value, discount)


def vtrace_all(column, last_value, discount):
    vtrace(column, last_value, discount, LIMITS[0], LIMITS[1])


@pytest.fixture(scope="module", params=["python", "compiled"])
def run(request):
    def run(loop, column, last_value, discount):
        if request.param == "python":
            loop(column, last_value, discount)
            return
        arguments = (np.asarray(column), np.float32(last_value), discount)
        compile_loop(loop, arguments, learning_translator("returns"), before=lambda: None)(*arguments)

    return run


@settings(max_examples=150)
@given(given=columns(), discount=discounts())
def test_gae(run, given, discount):
    column, last_value = given
    run(gae_all, column, last_value, discount)
    ones, values = np.ones(len(column)), column["value"].astype(np.float64)
    assert_estimate(column, expected(column, last_value, discount, ones, ones, values), values)


@settings(max_examples=150)
@given(given=columns(), discount=discounts())
def test_vtrace(run, given, discount):
    column, last_value = given
    run(vtrace_all, column, last_value, discount)
    ratios, values = column["ratio"].astype(np.float64), column["current_value"].astype(np.float64)
    rho, c = np.minimum(ratios, LIMITS[0]), np.minimum(ratios, LIMITS[1])
    # The reference multiplies a weight into each delta and a decay into each factor, as V-trace does.
    assert_estimate(column, expected(column, last_value, discount, rho, c, values), values)


@settings(max_examples=50)
@given(given=columns(), discount=discounts())
def test_vtrace_of_an_unchanged_policy_is_gae(given, discount):
    column, last_value = given
    column["ratio"], column["current_value"] = 1, column["value"]
    other = column.copy()
    vtrace(column, last_value, discount, 1.0, 1.0)
    gae(other, last_value, discount)
    np.testing.assert_allclose(column["advantage"], other["advantage"], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(column["target"], other["target"], rtol=1e-6, atol=1e-6)


@settings(max_examples=80)
@given(given=columns(), discount=discounts((0.0078125, 10), (0.5, 10)))
def test_reward_scale_and_limit(run, given, discount):
    column, last_value = given
    run(gae_all, column, last_value, discount)
    ones, values = np.ones(len(column)), column["value"].astype(np.float64)
    assert_estimate(column, expected(column, last_value, discount, ones, ones, values), values)


def column_of(ended, final_value=0.0):
    column = np.zeros(3, sample_type(1, 1, "int32", 0)).view(np.recarray)
    column["reward"], column["value"], column["ended"][1], column["final_value"][1] = 1, 10, ended, final_value
    return column


def test_by_hand():
    """Rewards 1, values 10, the value at the end 20, gamma 0.5, lambda 0.5."""
    discount = Discount(*map(np.float32, (1, inf, 0.5, 0.5)))
    going = column_of(GOES_ON)
    gae(going, np.float32(20), discount)
    np.testing.assert_allclose(going["advantage"], [-4 + (-4 + 1 / 4) / 4, -4 + 1 / 4, 1])
    terminated = column_of(TERMINATED)
    gae(terminated, np.float32(20), discount)
    np.testing.assert_allclose(terminated["advantage"], [-4 - 9 / 4, -9, 1])
    truncated = column_of(TRUNCATED, 40)
    gae(truncated, np.float32(20), discount)
    np.testing.assert_allclose(truncated["advantage"], [-4 + 11 / 4, 11, 1])
    np.testing.assert_allclose(truncated["target"], [10 - 4 + 11 / 4, 21, 11])
