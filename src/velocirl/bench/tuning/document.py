"""Complete tuning results as plain values for JSON."""

from __future__ import annotations

import math
from typing import Any

from velocirl.bench.machine.facts import Machine
from velocirl.bench.statistics import Estimate
from velocirl.bench.tuning.choosing import Choice, Verdict
from velocirl.bench.tuning.evidence import Measured
from velocirl.bench.tuning.trials import Trial
from velocirl.bench.tuning.tuner import Tuner
from velocirl.training.settings.config import as_plain


def document_of(
    tuner: Tuner, choice: Choice | None, environment: str, algorithm: str, machine: Machine, *, partial: bool
) -> dict[str, Any]:
    """Return all results, including raw samples; `partial` marks an interrupted tuning."""
    plan, goal = tuner.plan, tuner.goal
    return {
        "environment": environment,
        "algorithm": algorithm,
        "partial": partial,
        "machine": as_plain(machine),
        "budget_seconds": plan.budget,
        "total_steps": plan.total_steps,
        "given": dict(plan.given),
        "tolerance": plan.tolerance,
        "goal": None if goal is None else {**as_plain(goal), "quality": goal.quality},
        "chosen": None if choice is None or partial else choice.name,
        "reason": None if choice is None or partial else choice.reason,
        "notes": tuner.notes,
        "candidates": [] if choice is None else [_row(row, choice.verdicts[row.name]) for row in tuner.rows],
    }


def _row(row: Measured, verdict: Verdict) -> dict[str, Any]:
    return {
        "name": row.name,
        "learning": dict(row.candidate.learning),
        "running": dict(row.candidate.running),
        "glance_steps_per_second": row.glance,
        "steps_per_second": _estimate(row.speed),
        "samples": row.speeds,
        "trials": [_trial(trial) for trial in row.trials],
        "seconds_to_quality": verdict.seconds,
        "return_difference": _estimate(verdict.difference),
        "times_as_soon": _estimate(verdict.gain),
        "verdict": verdict.state,
        "reason": verdict.reason,
    }


def _trial(trial: Trial) -> dict[str, Any]:
    return {
        "seed": trial.seed,
        "untrained": _finite(trial.untrained),
        "steps": list(trial.steps),
        "seconds": list(trial.seconds),
        "returns": [_finite(value) for value in trial.returns],
    }


def _estimate(found: Estimate | None) -> dict[str, float | None] | None:
    return None if found is None else {name: _finite(getattr(found, name)) for name in ("median", "low", "high")}


def _finite(value: float) -> float | None:
    """Replace a non-finite value, such as the return of a stuck policy, by None: JSON has no representation for it."""
    return value if math.isfinite(value) else None
