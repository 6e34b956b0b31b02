"""The documents of a run: what belongs together is written together, from a run or from its results."""

import dataclasses

import pytest
from planted_report import measured, planted_report, result

from velocirl.bench.files import write_whole
from velocirl.bench.reports.documents import check_documents, write_documents
from velocirl.bench.units import STEPS
from velocirl.cli.main import main

PPO = result(
    "ppo_4_epochs", "training", STEPS, [measured("velocirl, 2 threads", 900e3), measured("JAX", 300e3, peer=True)]
)
OTHER = result("something", "training", STEPS, [measured("velocirl", 1.0)])
REPORT = planted_report(results=[PPO], complete=True)


@pytest.fixture
def documents(tmp_path):
    (tmp_path / "docs").mkdir()
    return tmp_path / "docs" / "BENCHMARKS.md", tmp_path / "README.md"


def on_a_gpu(report):
    return dataclasses.replace(report, machine=dataclasses.replace(report.machine, gpu="NVIDIA H200"))


def test_both_have_the_same_figures_and_name_each_other(documents):
    tables, speeds = documents
    assert write_documents(REPORT, tables, speeds) == ""
    assert "<!-- of the same run as ../README.md -->\n## Measured by" in tables.read_text()
    assert "<!-- of the same run as docs/BENCHMARKS.md -->\n2 cores (" in speeds.read_text()
    figure = next(line.split(" | ")[1] for line in speeds.read_text().splitlines() if "ppo_4_epochs" in line)
    median, interval = figure.rstrip(")").split(" (")
    assert f"| velocirl, 2 threads | {median} | {interval} |" in tables.read_text()
    assert "\n`velocirl bench ppo_4_epochs`\n" in tables.read_text()


def test_neither_is_written_without_the_other_from_then_on(documents, tmp_path):
    tables, speeds = documents
    check_documents(REPORT.machine, tables, None)  # nothing was written yet
    write_documents(REPORT, tables, speeds)
    check_documents(REPORT.machine, tables, speeds)
    check_documents(REPORT.machine, None, None)
    for given, option in (((tables, None), "--speeds"), ((None, speeds), "--markdown")):
        with pytest.raises(ValueError, match=f"has figures of the same run as .*: give {option} ") as caught:
            check_documents(REPORT.machine, *given)
        assert str(given[0] or given[1]) in str(caught.value)
    with pytest.raises(ValueError, match=r"give --speeds .*README.md too"):
        check_documents(REPORT.machine, tables, tmp_path / "OTHER.md")
    check_documents(on_a_gpu(REPORT).machine, tables, None)  # its section is another


def test_a_run_without_a_row_of_the_speeds_leaves_both_as_they_were(documents):
    tables, speeds = documents
    write_documents(REPORT, tables, speeds)
    before = tables.read_text(), speeds.read_text()
    told = write_documents(planted_report(results=[OTHER]), tables, speeds)
    assert told == f"nothing of its table was measured: {speeds} and {tables} stay as they were"
    assert (tables.read_text(), speeds.read_text()) == before


def test_a_machine_with_a_gpu_has_a_section_of_its_own(documents):
    tables, _ = documents
    write_documents(REPORT, tables, None)
    before = tables.read_text()
    write_documents(on_a_gpu(REPORT), tables, None)
    text = tables.read_text()
    assert text.startswith(before.rstrip())
    assert text.count("## Measured by `velocirl bench`") == 2
    assert text.endswith("<!-- gpu-bench:end -->\n")


def test_documents_are_written_from_results_without_measuring(documents, tmp_path, capsys):
    tables, speeds = documents
    results, page = tmp_path / "results.json", tmp_path / "page.html"
    write_whole(results, REPORT.as_json())
    main(["bench", "--from", str(results), "--markdown", str(tables), "--speeds", str(speeds), "--html", str(page)])
    assert "measuring" not in capsys.readouterr().out
    direct = tmp_path / "direct"
    (direct / "docs").mkdir(parents=True)
    write_documents(REPORT, direct / "docs" / "BENCHMARKS.md", direct / "README.md")
    assert tables.read_text() == (direct / "docs" / "BENCHMARKS.md").read_text()
    assert speeds.read_text() == (direct / "README.md").read_text()
    assert "ppo_4_epochs" in page.read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "give at least one of these options"),
        (["ppo", "--quick", "--markdown", "x.md"], "leave out ppo, --quick"),
        (["--no-history", "--html", "x.html"], "leave out --no-history"),
    ],
)
def test_from_goes_with_documents_only(options, message, tmp_path, capsys):
    results = tmp_path / "results.json"
    write_whole(results, REPORT.as_json())
    with pytest.raises(SystemExit) as ended:
        main(["bench", "--from", str(results), *options])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_an_interrupted_run_is_no_source_of_documents(tmp_path, documents, capsys):
    results = tmp_path / "results.json"
    write_whole(results, dataclasses.replace(REPORT, complete=False).as_json())
    with pytest.raises(SystemExit):
        main(["bench", "--from", str(results), "--markdown", str(documents[0])])
    assert "is of an interrupted run" in capsys.readouterr().err
    assert not documents[0].exists()
