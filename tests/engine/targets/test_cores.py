"""Usable cores: affinity, CPU quotas of cgroups v1 and v2, physical cores instead of hyperthreads."""

import os
import subprocess
import sys

import pytest

from velocirl.engine.targets import cores
from velocirl.engine.targets.cores import _smallest_quota, available_cores


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Writes files as the kernel shows them; 8 CPUs, of which each two are hyperthreads of one core."""
    for cpu in range(8):
        topology = tmp_path / "cpu" / f"cpu{cpu}" / "topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}\n")
    monkeypatch.setattr(cores, "CPUS", tmp_path / "cpu")
    monkeypatch.setattr(cores, "CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(cores, "MEMBERSHIP", tmp_path / "membership")
    monkeypatch.setattr(cores.os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    cores._core_of.cache_clear()
    yield tmp_path
    cores._core_of.cache_clear()


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_hyperthreads_of_a_core_count_once(machine, monkeypatch):
    assert available_cores() == 4
    monkeypatch.setattr(cores.os, "sched_getaffinity", lambda process: {0, 1, 2})
    assert available_cores() == 2


def test_without_topology_each_cpu_is_a_core(machine, monkeypatch):
    monkeypatch.setattr(cores, "CPUS", machine / "missing")
    assert available_cores() == 8


@pytest.mark.parametrize(
    ("limit", "expected"), [("250000 100000", 2), ("max 100000", 4), ("50000 100000", 1), ("900000 100000", 4)]
)
def test_quota_of_cgroup_v2(machine, limit, expected):
    write(machine / "membership", "0::/user/job\n")
    write(machine / "cgroup/user/job/cpu.max", limit + "\n")
    assert available_cores() == expected


def test_the_smallest_quota_of_all_levels_counts(machine):
    write(machine / "membership", "0::/user/job\n")
    write(machine / "cgroup/user/cpu.max", "150000 100000\n")
    write(machine / "cgroup/user/job/cpu.max", "300000 100000\n")
    assert _smallest_quota(machine / "cgroup", machine / "membership") == 1.5
    assert available_cores() == 1


@pytest.mark.parametrize(("quota", "expected"), [("300000", 3.0), ("-1", None)])
def test_quota_of_cgroup_v1(machine, quota, expected):
    write(machine / "membership", "5:cpu,cpuacct:/docker/ab\n3:memory:/docker/ab\n")
    write(machine / "cgroup/cpu,cpuacct/docker/ab/cpu.cfs_quota_us", quota + "\n")
    write(machine / "cgroup/cpu,cpuacct/docker/ab/cpu.cfs_period_us", "100000\n")
    assert _smallest_quota(machine / "cgroup", machine / "membership") == expected


@pytest.mark.parametrize("text", ["", "words", "max", "1 2 3", "100000 0"])
def test_files_that_say_nothing_limit_nothing(machine, text):
    write(machine / "membership", "0::/job\n")
    write(machine / "cgroup/job/cpu.max", text)
    assert available_cores() == 4


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinities here")
def test_a_process_bound_to_one_cpu_has_one_core():
    code = "from velocirl.engine.targets.cores import available_cores; print(available_cores())"
    cpu = min(os.sched_getaffinity(0))
    bound = [sys.executable, "-c", f"import os; os.sched_setaffinity(0, {{{cpu}}}); {code}"]
    assert subprocess.run(bound, capture_output=True, text=True, check=True).stdout.strip() == "1"
