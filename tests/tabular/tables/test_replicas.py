"""Copies of a table that threads learn into: nothing is lost, nothing counts twice, nothing overshoots."""

import numpy as np
import pytest

from velocirl import QLearning
from velocirl.engine.compiler.compiling import compile_loop, learning_translator
from velocirl.engine.targets.threads import SPACING
from velocirl.tabular.tables import replicas
from velocirl.tabular.tables.replicas import (
    PARTS,
    Common,
    caught_up,
    copy_of,
    exchanging,
    powers_of,
    steps_between,
    worth_copying,
)
from velocirl.tabular.tables.value_table import ValueTable

STATES, ACTIONS, RATE = 7, 3, 0.1


@pytest.fixture(scope="module")
def exchange():
    """The compiled exchange of tables with one set, and with two."""
    compiled = {}

    def run(common, own, base, first=0, sets=1):
        powers = powers_of(1 - RATE, sets, np.float64)
        arguments = Common(common, base, powers, np.zeros(PARTS * SPACING, np.int64), first), own
        if sets not in compiled:
            loop = exchanging(ACTIONS, sets)
            compiled[sets] = compile_loop(loop, arguments, learning_translator("table"), before=lambda: None)
        compiled[sets](*arguments)

    return run


def table(sets=1):
    made = ValueTable(STATES, ACTIONS, sets=sets, visits=True, dtype="float64").arrays
    made.rows["values"] = np.random.default_rng(0).normal(size=made.rows["values"].shape)
    return made


def update(table, state, action, target, times=1):
    for _ in range(times):
        table.rows["values"][state, action] += RATE * (target - table.rows["values"][state, action])
    table.rows["visits"][state, action] += times


@pytest.mark.parametrize("times", [1, 3, 50])
def test_updates_count_as_if_they_had_been_made_after_all_else(times):
    before, now, target = 2.0, -1.0, 5.0
    own, later = before, now
    for _ in range(times):
        own += RATE * (target - own)
        later += RATE * (target - later)
    assert caught_up(now, before, own, (1 - RATE) ** times) == pytest.approx(later, abs=1e-12)


def test_two_copies_that_learn_apart_equal_one_after_the_other(exchange):
    common, whole = table(), table()
    copies = [(copy_of(common), copy_of(common)) for _ in range(2)]
    for (own, _), (state, target, times) in zip(copies, [(1, 4.0, 3), (1, -2.0, 2)], strict=True):
        update(own, state, 2, target, times)
        update(own, state + 3, 0, target)
        update(whole, state, 2, target, times)
        update(whole, state + 3, 0, target)
    for own, base in copies:
        exchange(common, own, base)
    np.testing.assert_allclose(common.rows["values"], whole.rows["values"], atol=1e-12)
    np.testing.assert_array_equal(common.rows["visits"], whole.rows["visits"])


def test_a_second_exchange_brings_nothing_and_fetches_what_others_brought(exchange):
    common = table()
    (own, base), (other, other_base) = [(copy_of(common), copy_of(common)) for _ in range(2)]
    update(own, 4, 1, 10.0, 5)
    exchange(common, own, base)
    once = common.rows.copy()
    exchange(common, own, base)
    assert common.rows.tobytes() == once.tobytes()
    assert other.rows.tobytes() != once.tobytes()
    exchange(common, other, other_base)
    for each in (common, own, base, other, other_base):
        assert each.rows.tobytes() == once.tobytes()


@pytest.mark.parametrize("copies", [2, 16])
def test_however_many_move_a_value_to_its_target_it_ends_there(exchange, copies):
    common = table()
    all_copies = [(copy_of(common), copy_of(common)) for _ in range(copies)]
    for own, base in all_copies:
        update(own, 2, 0, 3.0, 2000)  # more than there are powers to look up
        exchange(common, own, base)
    assert common.rows["values"][2, 0] == pytest.approx(3.0, abs=1e-9)


@pytest.mark.parametrize("first", [0, 3, PARTS - 1])
def test_it_may_begin_with_any_part(exchange, first):
    common = table()
    own, base = copy_of(common), copy_of(common)
    for state in range(STATES):
        update(own, state, state % ACTIONS, 1.0)
    wanted = own.rows.copy()
    exchange(common, own, base, first)
    np.testing.assert_allclose(common.rows["values"], wanted["values"], atol=1e-12)


def test_visits_that_have_run_over_still_count_right(exchange):
    common = table()
    common.rows["visits"][0, 0] = np.iinfo(np.int32).max - 1
    own, base = copy_of(common), copy_of(common)
    with np.errstate(over="ignore"):
        update(own, 0, 0, 8.0, 4)
    value = own.rows["values"][0, 0]
    exchange(common, own, base)
    assert common.rows["values"][0, 0] == pytest.approx(value, abs=1e-12)


def test_of_two_sets_each_has_its_share_of_the_visits(exchange):
    common = table(sets=2)
    own, base = copy_of(common), copy_of(common)
    changed = [1, ACTIONS + 1]  # the same action in both sets, each updated twice
    for k in changed:
        for _ in range(2):
            own.rows["values"][3, k] += RATE * (5.0 - own.rows["values"][3, k])
    own.rows["visits"][3, 1] += 4
    wanted = own.rows["values"][3, changed]
    common.rows["values"][3, changed] += 1.0  # somebody else's
    exchange(common, own, base, sets=2)
    np.testing.assert_allclose(common.rows["values"][3, changed], wanted + 0.9**2 * 1.0, atol=1e-12)


def test_only_small_dense_tables_are_copied():
    assert worth_copying(ValueTable(100, 4, visits=True))
    assert not worth_copying(ValueTable(100, 4, visits=True, storage="sparse"))
    assert not worth_copying(ValueTable(10**6, 4, visits=True))
    assert steps_between(ValueTable(100, 4)) == replicas.LEAST_STEPS
    assert steps_between(ValueTable(10**5, 4)) == 16 * 10**5


def test_threads_learn_in_copies_and_the_agent_has_it_all():
    agent = QLearning("FrozenLake-v1", runtime="threads", workers=2, seed=0)
    agent.learn(500_000)
    (own, _), (other, _) = agent.learner._tables
    assert own is not None
    assert other is not None
    assert agent.steps >= 500_000
    visits = agent.table.arrays.rows["visits"].sum(dtype=np.int64)
    assert visits == agent.steps
