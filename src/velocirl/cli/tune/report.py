"""Report of a tuning: progress, a table, and the file of settings."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from velocirl.bench.machine.facts import Machine
from velocirl.bench.reports.terminal import new_table
from velocirl.bench.statistics import Estimate
from velocirl.bench.tuning.choosing import ACCEPTED, IS_REFERENCE, UNCLEAR, UNTRIED, WORSE, Choice, Verdict
from velocirl.bench.tuning.evidence import Measured, speed_ratio
from velocirl.bench.tuning.hardware import HEADINGS as ADVICE_HEADINGS
from velocirl.bench.tuning.hardware import advice_rows, rig_of
from velocirl.bench.tuning.tuner import Tuner
from velocirl.bench.units import SECONDS, STEPS, significant
from velocirl.monitor.words import say_figure
from velocirl.runs.config_file import as_toml
from velocirl.training.agent import Agent
from velocirl.training.settings.config import as_plain

COLORS = {ACCEPTED: "green", WORSE: "red", UNCLEAR: "yellow", UNTRIED: "dim", IS_REFERENCE: ""}
HEADINGS = ("steps/s", "95% interval", "return", "to quality", "times as soon", "95% interval")


class TuneProgress:
    """Progress display of a tuning; without a terminal, a line for each stage."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[detail]}", style="dim"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("", total=1.0, detail="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def begin(self, stage: str) -> None:
        """Start a stage."""
        self._progress.reset(self._task, description=stage, detail="")
        if not self._console.is_terminal:
            self._console.print(f"measuring {stage}" if stage != "compiling" else stage, markup=False)

    def advance(self, share: float, detail: str = "") -> None:
        """Move the bar."""
        self._progress.update(self._task, completed=share, detail=escape(detail))

    def close(self) -> None:
        """Restore the terminal."""
        self._progress.stop()


def show_table(
    console: Console, tuner: Tuner, choice: Choice, *, everything: bool = False, partial: bool = False
) -> None:
    """Print the candidates measured alternately, with `everything` also the quick passes; the choice is marked."""
    table = new_table(console)
    table.add_column("")
    table.add_column("settings")
    for heading in HEADINGS:
        table.add_column(heading, justify="right")
    table.add_column("")
    known = [row for row in tuner.rows if row.rate and (everything or partial or row.speeds)]
    for row in sorted(known, key=lambda row: (not row.candidate.is_reference, not row.trials, -row.rate)):
        chosen = row.name == choice.name and not partial
        table.add_row(
            ">" if chosen else "",
            escape(_label(tuner, row)),
            *_cells(row, choice.verdicts[row.name]),
            style="bold" if chosen else None,
        )
    if partial:
        console.print("partial:", style="yellow")
    console.print(table)
    hidden = sum(row.glance is not None for row in tuner.rows) - len(known)
    if hidden > 0:
        console.print(f"not shown: {hidden} that were only looked at (--all shows them)", style="dim")
    for note in tuner.notes:
        console.print(f"note: {note}", style="yellow", markup=False, soft_wrap=True)


def show_hardware(console: Console, tuner: Tuner, machine: Machine) -> None:
    """Print common advice for small and large machines, whether it applies here, and what was measured."""
    if not hasattr(tuner.reference_config, "buffer_size"):
        return  # the advice is for off-policy learning
    table = new_table(console)
    for heading in ADVICE_HEADINGS:
        table.add_column(heading)
    for row in advice_rows(rig_of(machine), tuner.rows, as_plain(tuner.reference_config)):
        table.add_row(*map(escape, row))
    console.print(table)


def show_ending(console: Console, tuner: Tuner, choice: Choice, output: Path) -> None:
    """Print what was chosen, why, and the path of the file."""
    for line in _findings(tuner, choice):
        console.print(line, markup=False, soft_wrap=True)
    console.print(f"[dim]file  [/dim] {escape(str(output))}", soft_wrap=True)
    console.print(f"[dim]next  [/dim] velocirl train --config {escape(str(output))}", soft_wrap=True)


def config_text(tuner: Tuner, choice: Choice, agent: Agent, environment: str, machine: Machine, file: str) -> str:
    """Return the chosen settings as TOML text, with the machine that they were measured on."""
    config = as_plain(agent.config)
    if "seed" not in tuner.plan.given:
        config.pop("seed", None)  # not chosen by the user
    names = {name: None for one in tuner.rows for name in one.candidate.settings}  # in order
    tuned = {name: config.pop(name) for name in names if name in config}
    run = {"environment": environment, "algorithm": agent.name, "total_steps": tuner.plan.total_steps}
    day = datetime.now().astimezone().date().isoformat()
    comments = [
        f"velocirl train --config {file}",
        f"Tuned on {day}: {machine.processor}, {machine.cores} cores.",
        *_findings(tuner, choice),
        *tuner.notes,
        *machine.warnings,
    ]
    head = "".join(f"# {' '.join(comment.split())}\n" for comment in comments)
    rest = "# As the environment's preset, the options of velocirl tune and the defaults had it:\n"
    return f"{head}{as_toml(run)}\n# Tuned:\n{as_toml(tuned)}\n{rest}{as_toml(config)}"


def _findings(tuner: Tuner, choice: Choice) -> list[str]:
    """Format what was chosen and why, in a few lines."""
    lines, goal, verdict = [], tuner.goal, choice.verdicts[choice.name]
    if goal is not None:
        share = f"{tuner.plan.tolerance:.3g} of the {say_figure(goal.gain)} that it learnt"
        lines.append(
            f"quality: a return of {say_figure(goal.quality)}, which is the reference's {say_figure(goal.reached)}"
            f" less a tolerance of {say_figure(goal.tolerance)} ({share})"
        )
    if verdict.gain is None:
        lines.append(f"chosen: the reference itself, as {choice.reason}")
    else:
        row = next(row for row in tuner.rows if row.name == choice.name)
        faster = speed_ratio(row, tuner.reference)
        soon = "" if goal is None else f"{_say_gain(verdict.gain)} times as soon at that quality as the reference, "
        speed = "" if faster is None else f"{_say_gain(faster)} times its steps/s, "
        lines.append(f"chosen: {choice.name}: {soon}{speed}{choice.reason}")
    lines.append("learning rate and total steps are those of the reference")
    return lines


def _label(tuner: Tuner, row: Measured) -> str:
    """Format the settings of a row; the reference's are spelled out for comparison."""
    if not row.candidate.is_reference:
        return row.name
    names = {name for one in tuner.rows for name in {**one.candidate.learning, **one.candidate.running}}
    agent = tuner.chosen_agent(Choice(row.name, "", {}))
    values = {name: value for name, value in as_plain(agent.config).items() if name in names}
    return f"{row.name}: {' '.join(f'{name}={value}' for name, value in values.items())}" if values else row.name


def _cells(row: Measured, verdict: Verdict) -> list[str]:
    speed, finals = row.speed, row.finals
    cells = ["", "", "", "", "", ""]
    if speed is not None:
        cells[0] = STEPS.say(speed.median).removesuffix(" steps/s")
        cells[1] = STEPS.say_interval(speed) if row.speeds else "at a glance"
    if finals:
        cells[2] = f"{say_figure(float(np.mean(finals)))} ({len(finals)})" if np.isfinite(finals).all() else "stuck"
    if verdict.seconds is not None:
        cells[3] = SECONDS.say(verdict.seconds)
    if verdict.gain is not None and finals:
        cells[4], cells[5] = significant(verdict.gain.median), _interval(verdict.gain)
    color = COLORS[verdict.state]
    said = escape(f"{verdict.state}: {verdict.reason}" if verdict.reason else verdict.state)
    return [*cells, f"[{color}]{said}[/{color}]" if color else said]


def _interval(found: Estimate) -> str:
    return f"{significant(found.low)} to {significant(found.high)}"


def _say_gain(found: Estimate) -> str:
    return f"{significant(found.median)} ({_interval(found)})"
