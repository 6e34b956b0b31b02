"""States of any table: the most important ones, or a given one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from velocirl.tabular.tables.states import decode

if TYPE_CHECKING:
    from rich.console import Console

    from velocirl.tabular.agent import TabularAgent

MOST_COLUMNS = 9  # of actions; with more, only the best value is shown


def read_state(agent: TabularAgent, text: str) -> int:
    """Parse the index of a state, given as that index or as the observation: 12, or 3,1,0."""
    states, name = agent.states, agent.source.id
    words = [word for word in re.split(r"[\s,()\[\]]+", text) if word]
    try:
        digits = [int(word) for word in words]
    except ValueError:
        digits = []
    if len(digits) == 1 and (len(states.sizes) > 1 or "," not in text):
        number = digits[0] - (states.starts[0] if len(states.sizes) == 1 else 0)
        if not 0 <= number < states.count:
            raise ValueError(f"--state {text}: the states of {name} are numbered from 0 to {states.count - 1:,}")
        return number
    if len(digits) != len(states.sizes):
        wanted = f"{len(states.sizes)} whole numbers with commas between them, or " if len(states.sizes) > 1 else ""
        raise ValueError(f"--state {text!r}: a state of {name} is {wanted}a number from 0 to {states.count - 1:,}")
    number = int(states.encode(np.array(digits)))
    if number < 0:
        least = ",".join(map(str, states.starts))
        most = ",".join(str(start + size - 1) for start, size in zip(states.starts, states.sizes, strict=True))
        raise ValueError(f"--state {text!r}: those of {name} go from {least} to {most}")
    return number


def top_states(agent: TabularAgent, count: int) -> list[int]:
    """Return the states with learned values: the most visited if visits were counted, else the most valuable."""
    table = agent.table
    rows = table.arrays.rows[: len(table)]
    values = _mean_of_sets(agent, table.values)
    known = (values != np.asarray(table.initial, values.dtype)).any(axis=1)
    if table.sparse:
        known &= rows["state"] >= 0
    score = rows["visits"].sum(axis=1) if table.counts_visits else values.max(axis=1)
    places = np.flatnonzero(known)
    chosen = places[np.argsort(-score[places].astype(np.float64), kind="stable")[:count]]
    return [int(number) for number in table.keys[chosen]]


def describe(agent: TabularAgent, numbers: Sequence[int]) -> list[dict[str, Any]]:
    """Describe the table's entries for states as plain values."""
    table = agent.table
    values = table.look_up(numbers).mean(axis=1)
    places = table.places(numbers)
    rows: list[dict[str, Any]] = []
    for number, observation, each, place in zip(numbers, decode(agent.states, numbers), values, places, strict=True):
        best = best_action(agent, each)
        row = {
            "state": number,
            "observation": observation.tolist(),
            "values": [float(value) for value in each],
            "best": None if best is None else best + agent.first_action,
        }
        if table.counts_visits:
            row["visits"] = table.arrays.rows["visits"][place].tolist() if place >= 0 else [0] * agent.actions
        rows.append(row)
    return rows


def best_action(agent: TabularAgent, values: NDArray[Any]) -> int | None:
    """Return the best action of a row, or None if nothing was learned.

    An illegal action keeps its initial value, and must not count as the best.
    """
    learnt = values != np.asarray(agent.table.initial, values.dtype)
    if not learnt.any():
        return None
    return int(np.where(learnt, values, -np.inf).argmax() if agent.source.masked else values.argmax())


def show_states(console: Console, agent: TabularAgent, numbers: Sequence[int]) -> None:
    """Print a line for each of these states."""
    from velocirl.bench.reports.terminal import new_table

    separate = agent.actions <= MOST_COLUMNS
    table = new_table(console)
    table.add_column("state", justify="right")
    if len(agent.states.sizes) > 1:
        table.add_column("observation")
    table.add_column("best", justify="right")
    names = [str(action + agent.first_action) for action in range(agent.actions)] if separate else ["value"]
    for name in names:
        table.add_column(f"action {name}" if separate else name, justify="right")
    if agent.table.counts_visits:
        table.add_column("visits", justify="right")
    for row in describe(agent, numbers):
        place = None if row["best"] is None else row["best"] - agent.first_action
        shown = row["values"] if separate else [max(row["values"])]
        figures = [f"{value:,.4g}" for value in shown]
        if separate and place is not None:
            figures[place] = f"[bold green]{figures[place]}[/]"
        seen = [" ".join(map(str, row["observation"]))] if len(agent.states.sizes) > 1 else []
        cells = [f"{row['state']:,}", *seen]
        cells += ["never met" if place is None else str(row["best"]), *figures]
        cells += [f"{sum(row['visits']):,}"] if agent.table.counts_visits else []
        table.add_row(*cells)
    console.print(table)


def _mean_of_sets(agent: TabularAgent, values: NDArray[Any]) -> NDArray[Any]:
    """Return the values used for acting, (rows, actions): the mean over the sets of values."""
    return values.reshape(len(values), agent.table.sets, agent.actions).mean(axis=1)
