"""The tree of the training loop: its arithmetic, its order and its lines."""

import pytest

from velocirl.bench.profiling.tree import PYTHON, REST, UNTOLD, bar, build_tree, overlap, tree_text

PHASES = {
    "update": 5.0,
    "update/optimiser": 1.0,
    "update/forward": 3.5,
    "rollout": 3.0,
    "rollout/environment": 1.0,
    "rollout/policy": 2.0,
    "estimate": 0.5,
}


def test_parts_follow_their_parents_in_the_order_of_training_and_the_rest_is_python():
    nodes = build_tree(PHASES, seconds=10.0, steps=1000)
    assert [(node.depth, node.name, node.seconds) for node in nodes] == [
        (0, "rollout", 3.0),
        (1, "policy", 2.0),
        (1, "environment", 1.0),
        (0, "estimate", 0.5),
        (0, "update", 5.0),
        (1, "forward", 3.5),
        (1, "optimiser", 1.0),
        (1, REST, 0.5),
        (0, PYTHON, 1.5),
    ]
    assert sum(node.share for node in nodes if node.depth == 0) == pytest.approx(1.0)
    for parent in ("rollout", "update"):
        (whole,) = [node.share for node in nodes if node.path == parent]
        assert sum(node.share for node in nodes if node.path.startswith(f"{parent}/")) == pytest.approx(whole)
    assert nodes[0].seconds_per_step == pytest.approx(3e-3)


def test_phases_that_run_at_the_same_time_leave_nothing_for_python():
    phases = {"rollout": 8.0, "update": 7.0}
    nodes = build_tree(phases, seconds=10.0, steps=1)
    assert nodes[-1].name == PYTHON
    assert nodes[-1].seconds == 0.0
    assert overlap(phases, 10.0) == pytest.approx(0.5)
    assert overlap(PHASES, 10.0) == 0.0


def test_without_phases_nothing_is_said_to_be_python():
    (node,) = build_tree({}, seconds=2.0, steps=0)
    assert (node.name, node.share, node.seconds_per_step) == (UNTOLD, 1.0, 0.0)


def test_a_phase_of_another_name_comes_last_and_a_rest_that_cannot_be_seen_is_left_out():
    nodes = build_tree({"talk": 1.0, "rollout": 1.0, "rollout/policy": 0.996}, seconds=2.0, steps=1)
    assert [node.name for node in nodes] == ["rollout", "policy", "talk", PYTHON]


def test_the_tree_as_lines():
    nodes = build_tree({"rollout": 1.0, "rollout/policy": 0.5, "update": 2.0}, seconds=4.0, steps=2_000_000)
    assert tree_text(nodes) == [
        "├─ rollout               ██████                     25.0%    1.00 s    500 ns/step",
        "│  ├─ policy             ███                        12.5%    500 ms    250 ns/step",
        "│  └─ rest               ███                        12.5%    500 ms    250 ns/step",
        "├─ update                ████████████               50.0%    2.00 s   1.00 µs/step",
        "└─ Python and callbacks  ██████                     25.0%    1.00 s    500 ns/step",
    ]
    assert tree_text(build_tree({"rollout": 1.0}, 1.0, 2 * 10**9))[0].endswith("  0.50 ns/step")
    plain = tree_text(nodes, ascii_only=True)
    assert plain[1].startswith("|  |- policy             ###    ")
    assert all(line.replace("µ", "u").isascii() for line in plain)


@pytest.mark.parametrize(
    ("share", "text"), [(0.0, "    "), (1.0, "████"), (2.0, "████"), (0.25, "█   "), (0.3125, "█▎  ")]
)
def test_bars_are_as_long_as_their_share(share, text):
    assert bar(share, 4) == text
