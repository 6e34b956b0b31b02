"""What saved arrays must be: each is declared, and nothing else is believed."""

import numpy as np
import pytest

from velocirl.engine.disk.saved import STRETCH, ArraySpec, StateError, check_arrays, moments, records, streams

KIND = np.dtype([("action", np.int32, (2,)), ("reward", np.float32)], align=True)
SPECS = {
    "counts": ArraySpec(np.int64, (3,), 0, np.array([9, 10, 2**62])),
    "weights": ArraySpec(np.float32, (None, 2)),
    "rows": records(KIND, (None,), {"action": (0, np.array([3, 1]))}),
    "bytes": ArraySpec(
        np.uint8, (None, KIND.itemsize), fields=records(KIND, (None,), {"action": (0, 3)}).fields, packed=KIND
    ),
    "rng": streams(2),
    "seen": moments(2),
    "more": ArraySpec(np.bool_, (2,), optional=True),
}


def good():
    return {
        "counts": np.array([9, 10, 99]),
        "weights": np.ones((5, 2), np.float32),
        "rows": np.zeros(4, KIND),
        "bytes": np.zeros((4, KIND.itemsize), np.uint8),
        "rng": np.ones((2, 2), np.uint64),
        "seen": np.ones((3, 2)),
    }


def test_what_fits_is_accepted():
    check_arrays(good(), SPECS)
    check_arrays({**good(), "more": np.zeros(2, np.bool_), "rows": np.zeros(0, KIND)}, SPECS)


def changed(name, change):
    arrays = good()
    change(arrays[name])
    return arrays


def wild_bytes():
    rows = np.zeros(4, KIND)
    rows["action"][3, 1] = 4
    return rows.view(np.uint8).reshape(4, -1)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({**good(), "x": np.zeros(1)}, "has an array 'x', which does not belong to it"),
        ({name: array for name, array in good().items() if name != "rng"}, "has no array 'rng'"),
        ({**good(), "counts": np.zeros(4, np.int64)}, r"counts is int64 \(4,\), and must be int64 \(3\)"),
        ({**good(), "counts": np.zeros(3, np.int32)}, r"counts is int32 \(3,\), and must be int64 \(3\)"),
        ({**good(), "weights": np.zeros(5, np.float32)}, r"weights is float32 \(5,\), and must be float32 \(any, 2\)"),
        ({**good(), "rows": np.zeros(4)}, r"rows is float64 \(4,\), and must be records of action, reward"),
        (changed("counts", lambda a: a.__setitem__(0, 10)), r"counts is 10 at \[0\]; it must be from 0 to 9"),
        (changed("counts", lambda a: a.__setitem__(2, -1)), r"counts is -1 at \[2\]"),
        (changed("weights", lambda a: a.__setitem__((3, 1), np.nan)), r"weights is nan at \[3, 1\]; .*allow_nan=True"),
        (
            changed("rows", lambda a: a["action"].__setitem__((2, 1), 2)),
            r"rows.action is 2 at \[2, 1\]; .* from 0 to 1",
        ),
        (changed("rows", lambda a: a["reward"].__setitem__(1, np.inf)), r"rows.reward is inf at \[1\]"),
        ({**good(), "bytes": wild_bytes()}, r"bytes.action is 4 at \[3, 1\]"),
        (changed("rng", lambda a: a.__setitem__(1, 0)), r"rng\[1\] is all zeros"),
        (changed("seen", lambda a: a.__setitem__((2, 0), -1)), r"seen is -1.0 at \[2, 0\]; it must be at least 0.0"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(arrays, message):
    with pytest.raises(StateError, match=message):
        check_arrays(arrays, SPECS)


def test_nan_may_be_allowed_but_no_index_beyond_its_bounds():
    arrays = good()
    arrays["weights"][0] = np.nan
    arrays["rows"]["reward"] = np.inf
    check_arrays(arrays, SPECS, allow_nan=True)
    arrays["rows"]["action"] = -1
    with pytest.raises(StateError, match=r"rows.action is -1"):
        check_arrays(arrays, SPECS, allow_nan=True)


def test_the_place_in_a_long_array_is_told():
    rows = np.zeros(STRETCH + 7, np.int8)
    rows[-1] = 3
    with pytest.raises(StateError, match=rf"x is 3 at \[{STRETCH + 6}\]; it must be at most 2"):
        check_arrays({"x": rows}, {"x": ArraySpec(np.int8, (None,), None, 2)})
