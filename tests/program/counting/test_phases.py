"""Phases as learners count them: parts are of what their phase took."""

from velocirl.program.counting.phases import add, add_parts


def test_parts_never_exceed_their_phase():
    phases = {}
    for _ in range(2):
        add(phases, "update", 1.0)
        add_parts(phases, "update", 1.0, {"forward": 3.0, "backward": 1.0})
    assert phases == {"update": 2.0, "update/forward": 1.5, "update/backward": 0.5}
    add_parts(phases, "update", 1.0, {"forward": 0.25})
    assert phases["update/forward"] == 1.75
