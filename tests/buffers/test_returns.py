"""GAE and V-trace against references in double precision, written from their definitions rather than backwards."""

from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from velocirl.buffers.records import GOES_ON, TERMINATED, TRUNCATED
from velocirl.buffers.returns import add_spread, gae, gae_of_costs, scale_rewards, vtrace
from velocirl.engine.compiler.columns import Shared
from velocirl.engine.compiler.compiling import learning_translator
from velocirl.engine.compiler.units import bind_unit
from velocirl.engine.records import with_attributes
from velocirl.engine.targets.indexing import row_loop

FIELDS = ("reward", "value", "current_value", "final_value", "ratio", "advantage", "target")
STEP = np.dtype([*((name, np.float32) for name in FIELDS), ("ended", np.int8)], align=True)
SETTINGS = np.dtype([(name, np.float32) for name in ("gamma", "gae_lambda", "rho_limit", "c_limit")])
SCALE = np.dtype([("reward_scale", np.float32), ("reward_limit", np.float32)])
GAE = ("reward", "value", "final_value", "ended", "advantage", "target")
VTRACE = ("reward", "value", "current_value", "final_value", "ended", "ratio", "advantage", "target")
LIMITS = (1.0, 0.75)  # of rho and c
numbers = some.floats(-10, 10, width=32)
shares = some.floats(0, 1, width=32)


@some.composite
def columns(draw):
    """One copy's rollout: any values, any layout of episodes, the end of one at the last step among them.

    Its last place has the value of what follows, and of all else what the rollout before left there.
    """
    length = draw(some.integers(1, 24))
    column = np.zeros(length + 1, STEP)
    ends = some.sampled_from([GOES_ON, GOES_ON, GOES_ON, TERMINATED, TRUNCATED])
    for name, kind in (("reward", numbers), ("value", numbers), ("current_value", numbers), ("ended", ends),
                       ("ratio", some.floats(0, 4, width=32))):  # fmt: skip
        column[name] = draw(some.lists(kind, min_size=length + 1, max_size=length + 1))
    column["final_value"] = np.where(column["ended"] == TRUNCATED, draw(numbers), 0)
    column["advantage"], column["target"] = 77, 77  # of the rollout before
    return column


discounts = some.tuples(shares, shares)


def expected(column, discount, weights, decays, values):
    """sum over k of gamma^k lambda^k (product of decays) weight delta, until the end of the episode."""
    gamma, gae_lambda = discount
    steps, after = column[:-1], np.append(values[1:], float(column["value"][-1]))
    following = np.where(steps["ended"] == GOES_ON, after, steps["final_value"].astype(np.float64))
    deltas = weights * (steps["reward"].astype(np.float64) + gamma * following - values)
    advantages = np.zeros(len(steps))
    for t in range(len(steps)):
        factor = 1.0
        for k in range(t, len(steps)):
            advantages[t] += factor * deltas[k]
            if steps["ended"][k] != GOES_ON:
                break
            factor *= gamma * gae_lambda * decays[k]
    return advantages


def assert_estimate(column, advantages, values, corrections=None):
    """What is added to values makes targets: the advantages themselves, unless they are corrected."""
    corrections = advantages if corrections is None else corrections
    scale = max(1.0, np.abs(advantages).max(), np.abs(values).max())
    assert np.abs(column["advantage"][:-1] - advantages).max() < 1e-5 * scale
    assert np.abs(column["target"][:-1] - (corrections + values)).max() < 1e-5 * scale
    assert (column["advantage"][-1], column["target"][-1]) == (77, 77)


def settings_of(discount, limits=LIMITS):
    return np.array([(*discount, *limits)], SETTINGS)


@pytest.fixture(scope="module", params=["python", "compiled"])
def run(request):
    """`run(function, rows, names, shared)`: a function of one copy's column, for the middle one of three."""
    translator = learning_translator("returns")

    def run(function, column, names, shared, sums=None):
        more = () if sums is None else (sums,)
        if request.param == "python":
            function(
                *(column[name] for name in names), *more, *(() if shared is None else (with_attributes(shared)[0],))
            )
            return
        rows = np.stack([np.zeros_like(column), column, np.zeros_like(column)])
        sums = () if sums is None else (np.stack([sums] * 3),)
        told = () if shared is None else (Shared(shared),)
        arguments = (*(rows[name] for name in names), *sums, *told)
        bind_unit(row_loop(function), arguments, translator, disjoint=False)(1, 2)
        column[:] = rows[1]
        for name in rows.dtype.names:
            assert not rows[name][[0, 2]].any(), name  # that of nobody else is touched
        for array, made in zip(more, sums, strict=True):
            array[:] = made[1]

    return run


@settings(max_examples=150)
@given(column=columns(), discount=discounts)
def test_gae(run, column, discount):
    run(gae, column, GAE, settings_of(discount))
    ones, values = np.ones(len(column) - 1), column["value"][:-1].astype(np.float64)
    assert_estimate(column, expected(column, discount, ones, ones, values), values)


@settings(max_examples=150)
@given(column=columns(), discount=discounts)
def test_vtrace(run, column, discount):
    run(vtrace, column, VTRACE, settings_of(discount))
    ratios, values = (column[name][:-1].astype(np.float64) for name in ("ratio", "current_value"))
    rho, c = np.minimum(ratios, LIMITS[0]), np.minimum(ratios, LIMITS[1])
    # The reference multiplies a weight into each delta and a decay into each factor, as V-trace does.
    corrections = expected(column, discount, rho, c, values)
    # An advantage is its own delta, without a weight, and what is corrected afterwards, without a decay.
    goes_on = column["ended"][:-1] == GOES_ON
    deltas = expected(column, (discount[0], 0.0), np.ones_like(rho), c, values)
    later = np.where(goes_on, np.append(corrections[1:], 0.0), 0.0)
    assert_estimate(column, deltas + discount[0] * discount[1] * later, values, corrections)


@settings(max_examples=100)
@given(column=columns(), gamma=shares)
def test_vtrace_with_a_lambda_of_one_gives_the_advantage_of_impala(column, gamma):
    """r + gamma target_{t+1} - V_t; the target after the last step of an episode or a rollout is the value there."""
    made = estimated(vtrace, column, VTRACE, (gamma, 1.0))
    targets = np.append(made["target"][1:-1], column["value"][-1]).astype(np.float64)
    following = np.where(column["ended"][:-1] == GOES_ON, targets, column["final_value"][:-1])
    advantages = column["reward"][:-1] + gamma * following - column["current_value"][:-1]
    np.testing.assert_allclose(made["advantage"][:-1], advantages, rtol=1e-4, atol=1e-3)


@given(columns(), columns(), discounts)
def test_costs_are_estimated_as_rewards_are_by_constraint(one, other, discount):
    steps = min(len(one), len(other))
    columns_of = [one[:steps].copy(), other[:steps].copy()]
    columns_of[1]["ended"] = columns_of[0]["ended"]
    side_by_side = {name: np.stack([column[name] for column in columns_of], 1) for name in GAE if name != "ended"}
    shared = with_attributes(settings_of(discount))[0]
    costs, values, finals, advantages, targets = side_by_side.values()
    gae_of_costs(costs, values, finals, columns_of[0]["ended"], advantages, targets, shared)
    for k, column in enumerate(columns_of):
        gae(*(column[name] for name in GAE), shared)
        np.testing.assert_array_equal(advantages[:, k], column["advantage"])
        np.testing.assert_array_equal(targets[:, k], column["target"])


def estimated(function, column, names, discount, limits=LIMITS):
    made = column.copy()
    function(*(made[name] for name in names), with_attributes(settings_of(discount, limits))[0])
    return made


@settings(max_examples=50)
@given(column=columns(), discount=discounts)
def test_vtrace_of_an_unchanged_policy_is_gae(column, discount):
    column["ratio"], column["current_value"] = 1, column["value"]
    corrected = estimated(vtrace, column, VTRACE, discount, limits=(1.0, 1.0))
    plain = estimated(gae, column, GAE, discount)
    np.testing.assert_allclose(corrected["advantage"], plain["advantage"], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(corrected["target"], plain["target"], rtol=1e-6, atol=1e-6)


@settings(max_examples=80)
@given(
    column=columns(),
    scale=some.tuples(
        some.floats(0.0078125, 10, width=32), some.one_of(some.just(inf), some.floats(0.5, 10, width=32))
    ),
    discount=discounts,
)
def test_reward_scale_and_limit(run, column, scale, discount):
    rewards = column["reward"].astype(np.float64)
    run(scale_rewards, column, ("reward",), np.array([scale], SCALE))
    scaled = np.clip(rewards * scale[0], -scale[1], scale[1])
    np.testing.assert_allclose(column["reward"], scaled, rtol=1e-6, atol=1e-38)
    run(gae, column, GAE, settings_of(discount))
    ones, values = np.ones(len(column) - 1), column["value"][:-1].astype(np.float64)
    assert_estimate(column, expected(column, discount, ones, ones, values), values)


@settings(max_examples=50)
@given(column=columns())
def test_sums_of_targets_and_errors(run, column):
    """From which follows the share of the targets' variance that the critic explains; the last place does not count."""
    column["target"] = column["reward"]
    sums = np.full(4, 7.0)
    run(add_spread, column, ("value", "target"), None, sums)
    targets, values = (column[name][:-1].astype(np.float64) for name in ("target", "value"))
    errors = targets - values
    np.testing.assert_allclose(
        sums, [targets.sum(), (targets**2).sum(), errors.sum(), (errors**2).sum()], rtol=1e-9, atol=1e-9
    )


def column_of(ended, final_value=0.0):
    column = np.zeros(4, STEP)
    column["reward"], column["value"], column["ended"][1], column["final_value"][1] = 1, 10, ended, final_value
    column["value"][3] = 20
    return column


def test_by_hand():
    """Rewards 1, values 10, the value at the end 20, gamma 0.5, lambda 0.5."""
    going = estimated(gae, column_of(GOES_ON), GAE, (0.5, 0.5))
    np.testing.assert_allclose(going["advantage"][:3], [-4 + (-4 + 1 / 4) / 4, -4 + 1 / 4, 1])
    terminated = estimated(gae, column_of(TERMINATED), GAE, (0.5, 0.5))
    np.testing.assert_allclose(terminated["advantage"][:3], [-4 - 9 / 4, -9, 1])
    truncated = estimated(gae, column_of(TRUNCATED, 40), GAE, (0.5, 0.5))
    np.testing.assert_allclose(truncated["advantage"][:3], [-4 + 11 / 4, 11, 1])
    np.testing.assert_allclose(truncated["target"][:3], [10 - 4 + 11 / 4, 21, 11])
