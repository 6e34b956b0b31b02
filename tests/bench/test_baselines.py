import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from planted_samples import noisy, report_of, result_of

from velocirl.bench.baselines import baseline_path, load_baseline, save_baseline
from velocirl.bench.reading import DamagedReportError, read_report


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("VELOCIRL_HOME", str(tmp_path / "home"))
    return tmp_path


def a_report(**given):
    return report_of(result_of(noisy(1e6, seed=0), peer=noisy(1e5, seed=1)), result_of([1.0], name="other"), **given)


def test_a_baseline_comes_back_as_it_was():
    path = save_baseline("main", a_report())
    assert load_baseline("main") == a_report()
    assert path.parent.stat().st_mode & 0o077 == 0
    save_baseline("main", report_of(result_of([2.0] * 3)))
    assert load_baseline("main") == report_of(result_of([2.0] * 3))


def test_a_baseline_may_be_a_file_of_a_repository(tmp_path):
    path = tmp_path / "baseline.json"
    assert save_baseline(str(path), a_report()) == path
    assert load_baseline(str(path)) == a_report()


def test_an_unknown_baseline_gets_the_nearest_name():
    save_baseline("main", a_report())
    with pytest.raises(ValueError, match="there is no baseline 'mian': did you mean 'main'"):
        load_baseline("mian")


@pytest.mark.parametrize("name", ["", "../main", "a/b", ".hidden", "x" * 101, "a b", "main\n"])
def test_a_name_is_no_path(name):
    with pytest.raises(ValueError, match="a baseline is named by letters"):
        baseline_path(name)


def test_an_interrupted_run_does_not_replace_a_baseline():
    save_baseline("main", a_report())
    with pytest.raises(ValueError, match="main stays as it was"):
        save_baseline("main", report_of(result_of([2.0] * 3), complete=False))
    assert load_baseline("main") == a_report()


def changed(change):
    content = json.loads(a_report().as_json())
    change(content)
    return json.dumps(content)


def set_sample(value):
    return lambda content: content["results"][0]["contestants"][0]["samples"].__setitem__(0, value)


HOSTILE = {
    "empty": "",
    "not JSON": "{",
    "a list": "[]",
    "deep": "[" * 100_000,
    "another format": changed(lambda content: content.update(format=1)),
    "no machine": changed(lambda content: content.pop("machine")),
    "a key twice": '{"format": 2, "format": 2}',
    "not a number": changed(set_sample("many")),
    "infinite": changed(set_sample(0)).replace('"samples": [0,', '"samples": [Infinity,'),
    "huge": changed(set_sample(0)).replace('"samples": [0,', '"samples": [1e999,'),
    "rounds": changed(lambda content: content["results"][0]["contestants"][0]["samples"].pop()),
    "no time": changed(lambda content: content["results"][0]["reference"].__setitem__(0, 0.0)),
    "twice": changed(lambda content: content["results"].append(content["results"][0])),
    "company of other rounds": changed(lambda content: content["results"][0].update(company_by_round=[0.1])),
    "company below zero": changed(lambda content: content["results"][0].update(company=-1.0)),
    "measurements of other rounds": changed(lambda content: content["results"][0].update(measurements=[1])),
    "measurements of no rounds": changed(lambda content: content["results"][0].update(measurements=[0])),
    "workers below zero": changed(lambda content: content["results"][0]["contestants"][0].update(workers=-1)),
    "a format string": changed(lambda content: content["results"][0]["unit"].update(template="{number.__class__}")),
    "a wide format": changed(lambda content: content["results"][0]["unit"].update(template="{number:>999999999}")),
    "seconds": changed(lambda content: content["results"][0].update(seconds=0)).replace(
        '"seconds": 0,', '"seconds": 1e999,'
    ),
    "memory": changed(lambda content: content["machine"].update(memory_bytes=10**400)),
    "a cost": changed(lambda content: content["results"][0]["contestants"][0].update(cost={"operations": -1.0})),
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_what_is_no_baseline_is_refused_in_one_line_and_stays_as_it_was(text):
    path = save_baseline("main", a_report())
    path.write_text(text)
    with pytest.raises(DamagedReportError, match="is no report of benchmarks") as caught:
        load_baseline("main")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert path.read_text() == text


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    path = tmp_path / "large.json"
    with path.open("wb") as file:
        file.truncate(2**40)  # a hole: it takes no room on the disk
    with pytest.raises(DamagedReportError, match="has more than 67108864 bytes"):
        read_report(path)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0.0, 1.0), byte=st.integers(0, 255), cut=st.booleans())
def test_damage_anywhere_is_refused_or_harmless(home: Path, place, byte, cut):
    whole = a_report().as_json().encode()
    at = min(int(place * len(whole)), len(whole) - 1)
    damaged = whole[:at] if cut else whole[:at] + bytes([byte]) + whole[at + 1 :]
    path = home / "damaged.json"
    path.write_bytes(damaged)
    try:
        found = read_report(path)
    except DamagedReportError:
        pass
    else:
        assert [result.name for result in found.results]
        found.as_json()
    assert path.read_bytes() == damaged
