"""The iteration of off-policy algorithms: step, store the transitions, and run the updates that are due.

Offline algorithms run the updates alone, on recorded data.
"""

from __future__ import annotations

from velocirl.program.iteration import (
    Advance,
    Operations,
    choose,
    loop,
    once,
    phase,
    rows,
    timed,
    when,
)  # fmt: skip

RANDOM: Operations = (rows("random_action"),)  # action selection before learning starts,
POLICY: Operations = (rows("forward"), rows("check_output"), rows("act"))  # and after that


def step() -> Operations:
    """Step every environment once and store the transitions; before learning starts, actions are random."""
    return (
        timed(
            "round",
            phase(
                "policy",
                once("begin_round", "step", "round", into="random"),
                rows("look"),
                choose("random", RANDOM, POLICY),
                rows("command"),
            ),
            phase("environment", Advance()),
            phase("buffer", rows("store"), once("enter")),
        ),
    )


def step_by(choice: Operations) -> Operations:
    """Take the same step with a fixed way of choosing actions."""
    return (rows("look"), *choice, rows("command"), Advance(), rows("store"), once("enter"))


def received_step() -> Operations:
    """Take a step that is a single operation, as when collectors send it."""
    return (Advance(), once("enter"))


def replay(one_step: Operations, learn: Operations) -> Operations:
    """Take `rounds` steps of all environments; after each one, run the updates that are due."""
    return (
        loop(
            "round",
            "rounds",
            *one_step,
            once("end_round", "step", into="step"),
            once("updates_due", "step", into="due"),
            choose("due", (phase("learning", *learn),)),
        ),
    )


def updates(*, decides: bool, levels: bool) -> Operations:
    """Run `due` updates: sample a batch, learn from it, and update its priorities.

    `decides`: first call the functions that decide by finished episodes. `levels`: ranks agree on a batch's weights.
    """
    return (
        *when(decides, once("decide")),
        loop(
            "update",
            "due",
            timed(
                "update",
                phase(
                    "sample",
                    once("begin_update", "step", into="number"),
                    once("draw", "zero", "batch"),
                    *when(levels, once("level", "zero", "batch")),
                ),
                once("update", "zero", "zero", "number"),
                phase("sample", once("end_update", "number", into="failed")),
            ),
            until="failed",
        ),
    )
