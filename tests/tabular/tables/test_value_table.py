"""Tables as Python sees them: growing, looking up, and being saved and loaded whole or not at all."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from velocirl.engine.compiler.compiling import compile_loop, cpu_translator
from velocirl.tabular.tables import value_table
from velocirl.tabular.tables.table import FULLEST, NOBODY, ROWS_USED, find_or_add, row_type
from velocirl.tabular.tables.value_table import DENSE_BYTES, FIRST_ROWS, ValueTable, choose_storage

MANY = 2**40
KINDS = {
    "dense": {},
    "sparse": {"storage": "sparse"},
    "dense float64 with visits": {"dtype": "float64", "visits": True},
    "sparse with visits and two sets": {"storage": "sparse", "visits": True, "sets": 2, "initial": 0.5},
}


def add_all(table, states, places):
    for i in range(len(states)):
        places[i] = find_or_add(table, states[i])


def add(table, states):
    """Rows for states, as training adds them."""
    states = np.asarray(states, np.int64)
    arrays, places = table.grow(len(states)), np.empty(len(states), np.int64)
    translator = cpu_translator("table", double=False)
    compile_loop(add_all, (arrays, states, places), translator, before=lambda: None)(arrays, states, places)
    return places


def filled(kind, states=50, seed=0):
    """A table with random numbers in 20 of its rows or in all."""
    table = ValueTable(states, 3, **KINDS[kind])
    rng = np.random.default_rng(seed)
    if table.sparse:
        add(table, rng.permutation(states)[:20])
    table.values[:] = rng.normal(size=table.values.shape)
    if table.counts_visits:
        table.arrays.rows["visits"][: len(table)] = rng.integers(0, 9, (len(table), 3))
    return table


def snapshot(table):
    return {name: array.copy() for name, array in table.state().items()}, table.look_up(np.arange(table.states))


def assert_same(table, before):
    state, values = snapshot(table)
    assert state.keys() == before[0].keys()
    for name, array in state.items():
        np.testing.assert_array_equal(array, before[0][name])
    np.testing.assert_array_equal(values, before[1])


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_saved_is_loaded(kind):
    table, other = filled(kind), filled(kind, seed=1)
    saved = table.state()
    other.load_state(saved)
    assert_same(other, snapshot(table))
    assert len(other) == len(table)
    saved["values"][:] = 99  # a copy: neither has changed
    assert_same(other, snapshot(table))
    assert not (table.values == 99).any()


def test_states_met_after_loading_begin_anew():
    """The table had more rows before, and those are not what new states get."""
    table, small = (
        ValueTable(100, 3, storage="sparse", visits=True, initial=0.25),
        ValueTable(100, 3, storage="sparse", visits=True, initial=0.25),
    )
    add(table, np.arange(60))
    table.values[:] = 7.0
    table.arrays.rows["visits"] = 4
    add(small, [5, 6])
    table.load_state(small.state())
    assert len(table) == 2
    assert add(table, [40, 5]).tolist() == [2, 0]
    assert (table.look_up([40]) == 0.25).all()
    assert (table.arrays.rows["visits"][2] == 0).all()
    assert table.places([0, 59]).tolist() == [-1, -1]


def test_rows_that_threads_left_unused_keep_their_places():
    """A learner remembers where rows are; after loading they are there."""
    table = filled("sparse")
    keys = table.keys.copy()
    table.arrays.rows["state"][4] = NOBODY
    table.arrays.slots[:] = 0
    table._enter(0, len(table))
    other = ValueTable(50, 3, storage="sparse")
    other.load_state(table.state())
    found = other.places(keys)
    assert found.tolist() == [place if place != 4 else -1 for place in range(20)]
    assert add(other, [keys[4]]).tolist() == [20]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "spoil",
    [
        lambda state: state["values"][:-1],
        lambda state: state["values"][:, :-1],
        lambda state: state["values"].astype(np.float16),
        lambda state: state["values"].ravel(),
    ],
    ids=["a row less", "an action less", "another type", "another shape"],
)
def test_values_that_do_not_fit_are_refused_and_nothing_changes(kind, spoil):
    table = filled(kind)
    state, before = table.state(), snapshot(table)
    state["values"] = spoil(state)
    with pytest.raises(ValueError, match=r"values is .*, and must be|differ in length"):
        table.load_state(state)
    assert_same(table, before)


@pytest.mark.parametrize("state", [50, -2, "twice", 2**62], ids=["too large", "negative", "twice", "far away"])
def test_states_that_cannot_be_are_refused_and_nothing_changes(state):
    table = filled("sparse")
    saved, before = table.state(), snapshot(table)
    saved["state"][3] = saved["state"][0] if state == "twice" else state
    message = "a state twice" if state == "twice" else rf"state is {state} at \[3\]; it must be from -1 to 49"
    with pytest.raises(ValueError, match=message):
        table.load_state(saved)
    assert_same(table, before)


@pytest.mark.parametrize("name", ["state", "values", "visits"])
def test_what_is_missing_is_named(name):
    table = filled("sparse with visits and two sets")
    saved, before = table.state(), snapshot(table)
    del saved[name]
    with pytest.raises(ValueError, match=f"no array '{name}'"):
        table.load_state(saved)
    assert_same(table, before)


def test_a_dense_table_is_not_taken_for_a_sparse_one():
    with pytest.raises(ValueError, match="no array 'state'"):
        ValueTable(50, 3, storage="sparse").load_state(filled("dense").state())


@settings(max_examples=25)
@given(st.lists(st.lists(st.integers(0, MANY - 1) | st.integers(0, 3000), max_size=1500), max_size=6))
def test_a_table_that_grows_is_a_dict(batches):
    table, known = ValueTable(MANY, 1, storage="sparse"), {}
    for batch in batches:
        places = add(table, batch)
        for state in batch:
            known.setdefault(state, len(known))
        assert places.tolist() == [known[state] for state in batch]
        table.values[places, 0] = np.asarray(batch, np.float32)
    assert len(table) == len(known)
    assert table.keys.tolist() == list(known)
    assert table.places(list(known)).tolist() == list(known.values())
    np.testing.assert_array_equal(table.look_up(list(known))[:, 0, 0], np.array(list(known), np.float32))


def test_a_table_grows_by_what_is_short():
    """Rows and slots double by themselves, each when it is full; so the table is never four times too large."""
    table, largest = ValueTable(MANY, 4, storage="sparse"), 0.0
    for first in range(0, 200_000, 2000):
        add(table, np.arange(first, first + 2000))
        rows, slots = len(table.arrays.rows), len(table.arrays.slots)
        assert len(table) <= table.capacity == min(rows, int(FULLEST * slots))
        if len(table) > 4000:
            assert rows <= 2 * len(table)
            assert slots <= 2 * (len(table) + 2000) / FULLEST
            largest = max(largest, table.nbytes / len(table))
    assert largest <= 2 * 24 + 2 * 8 / FULLEST + 1  # a row of 24 bytes and a slot of 8
    assert table.nbytes / len(table) >= 24 + 8
    np.testing.assert_array_equal(table.places(np.arange(200_000)), np.arange(200_000))


def test_a_table_has_an_end(monkeypatch):
    monkeypatch.setattr(value_table, "MOST_ROWS", 3000)
    table = ValueTable(MANY, 1, storage="sparse")
    add(table, np.arange(2500))
    assert len(table.arrays.rows) <= 3000
    with pytest.raises(MemoryError, match="a sparse table holds at most 3,000 states"):
        table.grow(501)
    assert table.places([2499]).tolist() == [2499]
    table.grow(500)


def test_a_dense_table_has_room_for_all():
    table = ValueTable(50, 3)
    arrays = table.arrays
    assert table.room(10**9)
    assert table.grow(10**9) is arrays
    assert len(table) == table.capacity == 50
    assert table.keys.tolist() == list(range(50))
    assert table.places([3, 49]).tolist() == [3, 49]


@pytest.mark.parametrize("storage", ["dense", "sparse"])
@pytest.mark.parametrize("initial", [0.0, -1.5])
def test_what_was_never_met_has_the_initial_value(storage, initial):
    table = ValueTable(5000, 2, storage=storage, initial=initial, sets=2)
    np.testing.assert_array_equal(table.look_up([0, 17, 4999]), np.full((3, 2, 2), initial))
    if storage == "sparse":
        add(table, np.arange(3000))  # beyond the first rows
    assert (table.values == initial).all()
    table.values[17] = 3.0
    np.testing.assert_array_equal(table.look_up([17, 4999])[:, 1, 1], [3.0, initial])


def test_values_are_of_their_type():
    tenth = 0.1
    for dtype in ("float32", "float64"):
        table = ValueTable(3, 1, dtype=dtype)
        table.values[:] = tenth
        assert table.dtype == table.look_up([0]).dtype == np.dtype(dtype)
        assert float(table.look_up([0])[0, 0, 0]) == np.dtype(dtype).type(tenth)


def test_memory_can_come_from_elsewhere():
    asked = []

    def allocate(shape, dtype):
        asked.append((shape, np.dtype(dtype)))
        return np.zeros(shape, dtype)

    table = ValueTable(MANY, 2, storage="sparse", allocate=allocate)
    unmarked = [((1,), np.uint64), ((1,), table.row)]  # rows are marked where ranks exchange them
    assert asked == [((8,), np.int64), ((FIRST_ROWS,), table.row), ((2048,), np.int64), *unmarked]
    add(table, np.arange(2000))
    assert asked[5:] == [((2048,), table.row), ((4096,), np.int64)]
    assert table.arrays.counts[ROWS_USED] == 2000


@pytest.mark.parametrize(
    ("states", "actions", "expected"),
    [
        (19_683, 9, "dense"),
        (DENSE_BYTES // 16, 4, "dense"),  # 16,777,216 states of four actions: 256 MiB
        (DENSE_BYTES // 16 + 1, 4, "sparse"),
        (2**62, 1, "sparse"),
    ],
    ids=["TicTacToe", "just fits", "one too many", "far too many"],
)
def test_how_storage_is_chosen(states, actions, expected):
    row = row_type(actions)
    assert choose_storage("auto", states, row) == expected
    assert choose_storage("sparse", states, row) == "sparse"


def test_the_rule_counts_what_a_row_holds():
    for options, bytes_of_row in (({}, 16), ({"dtype": "float64"}, 32), ({"sets": 2}, 32), ({"visits": True}, 32)):
        row = row_type(4, **options)
        assert choose_storage("auto", 2**28 // bytes_of_row, row) == "dense"
        assert choose_storage("auto", 2**28 // bytes_of_row + 1, row) == "sparse"


def test_a_dense_table_that_no_machine_has_room_for_is_refused():
    assert choose_storage("dense", 2**36, row_type(4), "Large-v0") == "dense"  # 1 TiB: as it was asked for
    with pytest.raises(ValueError, match='a dense table of Large-v0 would take 64 TiB: use storage="sparse"'):
        choose_storage("dense", 2**42, row_type(4), "Large-v0")
