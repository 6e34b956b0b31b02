"""Arrays of records that torch holds, here in memory of the host; on a GPU, see tests/contracts/test_cuda_*.py."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from velocirl.backends.torch.device_array import DeviceArray  # noqa: E402

RECORD = np.dtype([("reward", np.float32), ("ended", np.int8)], align=True)  # three bytes lie behind the last field


@pytest.mark.parametrize("shape", [(5,), (4, 3), (0,)])
def test_what_is_stored_is_found_again_with_zeros_between_the_fields(shape):
    given = np.zeros(shape, RECORD)
    given.view(np.uint8)[...] = 7
    made = DeviceArray.zeros(shape, RECORD, torch.device("cpu"))
    made.store(given)
    expected = np.zeros(shape, RECORD)
    expected["reward"], expected["ended"] = given["reward"], given["ended"]
    assert made.fetch().tobytes() == expected.tobytes()


def test_rows_that_are_not_packed_are_stored_in_order():
    rows = np.arange(24, dtype=np.int64).reshape(4, 6)[:, ::2]
    made = DeviceArray.zeros(rows.shape, rows.dtype, torch.device("cpu"))
    made.store(rows)
    np.testing.assert_array_equal(made.fetch(), rows)
