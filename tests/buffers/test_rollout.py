"""The records of a rollout."""

import numpy as np
from velocirl.buffers.rollout import allocate_rollout, sample_type


def test_shapes_and_types():
    sample = sample_type(5, 2, "int32", 7)
    assert {name: sample[name].shape for name in ("observation", "action", "mask")} == {
        "observation": (5,),
        "action": (2,),
        "mask": (7,),
    }
    assert sample["action"].base == np.int32
    assert sample_type(1, 1, "float32", 0)["mask"].shape == (1,)  # a field of no width has no type in compiled code
    assert sample_type(1, 1, "float32", 0)["action"].base == np.float32


def test_the_life_of_a_copy_lies_together():
    rollout = allocate_rollout(3, 4, sample_type(1, 1, "int32", 0))
    rollout["reward"][1] = np.arange(4)
    assert rollout.shape == (3, 4)
    assert rollout.flags.c_contiguous
    assert rollout.reshape(-1)["reward"].tolist() == [0, 0, 0, 0, 0, 1, 2, 3, 0, 0, 0, 0]
    assert not rollout["advantage"].any()
