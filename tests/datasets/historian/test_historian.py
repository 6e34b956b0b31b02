"""A historian's tables: units, gaps, duplicate times, and whatever else is wrong with them, named clearly."""

import json
import subprocess
import sys
import tracemalloc
from textwrap import dedent

import numpy as np
import pandas
import pyarrow
import pytest
from pyarrow import parquet

import velocirl
from velocirl.buffers.data.columns import DatasetError
from velocirl.datasets.historian.importing import import_historian
from velocirl.datasets.historian.tables import Notation, table_from
from velocirl.datasets.historian.units import UNITS, conversion

PLANT = "ChemicalReactor-v0"
TEMPERATURE = {"column": "TI101", "name": "temperature", "unit": "degC", "to": "K"}
PRESSURE = {"column": "PI102", "name": "pressure", "to": "Pa"}
MAPPING = {
    "time": "when",
    "observations": [TEMPERATURE, PRESSURE],
    "actions": [{"column": "FV103", "name": "valve", "unit": "%", "to": "1", "low": 0, "high": 1}],
    "reward": "profit",
    "costs": [{"column": "alarm", "name": "hot"}],
}


def table(times=(0, 10, 20, 30, 40), **changes):
    rows = np.arange(len(times))
    columns = {
        "when": times,
        "TI101": 20.0 + rows,
        "PI102 [bar]": 1.0 + rows,
        "FV103": 10.0 * rows,
        "profit": rows * 1.0,
        "alarm": (rows == 2) * 1,
    }
    return pandas.DataFrame({**columns, **changes})


def imported(frame, **changes):
    return import_historian(frame, {**MAPPING, **changes})


def test_columns_come_in_the_units_that_are_wanted():
    data = imported(table()).dataset
    np.testing.assert_allclose(data.observations[:, 0], 293.15 + np.arange(5), rtol=1e-6)
    np.testing.assert_allclose(data.observations[:, 1], 1e5 * (1 + np.arange(5)), rtol=1e-6)
    np.testing.assert_allclose(data.actions[:, 0], 0.1 * np.arange(4), rtol=1e-6)
    assert data.rewards.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert data.costs[:, 0].tolist() == [0.0, 0.0, 1.0, 0.0]
    assert data.info.signals == {"temperature": "K", "pressure": "Pa"}
    assert data.info.actuators == {"valve": "1"}
    assert (data.info.constraints, data.info.environment) == (("hot",), None)
    assert data.truncations.tolist() == [False, False, False, True]
    data.validate()


def test_with_led_a_row_has_the_action_that_led_to_it():
    data = imported(table(), alignment="led").dataset
    np.testing.assert_allclose(data.actions[:, 0], 0.1 * np.arange(1, 5), rtol=1e-6)
    assert data.rewards.tolist() == [1.0, 2.0, 3.0, 4.0]


def lengths(found):
    return found.dataset.lengths().tolist()


def test_a_gap_begins_a_new_episode():
    frame = table((0, 10, 20, 120, 130, 140, 300))
    found = imported(frame)
    assert lengths(found) == [2, 2]
    assert (found.cut.gap, found.cut.alone) == (15.0, 1)
    assert lengths(imported(frame, gap=100)) == [5]
    assert lengths(imported(frame, gap=1000)) == [6]
    assert "left out: 1 rows by themselves" in str(found)


def test_an_end_a_change_of_batch_and_the_longest_begin_one_too():
    frame = table((0, 10, 20, 30, 40, 50), trip=[0, 0, 1, 0, 0, 0], batch=["a", "a", "a", "a", "b", "b"])
    found = imported(frame, terminated="trip").dataset
    assert found.lengths().tolist() == [2, 2]
    assert found.terminations.tolist() == [False, True, False, False]
    assert lengths(imported(frame, episode="batch")) == [3, 1]
    cut = imported(frame, longest=2).dataset
    assert cut.lengths().tolist() == [2, 2, 1]
    assert cut.observations[2].tolist() == cut.observations[3].tolist()  # where the next goes on
    assert cut.rewards.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_duplicate_times_are_refused_or_one_is_kept():
    frame = table((0, 10, 10, 20))
    with pytest.raises(ValueError, match=r"rows 1 and 2 have the same time, 10 \(1 such rows\): say dup"):
        imported(frame)
    assert imported(frame, duplicates="first").dataset.rewards.tolist() == [0.0, 1.0]
    assert imported(frame, duplicates="last").dataset.rewards.tolist() == [0.0, 2.0]
    batches = table((0, 10, 20, 20, 30), batch=["a", "a", "b", "b", "b"])
    assert lengths(imported(batches, duplicates="last", episode="batch")) == [1, 1]


def test_missing_numbers_are_refused_or_end_an_episode():
    frame = table((0, 10, 20, 30, 40, 50, 60))
    frame.loc[3, "TI101"] = np.nan
    with pytest.raises(ValueError, match=r"column 'TI101' has no number in row 3 \(1 such rows\): say missing=cut"):
        imported(frame)
    found = imported(frame, missing="cut")
    assert (lengths(found), found.cut.incomplete) == ([2, 2], 1)
    assert found.dataset.observations[3, 0] == np.float32(20.0 + 4 + 273.15)


def test_dates_are_times():
    frame = table(["2026-03-01T12:00:00Z", "2026-03-01T12:00:10Z", "2026-03-01 12:00:20+00:00", "2026-03-01T13:00:00Z"])
    assert lengths(imported(frame)) == [2]


@pytest.mark.parametrize(
    ("changes", "frame", "reason"),
    [
        (
            {"observations": [TEMPERATURE | {"unit": "kg"}]},
            {},
            "is in kg, which is mass, and wanted in K",
        ),
        (
            {"observations": [TEMPERATURE | {"unit": "degX"}]},
            {},
            "'degX' cannot be converted: did you mean 'deg'?",
        ),
        (
            {"observations": [PRESSURE | {"unit": "kPa"}]},
            {},
            "in bar by its heading, and in kPa by the mapping",
        ),
        ({"observations": ["TI102"]}, {}, "no column 'TI102' for observations"),
        ({"actions": ["FV103"]}, {}, "say between which limits 'FV103' may be set"),
        ({"reward": "gain"}, {}, "no column 'gain' for the reward"),
        ({"reward": float("inf")}, {}, "reward must be finite"),
        ({"duplicates": "mean"}, {}, "duplicates is one of refuse, first, last, got 'mean'"),
        ({"gap": -1}, {}, "gap must be a number above 0"),
        ({"gaps": 1}, {}, "the key 'gaps', which is not known"),
        ({"observations": []}, {}, "observations names no column"),
        ({"observations": [{"name": "x"}]}, {}, r"observations\[0\] names no column"),
        ({"observations": [{"column": 3}]}, {}, "column must be a text, got 3"),
        ({"terminated": "alarm"}, {"alarm": [0, 2, 0, 0, 0]}, "is 2 in row 1, and must be 0 or 1"),
        ({}, {"TI101": ["1", "2", "bad", "4", "5"]}, "column 'TI101' has 'bad' in row 2, and needs numbers"),
        ({}, {"when": ["now", "later", "x", "y", "z"]}, "neither seconds nor ISO dates"),
        ({}, {"when": [0, 10, 5, 20, 30]}, "time goes back in row 2, from 10 to 5: sort the rows"),
        ({"gap": 1}, {}, "no episode of two rows or more"),
        ({"environment": PLANT}, {}, f"no column is mapped to jacket_temperature, .* which {PLANT} has"),
        ({"environment": PLANT, "observations": ["TI101"]}, {}, f"{PLANT} has no 'TI101' among its observations"),
    ],
)
def test_what_is_wrong_is_named(changes, frame, reason):
    with pytest.raises(ValueError, match=reason):
        imported(table(**frame), **changes)


def test_a_reward_has_to_be_named():
    mapping = {name: value for name, value in MAPPING.items() if name != "reward"}
    with pytest.raises(ValueError, match=r"the mapping names no reward: say reward, a column, or a number"):
        import_historian(table(), mapping)
    found = imported(table(), reward=0)
    assert found.warnings == ("every reward is 0: only imitation (bc) learns from it",)


RANGED = TEMPERATURE | {"low": 280, "high": 400}


def test_numbers_outside_a_range_are_refused_with_the_units_that_would_fit():
    with pytest.raises(ValueError, match="outside") as told:
        imported(table(), observations=[RANGED | {"unit": "K"}, PRESSURE])
    assert str(told.value) == (
        "the table: column 'TI101' is 20 K in row 0, outside 280 to 400 K (5 of 5 rows); in degC they would be within"
        " it: correct its unit or range, or say outside=missing or keep"
    )
    with pytest.raises(ValueError, match=r"column 'FV103' is 1.2 in row 1, outside 0 to 1 \(1 of 5 rows\): correct"):
        imported(table(FV103=[10.0, 120.0, 20.0, 30.0, 40.0]))
    assert imported(table(FV103=[10.0, 100.05, 20.0, 30.0, 40.0])).warnings == ()  # full scale, to rounding
    assert imported(table(), observations=[RANGED, PRESSURE]).dataset.info.observation_space.high[0] == 400.0
    with pytest.raises(ValueError, match="the range of 'temperature' is empty: low=300 must be below high=280"):
        imported(table(), observations=[RANGED | {"low": 300, "high": 280}, PRESSURE])


def test_numbers_outside_a_range_are_kept_or_missing_where_that_is_asked():
    frame = table((0, 10, 20, 30, 40, 50, 60), TI101=[20, 21, 22, 999, 24, 25, 26])
    kept = imported(frame, observations=[RANGED, PRESSURE], outside="keep")
    assert kept.dataset.observations[3, 0] == np.float32(999 + 273.15)
    assert len(kept.warnings) == 1
    assert "is 1272.15 K in row 3, outside 280 to 400 K (1 of 7 rows)" in kept.warnings[0]
    gone = imported(frame, observations=[RANGED, PRESSURE], outside="missing", missing="cut")
    assert (lengths(gone), gone.cut.incomplete) == ([2, 2], 1)
    with pytest.raises(ValueError, match="outside=missing needs missing=cut, hold or interpolate"):
        imported(frame, outside="missing")


def test_missing_numbers_are_held_or_interpolated_up_to_a_gap():
    frame = table((0, 10, 20, 30, 40, 50, 60, 70), batch=[0, 0, 0, 0, 0, 0, 1, 1])
    frame.loc[[1, 2], "TI101"] = np.nan  # 20 at 0 s, 23 at 30 s
    frame.loc[[2, 5], "FV103"] = np.nan  # 10 at 10 s, 30 at 30 s; 40 at 40 s, then another batch
    held = imported(frame, missing="hold", max_gap=30, episode="batch")
    assert held.filled == 4
    assert lengths(held) == [5, 1]
    np.testing.assert_allclose(held.dataset.observations[:6, 0] - 273.15, [20, 20, 20, 23, 24, 25], atol=1e-4)
    np.testing.assert_allclose(held.dataset.actions[:5, 0], [0.0, 0.1, 0.1, 0.3, 0.4], atol=1e-6)
    assert str(held).endswith("; filled in: 4 missing numbers")
    drawn = imported(frame, missing="interpolate", max_gap=30, episode="batch")
    np.testing.assert_allclose(drawn.dataset.observations[:6, 0] - 273.15, [20, 21, 22, 23, 24, 25], atol=1e-4)
    np.testing.assert_allclose(drawn.dataset.actions[:5, 0], [0.0, 0.1, 0.1, 0.3, 0.4], atol=1e-6)  # held all the same
    short = imported(frame, missing="interpolate", max_gap=29, episode="batch")
    assert lengths(short) == [2, 1]  # 30 to 50 s, and the other batch
    assert short.filled == 2  # of the valve, over 20 s and over 10 s


def test_nothing_is_held_before_a_first_number_or_made_up_of_rewards():
    frame = table((0, 10, 20, 30, 40, 50))
    frame.loc[0, "TI101"] = np.nan
    frame.loc[3, "profit"] = np.nan
    found = imported(frame, missing="hold", max_gap=1000)
    assert (lengths(found), found.cut.incomplete, found.filled) == ([1, 1], 2, 0)
    with pytest.raises(ValueError, match="need max_gap, the seconds over which numbers are filled in"):
        imported(frame, missing="hold")


def test_texts_of_a_historian_are_missing_numbers():
    frame = table(TI101=["20", "21", "Bad", "No Data", "24"])
    with pytest.raises(ValueError, match="has 'Bad' in row 2, and needs numbers: name it in missing_text"):
        imported(frame)
    found = imported(frame, missing_text=["Bad", "No Data"], missing="interpolate", max_gap=30)
    np.testing.assert_allclose(found.dataset.observations[:, 0], 293.15 + np.arange(5), rtol=1e-6)


EVERY_5_S = {"environment": "Ranged-v0", "observations": ["T"], "actions": ["V"], "reward": 1.0, "time": "when"}


def ranged(**changes):
    """Define a plant that takes an action every 5 s, and measures 280 to 400 K."""

    @velocirl.record
    class State:
        temperature: velocirl.float32

    @velocirl.record
    class Params:
        time_step: velocirl.float32 = velocirl.between(1.0, 60.0, default=5.0)

    def reset(state, params, rng):
        state.temperature = 300.0

    def step(state, params, action, rng):
        state.temperature += params.time_step * action[0]
        return 0.0, False

    def observe(state, params, observation):
        observation[0] = state.temperature

    given = {
        "state": State, "params": Params, "observation": velocirl.Box(280.0, 400.0, (1,)),
        "action": velocirl.Box(0.0, 1.0, (1,)), "reset": reset, "step": step, "observe": observe,
        "signals": {"T": "K"}, "actuators": {"V": "1"},
    }  # fmt: skip
    return velocirl.Environment("Ranged-v0", **(given | changes))


def rows_every(seconds, count=6):
    return pandas.DataFrame({"when": seconds * np.arange(count), "T [K]": 300.0, "V [1]": 0.5})


def test_rows_at_another_interval_than_the_time_step_are_refused():
    plant = ranged()
    with pytest.raises(ValueError, match="apart") as told:
        import_historian(rows_every(10.0), EVERY_5_S)
    assert str(told.value) == (
        "the table: rows are 10 s apart, and Ranged-v0 takes an action every 5 s: resample the table, or say"
        " params={'time_step': 10}"
    )
    found = import_historian(rows_every(10.0), EVERY_5_S | {"params": {"time_step": 10}}).dataset.info
    assert (found.time_step, dict(found.params)) == (10.0, {"time_step": 10})
    assert import_historian(rows_every(5.0), EVERY_5_S, env=plant).dataset.info.time_step == 5.0
    with pytest.raises(ValueError, match=r"time_step=7 contradicts Ranged-v0, which takes an action every 5 s"):
        import_historian(rows_every(5.0), EVERY_5_S | {"time_step": 7})
    with pytest.raises(ValueError, match=r"rows are 10 s apart, and time_step is 5 s: resample the table$"):
        imported(table(), time_step=5)
    assert imported(table()).dataset.info.time_step == 10.0
    jittery = rows_every(5.0, 9)
    jittery["when"] += [0, 0.4, -0.3, 0, 0.2, 0, 0, 7, 7]
    found = import_historian(jittery, EVERY_5_S | {"gap": 60})
    assert found.warnings == ("1 of 8 steps do not take 5 s but 12 to 12 s: a smaller gap begins a new episode there",)


def test_the_ranges_of_a_plant_are_those_of_its_table():
    ranged()
    frame = rows_every(5.0)
    frame["T [K]"] = 20.0
    with pytest.raises(ValueError, match=r"is 20 K in row 0, outside 280 to 400 K .*; in degC they would be within it"):
        import_historian(frame, EVERY_5_S)


def test_serial_days_of_excel_are_not_taken_for_seconds():
    days = 45352.5 + np.arange(5) * 10.0 / 86400.0
    with pytest.raises(ValueError, match=r"such as 45352.5, as Excel's serial days are: say time_unit=excel, or s"):
        imported(table(tuple(days)))
    found = imported(table(tuple(days)), time_unit="excel").dataset
    assert (found.info.time_step, found.episodes) == (10.0, 1)
    assert imported(table(tuple(days)), time_unit="s").dataset.info.time_step == pytest.approx(10.0 / 86400.0, rel=0.01)
    milliseconds = 1772366400000 + 10_000 * np.arange(5)
    with pytest.raises(ValueError, match="as milliseconds since 1970 are: say time_unit=ms"):
        imported(table(tuple(milliseconds)))
    assert imported(table(tuple(milliseconds)), time_unit="ms").dataset.info.time_step == 10.0
    assert imported(table((0, 10, 20, 30, 40)), time_unit="min").dataset.info.time_step == 600.0
    # Excel's epoch: 45352 is 2024-03-01.
    read = table_from(table((45352.0,)), "x", Notation(time_unit="excel"))
    assert read.seconds("when")[0] == 1709251200.0


def test_tables_with_semicolons_and_decimal_commas_are_read(tmp_path):
    path = tmp_path / "x.csv"
    rows = [f"01.03.2026 12:00:{10 * k:02};{20 + k},5;{1 + k};{10 * k},25;{k};0" for k in range(5)]
    path.write_text("when;TI101;PI102 [bar];FV103;profit;alarm\n" + "\n".join(rows) + "\n")
    german = MAPPING | {"decimal": ",", "time_format": "%d.%m.%Y %H:%M:%S"}
    found = import_historian(path, german).dataset
    np.testing.assert_allclose(found.observations[:, 0], 293.65 + np.arange(5), rtol=1e-6)
    np.testing.assert_allclose(found.actions[:, 0], 0.0025 + 0.1 * np.arange(4), rtol=1e-5)
    assert found.info.time_step == 10.0
    with pytest.raises(ValueError, match=r"has '20,5' in row 0, and needs numbers: say decimal=, if its commas"):
        import_historian(path, german | {"decimal": "."})
    with pytest.raises(ValueError, match="say time_format, such as"):
        import_historian(path, MAPPING | {"decimal": ","})
    path.write_text(path.read_text().replace("21,5", "1.021,5"))
    with pytest.raises(ValueError, match=r"has '1.021,5' in row 1, and needs numbers: write numbers without groups"):
        import_historian(path, german)
    path.write_text(path.read_text().replace("1.021,5", "1.021"))
    with pytest.raises(ValueError, match=r"has '1.021' in row 1, and needs numbers: write numbers without groups"):
        import_historian(path, german)


def test_costs_below_0_are_refused():
    with pytest.raises(ValueError, match="column 'alarm' is -1 in row 2, and costs are at least 0"):
        imported(table(alarm=[0, 0, -1, 0, 0]))


def test_a_file_that_exists_is_not_written_over(tmp_path):
    path = tmp_path / "x.vds"
    import_historian(table(), MAPPING, path)
    with pytest.raises(FileExistsError, match=r"x\.vds exists"):
        import_historian(table(), MAPPING, path)
    longer = import_historian(table(range(0, 90, 10)), MAPPING, path, overwrite=True)
    assert len(velocirl.Dataset.load(path)) == len(longer.dataset) == 8


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"separator": "|"}, "separator is a comma, a semicolon or a tab"),
        ({"separator": ",", "decimal": ","}, "separator is a comma, a semicolon or a tab, and not decimal"),
        ({"decimal": ";"}, "decimal is one of ., ,, got ';'"),
        ({"time_unit": "days"}, "time_unit is one of s, ms, min, h, d, excel, got 'days'"),
        ({"max_gap": 10}, "need max_gap, .* and nothing else does"),
        ({"params": {"x": 1}}, "params are those of an environment, and it names none"),
        ({"params": 3}, "params must be an object"),
        ({"missing_text": "Bad"}, "missing_text must be a list of texts"),
        ({"environment": "Unheard-v0"}, "no environment 'Unheard-v0'.*named by env=, or --env plant.py:ID"),
    ],
)
def test_settings_that_do_not_fit_are_refused(changes, reason):
    with pytest.raises(ValueError, match=reason):
        imported(table(), **changes)


@pytest.mark.parametrize(
    ("number", "given", "wanted", "expected"),
    [  # computed by hand
        (3.0, "barg", "Pa", 401325.0),
        (3.0, "bar(g)", "bar", 4.01325),
        (0.0, "psig", "Pa", 101325.0),
        (14.695949, "psia", "Pa", 101325.0),
        (2.0, "kPag", "kPa", 103.325),
        (1.0, "bara", "Pa", 1e5),
        (7.2, "m3/h", "m3/s", 0.002),
        (7.2, "m³/h", "l/s", 2.0),
        (100.0, "gpm", "m3/s", 0.0063090196),
        (100.0, "gpm", "m3/h", 22.712471),
        (1.0, "igpm", "l/min", 4.54609),
        (1.0, "cfm", "m3/h", 1.6990108),
        (1.0, "bbl/d", "m3/d", 0.158987295),
        (1500.0, "rpm", "rad/s", 157.07963),
        (90.0, "deg/s", "rpm", 15.0),
        (420.0, "ppm", "1", 0.00042),
        (0.5, "%", "ppm", 5000.0),
        (50.0, "ppb", "ppm", 0.05),
        (212.0, "°F", "K", 373.15),
        (25.0, "degC", "degF", 77.0),
        (1.0, "t/d", "kg/s", 0.011574074),
        (10.0, "lb/h", "kg/h", 4.5359237),
        (1.0, "hp", "kW", 0.74569987),
        (2.0, "kWh", "MJ", 7.2),
        (5.0, "inH2O", "Pa", 1245.4445),
        (1.0, "kgf/cm2", "bar", 0.980665),
        (3.0, "mg/l", "kg/m3", 0.003),
        (250.0, "uS/cm", "S/m", 0.025),
        (1.0, "ft/min", "m/s", 0.00508),
        (1.0, "cP", "Pa s", 0.001),
        (1.0, "Btu/h", "W", 0.29307107),
        (760.0, "mmHg", "atm", 1.00000014),
    ],
)
def test_units_convert_as_computed_by_hand(number, given, wanted, expected):
    factor, offset = conversion(given, wanted, "x")
    assert number * factor + offset == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize(
    ("given", "wanted", "reason"),
    [
        ("Nm3/h", "m3/s", "is in Nm3/h, which is flow at reference conditions, and wanted in m3/s, which is flow"),
        ("ppm", "mg/l", "a share, and wanted in mg/l, which is mass concentration"),
        ("Hz", "rpm", "frequency, and wanted in rpm, which is rotational speed"),
        ("mol/s", "kg/s", "molar flow, and wanted in kg/s, which is mass flow"),
        ("m^3/h", "m3/h", "'m.3/h' cannot be converted: did you mean 'm3/h'"),
    ],
)
def test_units_of_two_quantities_are_not_converted(given, wanted, reason):
    with pytest.raises(ValueError, match=reason):
        conversion(given, wanted, "x")


def test_conversions_go_there_and_back():
    assert conversion("degC", "K", "x") == (1.0, 273.15)
    assert conversion("degF", "degC", "x") == pytest.approx((5 / 9, -160 / 9))
    assert conversion("t/h", "kg/s", "x")[0] == pytest.approx(1 / 3.6)
    for one, unit in UNITS.items():
        for other in (name for name, two in UNITS.items() if two.measures == unit.measures):
            factor, offset = conversion(one, other, "x")
            back, back_offset = conversion(other, one, "x")
            assert (2.5 * factor + offset) * back + back_offset == pytest.approx(2.5)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_trajectory_of_ours_comes_back_from_its_table(tmp_path, ending):
    native = velocirl.engine.registry.find(PLANT)
    path = tmp_path / "plant.csv"
    seen = velocirl.rollout(native.controller, PLANT, 2, seed=0, device="python", max_steps=30)
    seen.save(path)
    if ending == "parquet":
        pandas.read_csv(path).to_parquet(tmp_path / "plant.parquet")
    mapping = {
        "environment": PLANT,
        "time": "time",
        "episode": "episode",
        "alignment": "led",
        "terminated": "terminated",
        "reward": "reward",
        "observations": [{"column": f"signal/{name}", "name": name} for name in native.signals],
        "actions": [{"column": f"actuator/{name}", "name": name} for name in native.actuators],
        "costs": [{"column": f"cost/{one.name}", "name": one.name} for one in native.constraints],
    }
    (tmp_path / "mapping.json").write_text(json.dumps(mapping))
    into = tmp_path / "plant.vds"
    data = import_historian(tmp_path / f"plant.{ending}", tmp_path / "mapping.json", into).dataset
    assert data.path == into
    assert (data.info.environment, data.episodes, len(data)) == (PLANT, 2, 60)
    assert data.info.observation_space == native.observation
    for place, name in enumerate(seen.signals):
        np.testing.assert_array_equal(data.observations[:, place], seen.signals[name].values.astype(np.float32))
    np.testing.assert_array_equal(data.returns(), seen.returns)


def test_files_that_are_no_tables_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"must end in \.csv or \.parquet"):
        import_historian(tmp_path / "x.xlsx", MAPPING)
    (tmp_path / "x.parquet").write_bytes(b"no")
    with pytest.raises(ValueError, match="damaged, or no PARQUET file"):
        import_historian(tmp_path / "x.parquet", MAPPING)
    (tmp_path / "x.csv").write_bytes(b"")
    with pytest.raises(ValueError, match="damaged, or no CSV file"):
        import_historian(tmp_path / "x.csv", MAPPING)
    (tmp_path / "m.json").write_text("{")
    with pytest.raises(ValueError, match=r"m\.json is no JSON"):
        import_historian(table(), tmp_path / "m.json")
    twice = pandas.DataFrame([[0, 1]], columns=["a [K]", "a"])
    with pytest.raises(ValueError, match="two columns 'a'"):
        import_historian(twice, MAPPING)


def written(path, columns, rows, *, groups=1, **options):
    """Write a table of Parquet whose columns repeat a value."""
    places = pyarrow.array(np.zeros(rows, np.int32))
    table = pyarrow.table(
        {n: pyarrow.DictionaryArray.from_arrays(places, pyarrow.array([v])) for n, v in columns.items()}
    )
    with parquet.ParquetWriter(path, table.schema, compression="zstd", **options) as writer:
        for _ in range(groups):
            writer.write_table(table)
    return path


SAME = {"when": 0.0, "TI101": 1.0, "PI102 [bar]": 1.0, "FV103": 1.0, "profit": 1.0, "alarm": 0.0}


def test_a_small_table_of_many_rows_is_refused_before_it_is_unpacked(tmp_path):
    path = written(tmp_path / "x.parquet", SAME, 100_000, groups=40)
    assert path.stat().st_size < 10**6
    tracemalloc.start()
    with pytest.raises(DatasetError, match=r"would take 3\d\d,\d\d\d,\d\d\d bytes unpacked, more than 32 times"):
        import_historian(path, MAPPING)
    assert tracemalloc.get_traced_memory()[1] < 2**24
    tracemalloc.stop()
    assert pyarrow.total_allocated_bytes() < 2**24


def test_texts_that_are_stored_once_are_refused_before_they_are_repeated(tmp_path):
    path = written(tmp_path / "x.parquet", SAME | {"batch": "x" * 100_000}, 5000)
    with pytest.raises(DatasetError, match=r"column 'batch' would take 500,000,000 bytes unpacked"):
        import_historian(path, MAPPING | {"episode": "batch"})
    assert path.stat().st_size < 10**6


def test_columns_that_are_not_mapped_are_not_unpacked(tmp_path):
    columns = SAME | {f"other {k}": "x" * 100_000 for k in range(3)}
    path = written(tmp_path / "x.parquet", columns, 5000)
    with pytest.raises(ValueError, match="rows 0 and 1 have the same time"):
        import_historian(path, MAPPING)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([[1.0]], "is of the type list<.*>, and needs numbers, times or texts"),
        ([b"1"], "is of the type binary, and needs numbers, times or texts"),
        ([{"a": 1}], "is of the type struct<a: int64>, and needs numbers, times or texts"),
    ],
)
def test_columns_of_other_things_are_refused(tmp_path, values, reason):
    frame = {name: pyarrow.array([value] * 4) for name, value in SAME.items()}
    parquet.write_table(pyarrow.table(frame | {"TI101": pyarrow.array(values * 4)}), tmp_path / "x.parquet")
    with pytest.raises(DatasetError, match=f"column 'TI101' {reason}"):
        import_historian(tmp_path / "x.parquet", MAPPING)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_labels_in_categories_and_an_index_are_columns_as_well(tmp_path, ending):
    frame = table((0, 10, 20, 30, 41), batch=["a", "a", "a", "b", "b"])
    if ending == "csv":
        frame.to_csv(tmp_path / "x.csv", index=False)
    else:
        frame.assign(batch=pandas.Categorical(frame["batch"])).set_index("when").to_parquet(tmp_path / "x.parquet")
    found = import_historian(tmp_path / f"x.{ending}", MAPPING | {"episode": "batch"}).dataset
    assert found.columns["starts"].tolist() == [0, 2, 3]
    np.testing.assert_allclose(found.observations[:, 0], 293.15 + np.arange(5))


FOOTER = """
    import sys
    from pathlib import Path
    from velocirl.datasets.historian.tables import read_table

    path = Path(sys.argv[1])
    content = path.read_bytes()
    for place in range(len(content) - 8 - int.from_bytes(content[-8:-4], "little"), len(content), 37):
        for bit in (0, 4):
            damaged = bytearray(content)
            damaged[place] ^= 1 << bit
            path.write_bytes(damaged)
            try:
                read_table(path, {"TI101", "batch"})
            except ValueError as error:
                print(error, flush=True)
"""


def test_a_damaged_footer_is_refused_and_does_not_end_the_process(tmp_path):
    """Of some damage pyarrow ends the process, where it is asked for the sizes of single columns."""
    table(batch=["a", "a", "a", "b", "b"]).to_parquet(tmp_path / "x.parquet")
    command = [sys.executable, "-c", dedent(FOOTER), str(tmp_path / "x.parquet")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert len(ended.stdout.splitlines()) > 10
    assert all("x.parquet" in one for one in ended.stdout.splitlines())


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_table_without_rows_is_refused(tmp_path, ending):
    frame = table()[:0]
    frame.to_csv(tmp_path / "x.csv", index=False)
    frame.to_parquet(tmp_path / "x.parquet")
    with pytest.raises(DatasetError, match=rf"x\.{ending} has no rows below its headings"):
        import_historian(tmp_path / f"x.{ending}", MAPPING)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"gap": 10**400}, "gap must be a number above 0, got a number of 1329 bits"),
        ({"longest": 10**5000}, "longest must be a number above 0, got a number of 16610 bits"),
        ({"reward": -(10**400)}, "reward must be finite, got a number of 1329 bits"),
        ({"actions": [{"column": "FV103", "low": 0, "high": 10**400}]}, r"actions\[0\]: high must be between"),
        ({"time": 10**5000}, "time must be a text, got a number of 16610 bits"),
        ({"observations": 10**5000}, "observations must be a list of columns, got a number of 16610 bits"),
    ],
)
def test_numbers_of_any_length_are_refused(changes, reason):
    with pytest.raises(ValueError, match=reason):
        imported(table(), **changes)


def test_a_hundred_thousand_unknown_columns_are_counted_and_not_listed(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text(",".join(f"C{k}" for k in range(100_000)) + "\n" + ",".join(["1"] * 100_000) + "\n")
    with pytest.raises(DatasetError, match="has 100,000 columns, and at most 10,000 are looked through"):
        import_historian(path, MAPPING)
    path.write_text(",".join(f"column {k}" for k in range(9000)) + "\n" + ",".join(["1"] * 9000) + "\n")
    with pytest.raises(
        ValueError, match="no column 'TI101' for observations; there are 9,000, such as column 0, column 1, column 2"
    ):
        import_historian(path, MAPPING)
    path.write_text(" " * 100_000 + "[K]\n1\n")
    with pytest.raises(DatasetError, match="has a heading of 100,003 letters"):
        import_historian(path, MAPPING)
