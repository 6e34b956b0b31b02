"""Records with their number in them, for the tests of memories."""

import numpy as np

from velocirl.buffers.records import Act, transition_type

TYPE = transition_type(1, Act(1, "int32", 1))


def numbered(first, count):
    """Records number `first` and after."""
    records = np.zeros(count, TYPE)
    records["reward"] = np.arange(first, first + count)
    return records
