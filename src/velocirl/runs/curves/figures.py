"""Metrics of a run as arrays, for analysis."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from velocirl.runs.curves.columns import column, names_of
from velocirl.runs.directory import Run
from velocirl.runs.finding import find_run
from velocirl.runs.metrics import Row, read_rows


def read_metrics(run: str | Path | Run, *, frame: bool = False) -> Any:
    """Read the metrics of a run: a dictionary of arrays by name, with NaN where a row has no value.

    `run` is the directory of a run, its name or the beginning of its name, or a file of metrics (metrics.jsonl). The
    names are Stable-Baselines3's: read_metrics("runs/mine")["rollout/ep_rew_mean"]. With `frame=True`, returns a pandas
    DataFrame with these columns; this is the only case that needs pandas.
    """
    rows = _rows(run)
    columns = {name: column(rows, name) for name in names_of(rows)}
    if not frame:
        return columns
    try:
        import pandas as pd  # pyright: ignore[reportMissingImports] - where it is installed
    except ModuleNotFoundError:
        raise ValueError("frame=True needs pandas: pip install pandas") from None
    return pd.DataFrame(columns)


def _rows(run: str | Path | Run) -> list[Row]:
    if isinstance(run, Run):
        return run.rows()
    return read_rows(run) if Path(run).is_file() else find_run(str(run)).rows()
