"""What all tests share: small environments, scripts in processes of their own, and CUDA only where there is a device.

The compile cache is the user's own, so that a second run of the tests compiles nothing; tests of the cache itself give
their processes a VELOCIRL_HOME of their own. What a shell or a CI system has set does not matter to any test: signals
that it ignores, variables of velocirl.
"""

import errno
import gc
import importlib.util
import itertools
import os
import shutil
import signal
import subprocess
import sys
import warnings
from contextlib import suppress
from math import inf
from pathlib import Path

# Products are small here. The threads of a library would spin between them, beside those of the other worker, and take
# more of the processor than the products. Torch's learners still use as many as they are given.
os.environ["OPENBLAS_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"

import gymnasium
import hypothesis
import numpy as np
import psutil
import pytest
import surroundings  # noqa: F401 - before velocirl, which reads variables

import velocirl
from velocirl import Box, Discrete, Environment, float32, record
from velocirl.engine import registry
from velocirl.engine.compiler import units
from velocirl.engine.disk import directories
from velocirl.engine.records import Record

hypothesis.settings.register_profile("velocirl", deadline=None)  # a first example may have to be compiled
hypothesis.settings.load_profile("velocirl")

# A compilation leaves a million objects, most of them still needed. Garbage is collected once per module, see below.
gc.set_threshold(1_000_000, 10, 10)

if "PYTEST_XDIST_WORKER" in os.environ:  # every core has a worker, and what a fork compiles its parent cannot share
    units.MOST_PROCESSES = 1

# The files that take longest, from an empty cache. They come first: one of them at the end would keep one worker busy
# while the others are done.
LONGEST = (
    "contracts/test_environments.py",
    "tabular/runtimes/test_processes.py",
    "contracts/test_algorithms.py",
    "cli/test_compile.py",
    "tabular/runtimes/test_mpi.py",
    "backends/batch/frames/test_frames.py",
    "vector/host/test_workers.py",
    "training/test_preprocessing.py",
    "engine/compiler/caching/test_cache.py",
    "cli/test_record.py",
    "learners/test_devices_agree.py",
    "bench/test_ppo_suite.py",
    "cli/test_bench.py",
    "runs/test_hostile_files.py",
    "backends/batch/test_batch_norms.py",
    "networks/test_heads.py",
    "backends/batch/test_replay.py",
    "vector/test_checking.py",
    "cli/test_seeds.py",
    "tabular/test_learner.py",
    "runs/test_signals.py",
    "training/actors/test_torch_actor.py",
    "backends/batch/frames/test_frames_saved.py",
    "cli/test_off_policy.py",
    "cli/test_play.py",
)
PLACES = {Path(__file__).parent / name: place for place, name in enumerate(LONGEST)}


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: PLACES.get(item.path, len(PLACES)))
    needs_cuda = [item for item in items if item.get_closest_marker("cuda")]
    if needs_cuda and not cuda_is_available():
        for item in needs_cuda:
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))


def pytest_sessionfinish(session):
    """A process of velocirl that a failed test has left would burn a core for ever."""
    if session.config.getoption("numprocesses", None):  # the workers do this themselves
        return
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if any("velocirl" in word for word in child.cmdline()):
                child.kill()
                child.wait(5)


def cuda_is_available():
    if importlib.util.find_spec("numba_cuda") is None:
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from velocirl.engine.targets.cuda import cuda

        return cuda.is_available()


def restore_known_environments():
    """Definitions made from here on are forgotten again."""
    before = dict(registry._environments)
    yield
    for name in registry._environments.keys() - before.keys():
        gymnasium.registry.pop(f"velocirl/{name}", None)
    registry._environments.clear()
    registry._environments.update(before)


after_each_test = pytest.fixture(autouse=True)(restore_known_environments)
after_each_module = pytest.fixture(autouse=True, scope="module")(restore_known_environments)


@pytest.fixture(autouse=True, scope="module")
def _leave_the_heap_of_before():
    """A collection looks through everything; with what earlier modules compiled, that would take a second each."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def _signals_are_left_as_they_were():
    """Processes that later tests start would never hear of what is blocked or ignored here."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ()), signal.getsignal(signal.SIGINT)
    yield
    assert (signal.pthread_sigmask(signal.SIG_BLOCK, ()), signal.getsignal(signal.SIGINT)) == before


@record
class Value:
    value: float32


def begin(state, params, rng):
    state.value = 0.0


def zeroing(state):
    """Make a reset that sets every field of a record to zero."""
    if state is Value or not isinstance(state, Record):
        return begin
    lines = [f"    state.{name}{'[:]' if state.dtype[name].shape else ''} = 0" for name in state.fields]
    made = {}
    exec("\n".join(["def reset(state, params, rng):", *lines]), made)
    return made["reset"]


def stand(state, params, action, rng):
    return state.value, False


def show(state, params, observation):
    observation[0] = state.value


numbers = itertools.count()


@pytest.fixture(scope="session")
def define():
    """Define an environment of one float32 field, `value`, with whatever is given in place of the defaults."""

    def define(**given):
        given.setdefault("id", f"Small{next(numbers)}-v0")
        defaults = {"state": Value, "step": stand, "observe": show}
        given.setdefault("reset", zeroing(given.get("state", Value)))
        spaces = {"observation": Box(-inf, inf, (1,)), "action": Discrete(2)}
        return Environment(**{**defaults, **spaces, **given})

    return define


@pytest.fixture(scope="session")
def apply():
    """Set fields of the state, a row for each copy, take one step with action 0, and give back the state."""

    def apply(environment, device="cpu", params=None, **fields):
        count = len(next(iter(fields.values())))
        envs = velocirl.make_vec(environment, count, device=device, params=params)
        saved = envs.get_state()
        saved["rng"][:] = 1
        for name, values in fields.items():
            saved["state"][name] = values
        envs.set_state(saved)
        envs.step(np.zeros(envs.action_space.shape, envs.action_space.dtype))
        return np.asarray(envs.copies.state)

    return apply


@pytest.fixture(scope="session")
def run_script():
    """Run a Python script in a process of its own, with warnings as errors, and give back what it printed."""

    def run_script(path, *arguments, home=None, **environment):
        own_home = {} if home is None else {"VELOCIRL_HOME": str(home)}
        finished = subprocess.run(
            [sys.executable, "-W", "error", str(path), *arguments],
            env={**os.environ, **own_home, "PYTHONDONTWRITEBYTECODE": "1", **environment},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert finished.returncode == 0, finished.stderr
        return finished.stdout

    return run_script


@pytest.fixture(scope="session")
def keep_runs_at():
    """The variables by which runs are kept in a directory, while the compile cache stays the user's own."""
    together = sys.platform == "darwin"
    cache, homes = directories.cache_directory(), []

    def keep_runs_at(path):
        if not together:
            return {"XDG_DATA_HOME": str(path)}
        homes.append(path / "velocirl" / "compiled")
        homes[-1].mkdir(mode=0o700, parents=True, exist_ok=True)
        for home in homes[-2:-1]:  # what was compiled there is not lost
            share(home, cache)
        share(cache, homes[-1])
        return {"XDG_DATA_HOME": str(path), "VELOCIRL_HOME": str(path / "velocirl")}

    return keep_runs_at


def share(source, target):
    """Let a directory have what another one has, too."""
    for path in source.iterdir() if source.is_dir() else ():
        if not path.name.startswith("."):  # nor what is still being written
            with suppress(FileExistsError, FileNotFoundError):
                link(path, target / path.name)


def link(source, target):
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.copy2(source, target)


@pytest.fixture
def one_torch_thread():
    """For small products a second thread costs more than it saves, and very much more where cores are shared."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
