"""`velocirl doctor`: what works, what is missing and what is broken, each without harm to the others."""

import json
import os
import platform
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from ranks import finish, needs_mpi, start

from velocirl import __version__
from velocirl.cli.doctor.probes import OWN_EXTRAS, in_child, install, probes

COMMAND = [sys.executable, "-W", "error", "-c", "from velocirl.cli.main import main; main()", "doctor"]
NAMES = [probe.name for probe in probes()]


def doctor(*arguments, **environment):
    """Run it, and give back exit code, what it printed, and its complaints."""
    done = subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=240, env={**os.environ, **environment}
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Put a module where processes look for modules first."""

    def fake(name, text):
        (tmp_path / "fakes").mkdir(exist_ok=True)
        (tmp_path / "fakes" / f"{name}.py").write_text(text)
        rest = os.environ.get("PYTHONPATH")
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "fakes"), *([rest] if rest else [])]))

    return fake


def test_what_is_said_of_this_machine():
    code, printed, complaints = doctor("--json")
    document = json.loads(printed)
    found = {one["name"]: one for one in document["findings"]}
    assert list(found) == NAMES
    assert (code, document["broken"], complaints) == (0, [], "")
    for name in ("Python", "processor", "velocirl", "numpy", "numba", "llvmlite", "gymnasium", "compile cache", "runs"):
        assert found[name]["status"] == "works", found[name]
    assert found["velocirl"]["detail"].startswith(__version__)
    assert found["processor"]["facts"]["memory_bytes"] > 2**28
    assert found["compile cache"]["advice"] == f"to clear it: rm -r {found['compile cache']['facts']['path']}"
    assert found["compile cache"]["facts"]["entries"] > 0  # those of the tests before
    compiled = found["compiled environments"]
    assert compiled["status"] == "works"
    assert compiled["facts"]["compile_ms"] > 100  # really compiled, not loaded
    assert 0 < compiled["facts"]["step_ms"] < 100
    assert found["NumPy matrix product"]["facts"]["gflops"] > 0.1
    assert found["torch"]["facts"]["gflops"] > 0.1  # the tests have it
    if found["driver"]["status"] != "works":
        assert found["driver"]["status"] == "missing"
        for name in ("environments on the GPU", "torch on the GPU", "CUDA graphs"):
            assert found[name]["status"] == "missing", found[name]
    for one in found.values():
        assert one["status"] in ("works", "missing")
        assert "\n" not in one["detail"]


@pytest.mark.slow
def test_what_is_broken_is_named_in_words_and_exits_1_while_the_rest_is_still_tried(fake, tmp_path):
    fake("mpi4py", "raise ImportError('libmpi.so.40: cannot open shared object file')")
    fake("moviepy", "import os\nos.abort()")
    (tmp_path / "file").touch()
    code, printed, _ = doctor(VELOCIRL_HOME=str(tmp_path / "file"))
    lines = printed.splitlines()
    found = {name: next(line for line in lines if name in line[9:45]) for name in NAMES}
    assert code == 1
    assert found["compile cache"].startswith("✗ broken")
    assert "File exists" in found["compile cache"]
    assert found["MPI"].startswith("✗ broken")
    assert "ImportError: libmpi.so.40: cannot open shared object file" in found["MPI"]
    assert found["render"].startswith("✗ broken")
    assert "crashed with SIGABRT" in found["render"]
    assert "--force-reinstall" in found["render"]
    for name in ("numpy", "compiled environments", "torch ", "plots"):
        line = found.get(name) or next(line for line in lines if name in line[9:45])
        assert line.startswith("✓ works"), line
    assert lines[-1].endswith("broken")


def test_a_library_that_hangs_is_left_behind(fake, tmp_path):
    fake("mpi4py", f"import os, time\nopen({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)")
    began = time.monotonic()
    finding = in_child("mpi", advice="do something", patience=2.0)
    assert time.monotonic() - began < 20
    assert (finding.status, finding.detail) == ("broken", "gave no answer in 2 s")
    assert finding.advice == "do something"
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_what_a_library_prints_does_not_disturb_the_answer(fake):
    fake("talkative", "print('hello', flush=True)\n__version__ = '1.2'")
    finding = in_child("modules", "talkative")
    assert (finding.status, finding.detail) == ("works", "talkative 1.2")


def test_a_library_that_ends_the_process_is_broken(fake):
    fake("quitter", "raise SystemExit(3)")
    finding = in_child("modules", "quitter")
    assert (finding.status, finding.detail) == ("broken", "ended with exit code 3")


def test_what_to_install():
    assert install("torch") == 'pip install "velocirl[torch]"'
    assert install("mujoco") == "pip install mujoco"
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert set(project["optional-dependencies"]) >= OWN_EXTRAS


def test_one_process_is_told_how_to_start_several():
    code, printed, _ = doctor("--distributed")
    assert code == 0
    for launcher in ("mpirun -n 4", "torchrun --nproc-per-node 4 -m", "srun --mpi=pmix"):
        assert f"{launcher} velocirl doctor --distributed" in printed


@needs_mpi
@pytest.mark.slow
def test_the_sums_of_ranks_are_measured():
    job = start(2, "-c", "from velocirl.cli.main import main; main()", "doctor", "--distributed", "--json")
    code, printed, complaints = finish(job, limit=300)
    assert code == 0, complaints
    document = json.loads(printed)  # of the first rank alone
    assert (document["ranks"], document["runtime"]) == (2, "mpi")
    assert document["hosts"] == [platform.node()] * 2
    assert [one["bytes"] for one in document["sums"]] == [8, 10_000, 100_000, 1_000_000, 10_000_000]
    assert document["sums"][-1]["seconds"] > document["sums"][0]["seconds"] > 0
    for one in document["iterations"]:
        together = one["compute_seconds"] + one["sum_seconds"]
        assert one["compute_seconds"] > 0
        assert 0 < one["share"] == pytest.approx(one["sum_seconds"] / together)
        assert list(one["predicted_shares"]) == ["16", "256"]
