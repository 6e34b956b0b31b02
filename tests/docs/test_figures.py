"""README.md and BENCHMARKS.md tell one truth: the figures that both have are the same."""

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
README, BENCHMARKS = ((REPOSITORY / name).read_text() for name in ("README.md", "BENCHMARKS.md"))
REGENERATE = "velocirl bench --from RESULTS.json --markdown BENCHMARKS.md --speeds README.md"
FIGURE = re.compile(r"([\d.,]+ ?[^\s\d(]*)(?: ([\w/]+))?(?: \(([\d.,]+ to [\d.,]+)\))?")


def between(text, name):
    """What stands between two markers; nothing where there are none."""
    return text.partition(f"<!-- {name}:begin -->")[2].partition(f"<!-- {name}:end -->")[0]


def speeds(name):
    """The rows of a table of README.md: benchmark, figure, what stands beside it."""
    rows = [line.strip("| ").split(" | ") for line in between(README, name).splitlines() if "`velocirl bench " in line]
    return {row[3].split()[2] + f" {place}": row[1:3] for place, row in enumerate(rows) if len(row) == 4}


def section_of(benchmark):
    """A benchmark of BENCHMARKS.md: its title, and the rows of its table by contestant."""
    title, found, rest = between(BENCHMARKS, "bench").partition(f"\n`velocirl bench {benchmark}`\n")
    assert found, f"BENCHMARKS.md has no {benchmark}: {REGENERATE}"
    table = [line.strip("| ").split(" | ") for line in rest.partition("\n### ")[0].splitlines() if line[:1] == "|"]
    return title.rstrip().rpartition("### ")[2], {row[0]: row[1:3] for row in table[2:]}


def figure(cells):
    """A figure as README.md writes it."""
    median, interval = cells
    low, high = interval.split(" to ")
    return median if low == high else f"{median} ({interval})"


CORES = speeds("speeds")
GPU = speeds("gpu-speeds")


def test_both_are_of_the_same_run():
    cores, tables = between(README, "speeds"), between(BENCHMARKS, "bench")
    command, began = re.search(r"^- Command: `(.+)`, (\S+)$", tables, re.MULTILINE).groups()
    commit = re.search(r"^- Commit: (\w+)", tables, re.MULTILINE)[1]
    assert f"one run of `{command}` with" in cores, REGENERATE
    assert f"; {began[:10]}, commit {commit[:7]}." in cores, REGENERATE
    assert "<!-- of the same run as BENCHMARKS.md -->" in cores
    assert "<!-- of the same run as README.md -->" in tables


def test_there_is_something_to_compare():
    assert len(CORES) >= 20
    assert len(GPU) >= 9


@pytest.mark.parametrize("row", CORES)
def test_a_figure_of_the_cores_is_that_of_its_table(row):
    benchmark = row.split()[0]
    told, beside = CORES[row]
    title, contestants = section_of(benchmark)
    assert told in [figure(cells) for cells in contestants.values() if cells[1]], REGENERATE
    ours = next(name for name, cells in contestants.items() if cells[1] and figure(cells) == told)
    for one in filter(None, beside.split("; ")):
        if times := re.match(r"([\d.,]+x) (.+)", one):
            assert times[2] in contestants, REGENERATE
            claimed = re.search(
                rf"^\| {re.escape(f'{title} | {ours} / {times[2]}')} \| [^|]*\| ([\d.,]+x) ", BENCHMARKS, re.MULTILINE
            )
            assert claimed is None or claimed[1] == times[1], REGENERATE
        else:
            name, _, other = one.partition(": ")
            assert other == figure(contestants[name]), REGENERATE


@pytest.mark.parametrize("row", GPU)
def test_a_figure_of_a_gpu_is_that_of_its_table(row):
    """Its tables are written by hand until a run on a GPU writes them: each figure stands in one of them."""
    tables = between(BENCHMARKS, "gpu-bench") or BENCHMARKS.partition("## One NVIDIA H200")[2].partition("\n## ")[0]
    cells = {cell.strip().removesuffix(", **met**") for line in tables.splitlines() for cell in line.split("|")}
    told, beside = GPU[row]
    for one in (told, *re.findall(r": ([\d.]+[A-Z]? .+)$", beside)):
        median, _, interval = one.partition(" (")
        short = f"{median.split()[0]} ({interval}"
        assert {one, short, median} & cells or short.partition(" ")[0] in cells, f"{one}: {REGENERATE}"
    for times in re.findall(r"(?:^|; )([\d.,]+x) ", beside):
        assert any(times in cell.split() for cell in cells), f"{times}: {REGENERATE}"
