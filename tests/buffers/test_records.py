"""The records of experience: their fields, what lies beside what, and the same memory without observations."""

import numpy as np
import pytest

from velocirl.buffers.records import (
    WIDE,
    Act,
    Field,
    aligned_records,
    drawn_type,
    narrow,
    rollout_type,
    side_by_side,
    transition_type,
)  # fmt: skip
from velocirl.engine.errors import DefinitionError
from velocirl.engine.records import with_attributes

OWN = [Field("log_probability", np.float32), Field("value", np.float32), Field("cost_value", np.float32)]
TWO = rollout_type(5, Act(2, "int32", 7), OWN, ("value", "cost_value"))


def fields(dtype):
    return {name: (dtype[name].base, dtype[name].shape) for name in dtype.names or ()}


def test_a_step_of_a_rollout():
    assert fields(TWO) == {
        "reward": (np.float32, ()),
        "value": (np.float32, ()),
        "cost_value": (np.float32, ()),
        "final_value": (np.float32, ()),
        "final_cost_value": (np.float32, ()),
        "log_probability": (np.float32, ()),
        "action": (np.int32, (2,)),
        "mask": (np.int8, (7,)),
        "ended": (np.int8, ()),
        "observation": (np.float32, (5,)),
    }
    plain = rollout_type(1, Act(1, "float32", 0), [], ())
    assert plain["mask"].shape == (1,)  # a field of no width has no type in compiled code
    assert plain["action"].base == np.float32


def test_a_step_of_a_memory():
    assert fields(transition_type(5, Act(2, "float32", 0))) == {
        "reward": (np.float32, ()),
        "action": (np.float32, (2,)),
        "mask": (np.int8, (1,)),
        "next_mask": (np.int8, (1,)),
        "ended": (np.int8, ()),
        "observation": (np.float32, (5,)),
        "next_observation": (np.float32, (5,)),
    }


def test_a_transition_that_was_drawn():
    found = fields(drawn_type(Act(1, "int32", 3), [Field("next_action", np.int32), Field("targets", np.float32, (8,))]))
    assert found == {
        **dict.fromkeys(("reward", "discount", "weight", "error"), (np.float32, ())),
        "next_action": (np.int32, ()),
        "targets": (np.float32, (8,)),
        "action": (np.int32, (1,)),
        "mask": (np.int8, (3,)),
        "next_mask": (np.int8, (3,)),
    }


@pytest.mark.parametrize("name", ["reward", "action", "mask", "observation", "final_value"])
def test_a_field_of_a_rows_own_name_is_refused(name):
    with pytest.raises(DefinitionError, match=f"a row has a field {name!r} of its own: declare this one under another"):
        rollout_type(1, Act(1, "int32", 0), [*OWN, Field(name, np.float32)], ("value",))


def test_nor_may_a_drawn_transition_have_two_weights():
    with pytest.raises(DefinitionError, match="a row has a field 'weight' of its own"):
        drawn_type(Act(1, "int32", 0), [Field("weight", np.float32)])


def test_the_life_of_a_copy_lies_together():
    rollout = np.zeros((3, 4), TWO)
    rollout["reward"][1] = np.arange(4)
    assert rollout.reshape(-1)["reward"].tolist() == [0, 0, 0, 0, 0, 1, 2, 3, 0, 0, 0, 0]


def test_values_lie_side_by_side():
    rollout = np.zeros((3, 4), TWO)
    values, finals = (
        side_by_side(rollout, ["value", "cost_value"]),
        side_by_side(rollout, ["final_value", "final_cost_value"]),
    )
    assert values.shape == finals.shape == (3, 4, 2)
    values[2, 1], finals[0, 3] = (5, 7), (11, 13)
    assert (rollout["value"][2, 1], rollout["cost_value"][2, 1]) == (5, 7)
    assert (rollout["final_value"][0, 3], rollout["final_cost_value"][0, 3]) == (11, 13)
    assert rollout["value"].sum() + rollout["cost_value"].sum() == 12
    assert side_by_side(rollout, ["value"]).shape == (3, 4, 1)


@pytest.mark.parametrize("values", [("value", "costs"), ("costs", "value")])
def test_values_that_are_several_numbers_lie_side_by_side_too(values):
    own = [Field("costs", np.float32, (3,)), Field("value", np.float32)]
    rollout = np.zeros((2, 4), rollout_type(5, Act(2, "int32", 7), own, values))
    side_by_side(rollout, values)[1, 2] = 1, 2, 3, 4
    side_by_side(rollout, [f"final_{name}" for name in values])[0, 1] = 5, 6, 7, 8
    flat = [np.concatenate([rollout[f"{final}{name}"][place].reshape(-1) for name in values]).tolist()
            for final, place in (("", (1, 2)), ("final_", (0, 1)))]  # fmt: skip
    assert flat == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert rollout["costs"].sum() + rollout["value"].sum() == 10


def test_narrow_records_are_the_same_memory_and_know_no_observation():
    """So that functions are compiled once for observations of any size."""
    kinds = [narrow(np.zeros(1, transition_type(inputs, Act(1, "int32", 2)))).dtype for inputs in (1, 4, 100)]
    assert kinds[0] == kinds[1] == kinds[2]
    assert not set(WIDE) & set(kinds[0].names)
    rows = np.zeros((2, 3), transition_type(4, Act(1, "int32", 2)))
    seen = narrow(rows)
    assert seen.strides == rows.strides
    seen["reward"], seen["action"], seen["next_mask"], seen["ended"] = 2, 3, 1, 1
    assert (rows["reward"] == 2).all()
    assert (rows["action"] == 3).all()
    assert (rows["next_mask"] == 1).all()
    assert (rows["ended"] == 1).all()
    assert not rows["observation"].any()
    assert not rows["next_observation"].any()
    with_attributes(seen)[1, 2].reward = 7
    assert rows["reward"][1, 2] == 7


@pytest.mark.parametrize(("inputs", "size"), [(1, 32), (4, 64), (11, 64), (12, 128), (100, 448)])
def test_a_step_lies_in_as_few_lines_of_the_cache_as_it_can(inputs, size):
    kind = rollout_type(inputs, Act(1, "int32", 0), [Field("value", np.float32)], ("value",))
    assert kind.itemsize == size
    rows = aligned_records((3, 2), kind)
    assert rows.ctypes.data % 64 == 0
    assert rows.shape == (3, 2)
    assert not rows.view(np.uint8).any()
    assert rows[1, 0]["observation"].shape == (inputs,)
