import dataclasses
import re
from pathlib import Path

import pytest
from planted_report import measured, planted_report, result

from velocirl.bench.reading import read_report
from velocirl.bench.registry import DEVICE, find_benchmarks
from velocirl.bench.reports.speeds import ON_CORES, ON_GPU, write_speeds
from velocirl.bench.results import Measured
from velocirl.bench.units import SECONDS, STEPS

REPOSITORY = Path(__file__).parents[3]
BEGIN, END = "<!-- speeds:begin -->", "<!-- speeds:end -->"
GPU_BEGIN, GPU_END = "<!-- gpu-speeds:begin -->", "<!-- gpu-speeds:end -->"
TEXT = f"before\n{BEGIN}\nold\n{END}\nbetween\n{GPU_BEGIN}\nof the GPU\n{GPU_END}\nafter\n"


@pytest.fixture
def readme(tmp_path):
    path = tmp_path / "README.md"
    path.write_text(TEXT)
    return path


def on(report, **machine):
    return dataclasses.replace(report, machine=dataclasses.replace(report.machine, **machine))


def rows(path):
    return [line.strip("| ").split(" | ") for line in path.read_text().splitlines() if "velocirl bench " in line][1:]


PPO = result(
    "ppo_4_epochs", "training", STEPS,
    [
        measured("velocirl, 1 thread", 500e3), measured("velocirl, 2 threads", 900e3, seed=1),
        measured("JAX, one jitted program", 300e3, seed=1, peer=True),
        Measured("Stable-Baselines3, 64 copies", unavailable="not installed", peer=True),
    ],
)  # fmt: skip
SOLVING = result(
    "time_to_solve", "training", SECONDS, [Measured("velocirl", (0.8,) * 3), Measured("SB3", (20.0,) * 3, peer=True)]
)
START = result("training_start", "compile", SECONDS, [Measured("cold cache", (8.0,) * 3), Measured("warm", (0.4,) * 3)])


def test_a_row_has_the_best_of_ours_its_interval_its_peers_and_its_command(readme):
    assert write_speeds(readme, planted_report(results=[START, PPO, SOLVING]))
    first, second, third = rows(readme)
    assert first[0].startswith("PPO, shared 64x64 network, 4096 copies x 32 steps, 4 epochs")
    assert re.fullmatch(r"900k steps/s \(\d+ to \d+\)", first[1])
    assert first[2:] == ["3.00x JAX, one jitted program", "`velocirl bench ppo_4_epochs --peers`"]
    assert second[1:] == ["800 ms", "25.0x SB3", "`velocirl bench time_to_solve --peers`"]
    assert third[1:3] == ["8.00 s", "warm: 400 ms"]


def test_it_says_where_when_and_of_which_code(readme):
    write_speeds(readme, on(planted_report(results=[PPO]), load=3.5))
    told = readme.read_text()
    assert "2 cores (AMD EPYC 9654 96-Core Processor); python 3.11.7, numba 0.65.0; 2026-11-16, commit 1e93572." in told
    assert "Medians of one run of `velocirl bench --peers --html report.html` with their 95% intervals" in told
    assert "Careful: load average 3.50 on 2 cores before the run" in told


def test_each_machine_writes_its_own_table(readme):
    gpu = result("cuda_ppo_4096", DEVICE, STEPS, [measured("velocirl", 70e6), measured("JAX", 35e6, peer=True)])
    report = planted_report(results=[PPO, gpu])
    write_speeds(readme, report)
    text = readme.read_text()
    assert text.startswith(f"before\n{BEGIN}\n2 cores")
    assert text.endswith(f"\n{END}\nbetween\n{GPU_BEGIN}\nof the GPU\n{GPU_END}\nafter\n")
    readme.write_text(TEXT)
    write_speeds(readme, on(report, gpu="NVIDIA H200"))
    text = readme.read_text()
    assert text.startswith(f"before\n{BEGIN}\nold\n{END}\nbetween\n{GPU_BEGIN}\nNVIDIA H200, beside 2 cores (AMD")
    assert "| 2.00x JAX | `velocirl bench cuda_ppo_4096 --peers` |" in text
    assert "ppo_4_epochs" not in text


def test_what_was_not_measured_is_no_row_and_without_any_nothing_is_written(readme):
    absent = result("cuda_ppo_4096", DEVICE, STEPS, [Measured("velocirl", unavailable="no CUDA device")])
    assert not write_speeds(readme, on(planted_report(results=[absent]), gpu="NVIDIA H200"))
    assert not write_speeds(readme, planted_report(results=[]))
    assert readme.read_text() == TEXT


def test_a_file_without_markers_gets_them_and_unclear_ones_are_refused(readme, tmp_path):
    new = tmp_path / "SPEEDS.md"
    write_speeds(new, planted_report(results=[PPO]))
    assert new.read_text().startswith(f"# Speeds\n\n{BEGIN}\n2 cores")
    readme.write_text(f"{END}\n{BEGIN}\n")
    with pytest.raises(ValueError, match="expected one <!-- speeds:begin --> and after it one"):
        write_speeds(readme, planted_report(results=[PPO]))


def test_every_row_is_of_a_benchmark_that_make_bench_measures():
    standard = {one.name: one for one in find_benchmarks()}
    assert {speed.benchmark for speed in ON_CORES} <= {one.name for one in standard.values() if one.category != DEVICE}
    assert {speed.benchmark for speed in ON_GPU} <= {one.name for one in standard.values() if one.category == DEVICE}


def test_every_row_of_the_cores_finds_its_contestants(tmp_path):
    """In the baseline of the repository, which is a whole run."""
    path = tmp_path / "SPEEDS.md"
    write_speeds(path, read_report(REPOSITORY / "benchmarks" / "baseline.json"))
    assert len(rows(path)) == len(ON_CORES)
    alone = {"bytes_per_copy"}
    assert {row[3].split()[2] for row in rows(path) if not row[2]} == alone


def test_the_readme_has_both_tables_with_a_command_in_every_row():
    text = (REPOSITORY / "README.md").read_text()
    for begin, end, speeds in ((BEGIN, END, ON_CORES), (GPU_BEGIN, GPU_END, ON_GPU)):
        lines = [line for line in text.partition(begin)[2].partition(end)[0].splitlines() if line.startswith("| ")][2:]
        commands = [re.search(r"`velocirl bench (\w+) --peers`", line) for line in lines]
        assert [found and found[1] for found in commands] == [speed.benchmark for speed in speeds]
