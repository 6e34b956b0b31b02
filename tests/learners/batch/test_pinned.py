"""Places that arrays are sent to a GPU from; the copies themselves are tests/contracts/test_cuda_off_policy.py's."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from velocirl.learners.batch.devices.torch_pinned import as_array  # noqa: E402

RECORD = np.dtype([("reward", np.float32), ("ended", np.int8)], align=True)


@pytest.mark.parametrize("like", [
    np.arange(12, dtype=np.float32).reshape(3, 4), np.ones(5, RECORD), np.arange(24).reshape(4, 6)[:, ::2],
], ids=["numbers", "records", "not packed"])  # fmt: skip
def test_a_place_holds_the_bytes_of_an_array(like):
    memory = torch.zeros(like.nbytes, dtype=torch.uint8)
    as_array(memory, like)[...] = like
    found = memory.numpy().view(like.dtype).reshape(like.shape)
    for name in like.dtype.names or (...,):
        np.testing.assert_array_equal(found[name], like[name])


def test_of_nothing_there_is_nothing_to_send():
    assert as_array(torch.zeros(0, dtype=torch.uint8), np.zeros((0, 7), np.float32)).shape == (0, 7)
