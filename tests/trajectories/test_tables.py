"""Trajectories in files: read back as they were, and never half of one."""

import csv
import errno
import os

import numpy as np
import pytest

from velocirl.trajectories.saving import WRITERS
from velocirl.trajectories.trajectory import ConstraintTrace, Quantity, Trajectory


@pytest.fixture
def trajectory():
    def values(*numbers):
        return np.array(numbers, np.float32)

    limit = ConstraintTrace(
        values(340.0, 350.1, 355.5), values(*[-np.inf] * 3), values(*[350.0] * 3), values(0.0, 1.0, 1.0), "K", True
    )
    return Trajectory(
        environment="Tank-v0",
        time=np.array([0.0, 0.5, 1.0]),
        episode=np.array([0, 0, 0]),
        reward=values(0.0, 0.1, 1 / 3),
        terminated=np.array([False, False, True]),
        truncated=np.zeros(3, np.bool_),
        signals={"temperature": Quantity(values(0.1, 1e-20, 16777216.0), "K")},
        actuators={"coolant_flow": Quantity(values(np.nan, 0.3, 2.5), "kg/s")},
        constraints={"overheating": limit},
        cost=values(0.0, 1.0, 1.0),
        time_unit="s",
        scenario="nominal",
        policy="pid",
    )


def test_csv_has_names_and_units_and_every_digit(trajectory, tmp_path):
    with trajectory.save(tmp_path / "plant.csv").open(newline="") as file:
        heading, *rows = csv.reader(file)
    assert heading == [
        "episode", "time [s]", "signal/temperature [K]", "actuator/coolant_flow [kg/s]", "reward",
        "constraint/overheating [K]", "low/overheating [K]", "high/overheating [K]", "cost/overheating", "cost",
        "terminated", "truncated",
    ]  # fmt: skip
    assert [row[6] for row in rows] == [""] * 3  # no lower limit
    assert [row[3] for row in rows] == ["", "0.3", "2.5"]  # no action led to the beginning
    for place, column in enumerate(trajectory.columns()):
        read = np.array([float(row[place] or "nan") for row in rows])
        kept = np.isfinite(column.values)
        assert np.array_equal(np.isfinite(read), kept)
        assert np.array_equal(read[kept].astype(column.values.dtype), column.values[kept])


def test_npz_gives_back_the_very_arrays(trajectory, tmp_path):
    with np.load(trajectory.save(tmp_path / "plant.npz"), allow_pickle=False) as read:
        assert read["names"].tolist() == [one.name for one in trajectory.columns()]
        assert read["units"].tolist() == [one.unit for one in trajectory.columns()]
        assert (str(read["environment"]), str(read["scenario"]), str(read["policy"])) == ("Tank-v0", "nominal", "pid")
        for column in trajectory.columns():
            assert read[column.name].dtype == column.values.dtype
            assert np.array_equal(read[column.name], column.values, equal_nan=column.values.dtype.kind == "f")


def test_excursions_are_how_far_it_went_beyond():
    values = np.array([0.0, 1.0, 2.0, 3.5, np.nan, -1.0])
    trace = ConstraintTrace(values, np.zeros(6), np.full(6, 2.0), np.zeros(6))
    assert trace.excursion.tolist() == [0.0, 0.0, 0.0, 1.5, np.inf, 1.0]


@pytest.mark.parametrize("ending", WRITERS)
@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), KeyboardInterrupt()])
def test_nothing_is_half_written(trajectory, tmp_path, monkeypatch, ending, failure):
    path = tmp_path / f"plant{ending}"
    path.write_bytes(b"what was there before")

    def full(_):
        raise failure

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(type(failure)):
        trajectory.save(path)
    assert path.read_bytes() == b"what was there before"
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_other_endings_are_refused_and_missing_directories_are_made(trajectory, tmp_path):
    with pytest.raises(ValueError, match=r"plant.xlsx must end in \.csv"):
        trajectory.save(tmp_path / "nowhere" / "plant.xlsx")
    assert not (tmp_path / "nowhere").exists()
    trajectory.save(tmp_path / "not" / "yet" / "plant.csv")
    trajectory.save(tmp_path / "plant.csv")
    assert (tmp_path / "not" / "yet" / "plant.csv").read_bytes() == (tmp_path / "plant.csv").read_bytes()


def test_pictures_and_tables_have_the_mode_that_the_umask_leaves(trajectory, tmp_path):
    before = os.umask(0o027)
    try:
        modes = {trajectory.save(tmp_path / f"plant{ending}").stat().st_mode & 0o777 for ending in WRITERS}
    finally:
        os.umask(before)
    assert modes == {0o640}
