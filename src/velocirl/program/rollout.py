"""The iteration of on-policy algorithms: collect a rollout, then several epochs of updates over it."""

from __future__ import annotations

from velocirl.program.iteration import (
    Advance,
    Operations,
    choose,
    listed,
    loop,
    once,
    phase,
    rows,
    timed,
    when,
)  # fmt: skip


def rollout(*, masked: bool, normalizes: bool, recurrent: bool = False) -> Operations:
    """Collect `horizon` steps of every environment, and the values needed for bootstrapping.

    After the last step, the policy's network also evaluates the current observations, and the final observations of
    truncated episodes; a recurrent network keeps its state for the next rollout.
    """
    return (
        *when(recurrent, once("keep_start_state")),
        rows("begin_rollout"),
        loop(
            "t",
            "horizon",
            timed(
                "round",
                phase(
                    "policy",
                    rows("see", "t"),
                    rows("forward", "t"),
                    *when(normalizes, rows("add_moments", "t")),
                    *when(masked, rows("keep_mask", "t")),
                    rows("check_output", "t"),
                    rows("act", "t"),
                    rows("command", "t"),
                ),
                phase("environment", Advance()),
                phase("buffer", rows("settle", "t"), rows("cut", "t"), *when(recurrent, rows("forget", "t"))),
            ),
        ),
        phase(
            "last_values",
            rows("see", "horizon"),
            rows("evaluate", "horizon"),
            *when(masked, rows("keep_mask", "horizon")),
            rows("value", "horizon"),
            listed("find_cuts", rows("load_cut"), rows("evaluate"), rows("value_of_cut"), rows("keep_final_value")),
        ),
    )


def epochs(*, reestimates: bool) -> Operations:
    """Learn from a rollout: shuffle its samples, and update on one minibatch after the other."""
    return (
        once("begin_order", into="stopped"),
        loop(
            "epoch",
            "epochs",
            *when(reestimates, phase("estimate", once("order_rows"), once("before_epoch"), once("columns"))),
            phase("shuffle", once("shuffle")),
            loop(
                "minibatch",
                "minibatches",
                once("begin_minibatch", "minibatch", into="number"),
                choose("number", (timed("update", once("update", "zero", "zero", "number", into="stopped")),)),
                until="stopped",
            ),
            until="stopped",
        ),
    )
