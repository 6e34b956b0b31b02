"""Comparing runs of commands: what they saved, and what they measured but for the time."""


def assert_same(first, second):
    first, second = (run.checkpoints().latest().state for run in (first, second))
    assert first.document == second.document
    assert first.arrays.keys() == second.arrays.keys()
    for name in first.arrays:
        assert first.arrays[name].tobytes() == second.arrays[name].tobytes(), name


def timeless(rows):
    return [{name: figure for name, figure in row.items() if not name.startswith("time/")} for row in rows]
