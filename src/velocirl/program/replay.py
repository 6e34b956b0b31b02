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

ACT: Operations = (
    phase(
        "policy",
        once("begin_round", "step", "round", into="random"),
        rows("look"),
        choose("random", (rows("random_action"),), (rows("forward"), rows("check_output"), rows("act"))),
        rows("command"),
    ),
)
STORE: Operations = (phase("buffer", rows("store"), once("enter")),)


def step() -> Operations:
    """Take one step in every environment and store it: by random actions before learning starts."""
    return (timed("round", *ACT, phase("environment", Advance()), *STORE),)


def received_step() -> Operations:
    """Store a step that collectors took."""
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
    """Run `due` updates: draw a batch, learn from it, and revise its priorities.

    `decides`: something is decided once by the episodes that ended. `levels`: ranks agree on the weights of a batch.
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
