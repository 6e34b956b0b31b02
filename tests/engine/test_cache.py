"""The cache of compiled code, in processes of their own: it is used, it is never stale, and it is nobody else's."""

import json
import os
import shutil
import subprocess
import sys
from textwrap import dedent

import numpy as np
import pytest

import velocirl
from velocirl.engine import cache
from velocirl.engine.directories import cache_directory

# Each environment of this module depends on something else; one step gives 10 * weight, or 20 * weight once changed.
WORLD = {
    "physics.py": """
        from velocirl import float32, record

        @record
        class State:
            value: float32

        def in_another_file(x):
            return 1.0 * x

        def reset(state, params, rng):
            pass

        def observe(state, params, observation):
            observation[0] = state.value
    """,
    "world.py": """
        from math import inf
        from velocirl import Box, Discrete, Environment
        import physics

        CONSTANT = 1.0

        def innermost(x):
            return 1.0 * x

        def nested(x):
            return innermost(x)

        def with_default(x, factor=1.0):
            return factor * x

        def make_step(weigh):
            def step(state, params, action, rng):
                state.value = weigh(state.value)
                return state.value, False
            return step

        WEIGHERS = {
            "AnotherFile": physics.in_another_file,
            "Constant": lambda x: CONSTANT * x,
            "Nested": lambda x: nested(x),
            "Default": lambda x: with_default(x),
        }

        environments = {
            name: Environment(f"{name}-v0", state=physics.State, observation=Box(-inf, inf, (1,)), action=Discrete(2),
                              reset=physics.reset, step=make_step(weigh), observe=physics.observe)
            for name, weigh in WEIGHERS.items()
        }
    """,
    "main.py": """
        import json
        import sys
        import numpy as np
        import velocirl
        from world import environments

        def weighed(environment):
            envs = velocirl.make_vec(environment, 1)
            saved = envs.get_state()
            saved["state"]["value"] = 10.0
            envs.set_state(saved)
            return float(envs.step(np.zeros(1, int))[1][0])

        chosen = sys.argv[1:] or environments
        print(json.dumps({name: weighed(environments[name]) for name in chosen}))
    """,
}
CHANGES = {
    "AnotherFile": ("physics.py", "return 1.0 * x", "return 2.0 * x"),
    "Constant": ("world.py", "CONSTANT = 1.0", "CONSTANT = 2.0"),
    "Nested": ("world.py", "return 1.0 * x", "return 2.0 * x"),
    "Default": ("world.py", "factor=1.0", "factor=2.0"),
}


def write_world(directory):
    for name, source in WORLD.items():
        (directory / name).write_text(dedent(source))


def compiled_files(home):
    """The files of compiled code and when they were written."""
    return {file.name: file.stat().st_mtime_ns for file in (home / "compiled").iterdir()}


@pytest.fixture(scope="module")
def printed(tmp_path_factory, run_script):
    """What the world printed, and what it printed after everything in it was changed."""
    directory = tmp_path_factory.mktemp("world")
    write_world(directory)
    before = json.loads(run_script(directory / "main.py"))
    for name, old, new in CHANGES.values():
        path = directory / name
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))
    return before, json.loads(run_script(directory / "main.py"))


@pytest.mark.parametrize("dependency", CHANGES)
def test_a_changed_dependency_gives_the_new_physics_in_a_new_process(printed, dependency):
    assert [run[dependency] for run in printed] == [10.0, 20.0]


def test_processes_that_compile_at_once_leave_it_whole_and_later_ones_compile_nothing(tmp_path, run_script):
    write_world(tmp_path)
    home = tmp_path / "home"
    command = [sys.executable, "-W", "error", str(tmp_path / "main.py"), "Constant"]
    environment = {**os.environ, "VELOCIRL_HOME": str(home)}
    together = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    for process in together:
        answer, errors = process.communicate(timeout=120)
        assert (process.returncode, errors) == (0, "")
        assert json.loads(answer) == {"Constant": 10.0}
    before = compiled_files(home)
    assert len(before) == 2  # an index and the code
    for name in ("world.py", "physics.py"):  # the same source, moved down its files
        path = tmp_path / name
        path.write_text('"""Moved."""\n\n\n# down\n' + path.read_text())
    assert json.loads(run_script(*command[3:], home=home)) == {"Constant": 10.0}
    assert compiled_files(home) == before


def halved(state, params, action, rng):
    state.value = 0.5 * state.value
    return state.value, False


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A cache of this test's own, in this process."""
    path = tmp_path / "home"
    monkeypatch.setenv("VELOCIRL_HOME", str(path))
    return path


def test_its_directory_is_the_users_alone(home):
    assert cache_directory() == home / "compiled"
    assert (home / "compiled").stat().st_mode & 0o777 == 0o700


def test_without_a_home_of_its_own_it_lies_in_the_users_cache(tmp_path, monkeypatch):
    monkeypatch.delenv("VELOCIRL_HOME", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "velocirl" / "compiled"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_directory() == tmp_path / ".cache" / "velocirl" / "compiled"


def linked(path):
    elsewhere = path.with_name("elsewhere")
    elsewhere.mkdir(mode=0o700)
    path.symlink_to(elsewhere)


def foreign(path):
    path.mkdir(mode=0o700)
    os.chown(path, 12345, 12345)


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (linked, "is a symbolic link"),
        (lambda path: path.mkdir() or path.chmod(0o770), r"is open to others \(mode 0770\)"),
        (lambda path: path.mkdir() or path.chmod(0o755), r"is open to others \(mode 0755\)"),
        pytest.param(
            foreign,
            "belongs to user 12345, not to you",
            marks=pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory away"),
        ),
    ],
)
def test_a_directory_through_which_others_could_hand_us_code_is_refused(home, spoil, fault):
    home.mkdir()
    spoil(home / "compiled")
    with pytest.raises(PermissionError, match=rf"the compile cache {home}/compiled {fault}.*set VELOCIRL_HOME"):
        velocirl.make_vec("Counter-v0", 1)
    assert list((home / "compiled").iterdir()) == []


def test_a_home_that_is_a_file_is_refused_by_name(home):
    home.write_text("not a directory")
    with pytest.raises(OSError, match=str(home)):
        velocirl.make_vec("Counter-v0", 1)
    assert home.read_text() == "not a directory"


def test_a_place_that_cannot_be_written_costs_a_compilation_and_not_the_run(define, apply, monkeypatch):
    monkeypatch.delenv("VELOCIRL_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")  # where not even root may write
    with pytest.warns(UserWarning, match="could not be cached"):
        state = apply(define(step=halved), value=[3.0])
    assert state["value"].tolist() == [1.5]


def test_a_full_disk_costs_a_compilation_and_not_the_run(tmp_path, run_script):
    write_world(tmp_path)
    (tmp_path / "full.py").write_text(
        dedent("""
            import resource, runpy, signal, sys, warnings
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))  # every write to a file fails
            sys.argv = ["main.py", "Constant"]
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                runpy.run_path(sys.path[0] + "/main.py", run_name="__main__")
            print(len(said), said[0].message)
        """)
    )
    home = tmp_path / "home"
    printed, said = run_script(tmp_path / "full.py", home=home).splitlines()
    assert json.loads(printed) == {"Constant": 10.0}
    assert said.startswith(f"1 compiled code could not be cached in {home}/compiled: [Errno 27] File too large")
    assert compiled_files(home) == {}


@pytest.fixture(scope="module")
def halving(define, apply, tmp_path_factory):
    """An environment, and a home in which it lies compiled."""
    environment, home = define(step=halved), tmp_path_factory.mktemp("halving")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VELOCIRL_HOME", str(home))
        apply(environment, value=[3.0])
    return environment, home


@pytest.mark.parametrize(("kind", "damage"), [("nbi", b"garbage"), ("nbc", b"\x80\x04")])
def test_a_damaged_file_is_compiled_anew(home, halving, apply, kind, damage):
    environment, undamaged = halving
    shutil.copytree(undamaged, home)
    (file,) = (home / "compiled").glob(f"*.{kind}")
    file.write_bytes(damage)
    assert apply(environment, value=[5.0])["value"].tolist() == [2.5]
    assert compiled_files(home).keys() == compiled_files(undamaged).keys()
    assert file.stat().st_size > 1000


def test_the_oldest_files_go_first(home, define, apply, monkeypatch):
    directory = cache_directory()
    for age in range(10):
        file = directory / f"age {age}.nbc"
        file.write_bytes(b"old")
        os.utime(file, (1000 - age, 1000 - age))
    monkeypatch.setattr(cache, "MOST_FILES", 5)
    apply(define(step=halved), value=[1.0])
    left = {file.name for file in directory.iterdir()}
    assert len(left) == 5
    assert {name for name in left if name.startswith("age")} == {"age 0.nbc", "age 1.nbc", "age 2.nbc"}


def test_another_number_of_copies_or_threads_needs_no_other_code(home, halving, apply):
    environment, compiled = halving
    shutil.copytree(compiled, home)
    for count in (1, 5, 5000):
        np.testing.assert_array_equal(apply(environment, value=np.full(count, 3.0))["value"], 1.5)
        velocirl.make_vec(environment, count, threads=2)
    assert compiled_files(home).keys() == compiled_files(compiled).keys()


TWO_ALGORITHMS = """
import sys
from velocirl.algorithms import load_algorithms
from velocirl.training.agent import ALGORITHMS
load_algorithms()
for name in sys.argv[1:]:
    print(ALGORITHMS[name]("TicTacToe-v1", seed=1, num_envs=4).learn(2000).table.values.sum())
"""


def test_code_of_two_processes_does_not_mix(run_script, tmp_path):
    script, home = tmp_path / "script.py", tmp_path / "home"
    script.write_text(TWO_ALGORITHMS)
    alone = [run_script(script, name, home=home) for name in ("sarsa", "expected-sarsa")]
    assert alone[0] != alone[1]
    assert run_script(script, "sarsa", "expected-sarsa", home=home) == "".join(alone)
