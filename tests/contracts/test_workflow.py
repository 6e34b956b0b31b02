"""The CI workflow calls what the repository has, and reads and keeps what that writes."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from velocirl.bench.reading import read_report
from velocirl.cli.bench.options import bench_parser

ROOT = Path(__file__).parents[2]
WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
MAKEFILE = (ROOT / "Makefile").read_text()
STEPS = [step for job in WORKFLOW["jobs"].values() for step in job["steps"]]
COMMANDS = [step["run"] for step in STEPS if "run" in step]


def recipe(target):
    """The commands of a target of the Makefile, as one line each."""
    found = re.search(rf"^{re.escape(target)}:[^\n]*\n((?:\t[^\n]*\n)+)", MAKEFILE, re.MULTILINE)
    assert found, f"the Makefile has no {target}"
    return found[1].replace("\\\n", " ").splitlines()


@pytest.mark.parametrize("target", sorted({word for run in COMMANDS for word in re.findall(r"make ([\w-]+)", run)}))
def test_what_the_workflow_makes_can_be_made(target):
    assert recipe(target)


@pytest.mark.parametrize("target", ["bench", "bench-compare", "bench-baseline"])
def test_the_benchmarks_are_called_with_options_that_there_are(target):
    (line,) = recipe(target)
    words = shlex.split(line.replace("$(BASELINE)", "benchmarks/baseline.json"))
    assert words[:2] == ["$(BIN)/velocirl", "bench"]
    given = bench_parser().parse(words[2:])
    assert "peers" in given
    if target == "bench-compare":
        assert given["compare"] == "benchmarks/baseline.json"
        assert "fail_on_regression" in given


def test_the_report_is_kept_and_becomes_the_baseline_of_main():
    (line,) = recipe("bench-compare")
    kept = next(step["with"]["path"] for step in STEPS if "upload-artifact" in step.get("uses", ""))
    assert [word for word in shlex.split(line) if word.startswith("bench-report")] == sorted(kept.split(), reverse=True)
    saved = [step for step in STEPS if "success()" in step.get("if", "")]
    assert all("refs/heads/main" in step["if"] for step in saved)
    assert saved[0]["run"] == "cp bench-report.json baseline.json"


def test_the_baseline_of_the_repository_can_be_compared_with():
    report = read_report(ROOT / "benchmarks" / "baseline.json")
    assert report.complete
    assert not report.failures
    assert sum(one.peer for result in report.results for one in result.contestants if one.samples) > 10
