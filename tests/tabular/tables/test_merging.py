"""Replicas of a table that learnt apart, merged: against a plain loop, with one and two sets, dense and sparse."""

import numpy as np
import pytest
from choosing import every_pair
from hypothesis import given, settings
from hypothesis import strategies as st

from velocirl.tabular.tables.merging import Replica
from velocirl.tabular.tables.table import find_or_add, mark
from velocirl.tabular.tables.value_table import ValueTable

ACTIONS = 3
INITIAL = 0.5
STATES = 7000  # of which some rows are met; more than there is room for at first


def replicas_of(count, *, sets=1, storage="dense", dtype="float64", states=STATES, marks=True, actions=ACTIONS):
    tables = [
        ValueTable(states, actions, sets=sets, storage=storage, visits=True, marks=marks, dtype=dtype, initial=INITIAL)
        for _ in range(count)
    ]
    return [Replica(table) for table in tables]


def learn(replica, updates):
    """Apply updates (state, action, set, target) at a learning rate of 0.25, as a plain loop would."""
    table = replica.table
    for state, action, chosen, target in updates:
        if table.sparse and table.places([state])[0] < 0:
            arrays = table.grow(1)  # for a row that this replica meets
            find_or_add(arrays._replace(rows=arrays.rows.view(np.recarray)), state)
        place = table.places([state])[0]
        if table.marks_rows:
            mark(table.arrays, place)
        row = table.arrays.rows[place]
        column = chosen * ACTIONS + action
        row["values"][column] += 0.25 * (target - row["values"][column])
        row["visits"][action] += 1


def merged_by_hand(replicas, base_values, base_visits):
    """W0 + sum n (W - W0) / sum n for every state, set and action."""
    states, sets = replicas[0].table.states, replicas[0].table.sets
    everything = np.arange(states)
    values, visits = base_values.copy(), base_visits.copy()
    for state in range(states):
        for action in range(ACTIONS):
            counts = [visits_of(one, everything)[state, action] - base_visits[state, action] for one in replicas]
            if sum(counts) == 0:
                continue
            visits[state, action] += sum(counts)
            for chosen in range(sets):
                first = base_values[state, chosen, action]
                moved = [one.table.look_up([state])[0, chosen, action] - first for one in replicas]
                total = sum(n * delta for n, delta in zip(counts, moved, strict=True))
                values[state, chosen, action] = first + total / sum(counts)
    return values, visits


def visits_of(replica, states):
    places = replica.table.places(states)
    return np.where((places >= 0)[:, None], replica.table.arrays.rows["visits"][np.maximum(places, 0)], 0)


def exchange_changes(replicas):
    """Without MPI: each owner of a dense table merges what all tell it, and tells all what came of it."""
    if replicas[0].table.sparse:
        everything = np.concatenate([one.changes().list for one in replicas])
        for one in replicas:
            one.merge(everything)
        return
    told = [one.changes(len(replicas)) for one in replicas]
    parts = [np.split(one.list, np.cumsum(one.counts)[:-1]) for one in told]
    outcomes = []
    for owner, one in enumerate(replicas):
        for_owner = [part[owner] for part in parts]
        outcomes.append(one.merge_owned(np.concatenate(for_owner), np.array([len(part) for part in for_owner])).copy())
    for one in replicas:
        one.take_outcomes(np.concatenate(outcomes))


def exchange_totals(replicas):
    half = replicas[0].table.states // 2
    for first, stop in ((0, half), (half, replicas[0].table.states)):
        parts = [one.totals(first, stop) for one in replicas]
        moved, visits = sum(part[0] for part in parts), sum(part[1] for part in parts)
        for one in replicas:
            one.settle(first, moved, visits)
    for one in replicas:
        one.agree()


def drawn_updates(rng, states, sets, count):
    return [
        (int(rng.integers(states)), int(rng.integers(ACTIONS)), int(rng.integers(sets)), float(rng.normal()))
        for _ in range(count)
    ]


@pytest.mark.parametrize(
    ("exchange", "sets", "dtype"), every_pair([exchange_changes, exchange_totals], [1, 2], ["float32", "float64"])
)
def test_merged_tables_are_those_of_a_plain_loop(exchange, sets, dtype):
    """Over several periods, so that what all have in common is not what they began with; all replicas stay alike."""
    rng = np.random.default_rng(0)
    replicas = replicas_of(3, sets=sets, dtype=dtype, states=20)
    everything = np.arange(20)
    for _ in range(3):
        before = replicas[0].table.look_up(everything).astype(np.float64), visits_of(replicas[0], everything)
        for one in replicas[:2]:  # the third has nothing to tell
            learn(one, drawn_updates(rng, 20, sets, 30))
        values, visits = merged_by_hand(replicas, *before)
        exchange(replicas)
        for one in replicas:
            np.testing.assert_allclose(
                one.table.look_up(everything), values, atol=1e-6 if dtype == "float32" else 1e-14
            )
            assert (visits_of(one, everything) == visits).all()
            assert one.table.values.tobytes() == replicas[0].table.values.tobytes()
            assert len(one.changes().list) == 0
    assert visits.sum() == 3 * 2 * 30


@settings(max_examples=25)
@given(st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_sparse_tables_merge_as_dense_ones(count, seed):
    """By the numbers of the states: every replica has its rows in an order of its own, and gets those of others."""
    rng = np.random.default_rng(seed)
    dense, sparse = replicas_of(count), replicas_of(count, storage="sparse")
    some = rng.integers(STATES, size=12)
    for _ in range(2):
        for one, other in zip(dense, sparse, strict=True):
            updates = [(int(rng.choice(some)), a, s, t) for _, a, s, t in drawn_updates(rng, STATES, 1, 10)]
            learn(one, updates)
            learn(other, updates)
        exchange_changes(dense)
        exchange_changes(sparse)
    for one, other in zip(dense, sparse, strict=True):
        np.testing.assert_array_equal(one.table.look_up(some), other.table.look_up(some))
        np.testing.assert_array_equal(visits_of(one, some), visits_of(other, some))
        assert len(other.table) <= 12


def test_a_sparse_table_grows_with_what_others_met():
    few, many = replicas_of(2, storage="sparse")
    states = np.random.default_rng(1).permutation(STATES)[:3000]
    rows = np.zeros(3000, many.table.row)
    rows["state"], rows["values"] = states, 0.5
    many.take(rows)
    many.table.mark(np.arange(3000))
    many.table.arrays.rows["values"][:3000] = 2.0
    many.table.arrays.rows["visits"][:3000] = 1
    room = few.table.capacity
    exchange_changes([few, many])
    assert len(few.table) == 3000 > room
    np.testing.assert_array_equal(few.table.look_up(states), 2.0)
    np.testing.assert_array_equal(few.table.look_up([s for s in range(STATES) if s not in set(states)]), INITIAL)


def merged_by_scanning(replicas, values, visits):
    """The rule over all rows, in the types of a table, one replica after the other; given what they had in common."""
    dtype, sets = values.dtype, replicas[0].table.sets
    total, sums = np.zeros_like(visits), np.zeros_like(values)
    for one in replicas:
        own = one.table.arrays.rows
        far = own["values"] - values
        moved = (far != 0).reshape(len(far), sets, -1).any(axis=1)
        made = own["visits"] - visits
        made = np.where(made != 0, made, moved).astype(np.int32)
        sums += far * np.tile(made, sets).astype(dtype)
        total += made
    weights = np.tile(total, sets).astype(dtype)
    with np.errstate(invalid="ignore"):
        return np.where(weights, values + sums / weights, values), visits + total


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 5),
    st.sampled_from([1, 7, 64, 65, 3000, STATES]),
    st.sampled_from([0.0, 0.002, 0.1, 1.0]),
    st.integers(1, 2),
    st.sampled_from(["float32", "float64"]),
    st.integers(0, 2**32 - 1),
)
def test_marked_rows_are_all_that_has_to_be_looked_at(count, states, share, sets, dtype, seed):
    """Bit for bit what scanning all rows gives; rows that several replicas touched, and some marked in vain, too."""
    rng = np.random.default_rng(seed)
    replicas = replicas_of(count, states=states, sets=sets, dtype=dtype)
    for _ in range(2):
        before = replicas[0].table.arrays.rows.copy()
        for one in replicas:
            rows = one.table.arrays.rows
            touched = rng.integers(states, size=int(share * states))
            one.table.mark(np.append(touched, rng.integers(states)))
            actions = rng.integers(ACTIONS, size=len(touched))
            np.add.at(rows["visits"], (touched, actions), rng.integers(0, 4, size=len(touched), dtype=np.int32))
            rows["values"][touched, actions + ACTIONS * rng.integers(sets)] += rng.normal(size=len(touched))
        values, visits = merged_by_scanning(replicas, before["values"], before["visits"])
        exchange_changes(replicas)
        for one in replicas:
            np.testing.assert_array_equal(one.table.arrays.rows["values"], values)
            np.testing.assert_array_equal(one.table.arrays.rows["visits"], visits)
            assert not one.table.arrays.marks.any()


def test_what_moved_without_a_visit_counts_once():
    """As a trace moves it; a replica that visited it three times weighs three times as much."""
    traced, visiting = replicas_of(2, states=4)
    for one in (traced, visiting):
        one.table.arrays.rows["visits"][2, 1] = 5  # before
        one.agree()
        one.table.mark(np.array([2]))
    traced.table.values[2, 1] = 1.5
    visiting.table.values[2, 1] = 0.9
    visiting.table.arrays.rows["visits"][2, 1] += 3
    exchange_changes([traced, visiting])
    for one in (traced, visiting):
        assert one.table.values[2, 1] == pytest.approx(0.5 + (1 * 1.0 + 3 * 0.4) / 4)
        assert one.table.arrays.rows["visits"][2, 1] == 5 + 4


def test_visits_may_pass_the_highest_number():
    """They are counted modulo 2^32; what was visited since the last time is known all the same."""
    replicas = replicas_of(2, states=2)
    for one in replicas:
        one.table.arrays.rows["visits"][:] = np.iinfo(np.int32).max
        one.agree()
        one.table.mark(np.array([1]))
        one.table.arrays.rows["visits"][1, 0] = np.iinfo(np.int32).min + 1  # two more
        one.table.values[1, 0] = 1.5
    exchange_changes(replicas)
    assert replicas[0].table.values[1, 0] == pytest.approx(1.5)
    assert replicas[0].table.arrays.rows["visits"][1, 0] == np.iinfo(np.int32).min + 3


def test_more_changes_than_there_is_room_for():
    one, other = replicas_of(2)
    one.table.mark(np.arange(STATES))
    one.table.values[:] += np.arange(STATES * ACTIONS).reshape(STATES, ACTIONS)
    one.table.arrays.rows["visits"][:] = 2
    assert len(one.changes().list) == STATES * ACTIONS
    exchange_changes([one, other])
    np.testing.assert_allclose(other.table.values, INITIAL + np.arange(STATES * ACTIONS).reshape(STATES, ACTIONS))


class Common:
    """A common table as MPI ranks have it: what is there, and what is added."""

    def __init__(self, replica):
        self.values = replica.table.arrays.rows["values"].copy()
        self.visits = replica.table.arrays.rows["visits"].copy()

    def exchange(self, replica, rate):
        values, visits = self.values.copy(), self.visits.copy()
        replica.catch_up(0, values, visits, rate)
        self.values += values
        self.visits += visits


@pytest.mark.parametrize("count", [1, 2, 16])
@pytest.mark.parametrize("rate", [0.25, 1.0])
def test_ranks_that_move_a_value_to_the_same_target_end_there_and_never_beyond(count, rate):
    """With updates W <- W + rate (T - W), the common value is that of all updates made one after another."""
    replicas = replicas_of(count, states=2, marks=False)
    common, target, made = Common(replicas[0]), 3.0, 0
    for period in range(1, 5):
        for one in replicas:
            row = one.table.arrays.rows[1]
            for _ in range(period):
                row["values"][2] += rate * (target - row["values"][2])
                row["visits"][2] += 1
        for one in replicas:
            common.exchange(one, rate)
            made += period
            expected = target + (INITIAL - target) * (1 - rate) ** made
            assert common.values[1, 2] == pytest.approx(expected, abs=1e-12)
            assert common.values[1, 2] <= target + 1e-12
            assert one.table.values[1, 2] == pytest.approx(common.values[1, 2], abs=1e-12)
        assert common.visits[1, 2] == made
    assert (common.values[0] == INITIAL).all()


def test_updates_of_one_rank_count_after_those_of_another():
    """Towards different targets: as a plain loop that makes the first one's updates, then the second one's."""
    replicas = replicas_of(2, sets=2, states=2, marks=False)
    common = Common(replicas[0])
    targets, by_hand = (4.0, -2.0), INITIAL
    for one, target in zip(replicas, targets, strict=True):
        learn(one, [(0, 1, chosen, target) for chosen in (0, 1) for _ in range(3)])
        for _ in range(3):
            by_hand += 0.25 * (target - by_hand)
    for one in replicas:
        common.exchange(one, 0.25)
    np.testing.assert_allclose(common.values[0, [1, ACTIONS + 1]], by_hand, atol=1e-12)
    common.exchange(replicas[0], 0.25)  # which has nothing to add, and hears of the second one
    assert replicas[0].table.values.tobytes() == common.values.tobytes()
    assert common.visits[0, 1] == 12


def test_taking_a_table_leaves_rows_where_they_are():
    """Copies of the environment know places, not states."""
    first, second = replicas_of(2, storage="sparse")
    learn(first, [(5, 0, 0, 1.0), (6, 0, 0, 2.0)])
    learn(second, [(6, 0, 0, 9.0), (7, 0, 0, 9.0), (5, 0, 0, 9.0)])
    places = second.table.places([6, 7, 5])
    second.take(first.table.arrays.rows[: len(first.table)].copy())
    assert (second.table.places([6, 7, 5]) == places).all()
    np.testing.assert_array_equal(second.table.look_up([5, 6]), first.table.look_up([5, 6]))
    assert len(second.changes().list) == 0


def test_a_table_without_visits_is_refused():
    with pytest.raises(ValueError, match="does not count them"):
        Replica(ValueTable(4, 2))
