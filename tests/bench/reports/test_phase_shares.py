import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from planted_report import SHARES, result

from velocirl.bench.reports.phase_shares import Segment, phases_of, segments
from velocirl.bench.units import STEPS

paths = st.sampled_from(
    ["rollout", "rollout/policy", "update", "update/x", "own", "own/part", "own/part/deep", "/", ""]
)


def told(**phases):
    metadata = {f"phase:{path}": share for path, share in phases.items()}
    return phases_of(result("training", "training", STEPS, [], metadata={"num_envs": 64, **metadata}))


def test_only_phases_are_read_and_they_are_shares_of_all_time():
    assert told(rollout=1.0, update=3.0, **{"update/loss": 2.0}) == {
        "rollout": 0.25,
        "update": 0.75,
        "update/loss": 0.5,
    }
    assert told() == {}
    assert told(rollout=0.0) == {}
    assert told(rollout="much", update=float("inf"), estimate=-1.0, own=1.0) == {"own": 1.0}


def test_segments_are_the_parts_and_what_they_leave_in_the_order_of_training():
    found = segments({"update": 0.75, "own": 0.05, "update/loss": 0.5, "rollout": 0.2, "update/forward": 0.2})
    assert found == [
        Segment("rollout", 0.2),
        Segment("update/forward", 0.2),
        Segment("update/loss", 0.5),
        Segment("update", pytest.approx(0.05), rest=True),
        Segment("own", 0.05),
    ]


def test_parts_are_never_more_than_their_phase():
    found = segments({"update": 0.5, "update/loss": 0.9, "update/forward": 0.1, "rollout": 0.5})
    assert [(one.path, one.share) for one in found] == [
        ("rollout", 0.5),
        ("update/forward", pytest.approx(0.05)),
        ("update/loss", pytest.approx(0.45)),
    ]


@given(st.dictionaries(paths, st.floats(0.0, 1e9)))
@example({"rollout": 2.2e-308, "rollout/policy": 4.0})
def test_segments_are_all_of_the_time(phases):
    shares = told(**phases)
    assert not shares or sum(one.share for one in segments(shares)) == pytest.approx(1.0, abs=1e-6)


def test_the_planted_phases_add_up():
    assert sum(one.share for one in segments(SHARES)) == pytest.approx(1.0)
