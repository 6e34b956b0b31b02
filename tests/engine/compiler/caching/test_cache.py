"""The cache of compiled code: it is used, it is never stale, it is bounded, and it is nobody else's."""

import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
import warnings
from textwrap import dedent

import numpy as np
import pytest

import velocirl
from velocirl import PPO
from velocirl.engine.compiler import compiling, units
from velocirl.engine.compiler.caching import cache
from velocirl.engine.compiler.caching.cache import cache_bound, cached_files, clear_cache, entries, find_code, keep_code
from velocirl.engine.compiler.compiling import compile_loop, cpu_translator
from velocirl.engine.disk.directories import cache_directory
from velocirl.engine.disk.files import UnsafePathError

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
            state.value = 0.0

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
            saved["rng"][:] = 1
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
    """The files of compiled code, by which one that is written anew is another."""
    return {file.name: file.stat().st_ino for file in (home / "compiled").iterdir()}


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
    assert [name.rpartition(".")[2] for name in before] == ["unit"]
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


needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory away")


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [(linked, "is a symbolic link"), pytest.param(foreign, "belongs to user 12345, not to you", marks=needs_root)],
)
def test_a_directory_through_which_others_could_hand_us_code_is_refused(home, forgetful, spoil, fault):
    home.mkdir()
    spoil(home / "compiled")
    with pytest.raises(UnsafePathError, match=rf"{home}/compiled {fault}.*set VELOCIRL_HOME"):
        velocirl.make_vec("Counter-v0", 1)
    assert list((home / "compiled").iterdir()) == []


@needs_root
def test_a_file_that_somebody_else_put_there_is_refused_and_not_executed(home, halving, apply, forgetful):
    environment, compiled = halving
    shutil.copytree(compiled, home)
    (file,) = (home / "compiled").iterdir()
    os.chown(file, 12345, 12345)
    with pytest.raises(UnsafePathError, match=f"{file} belongs to user 12345"):
        apply(environment, value=[5.0])


@needs_root
def test_a_directory_that_is_swapped_after_the_check_is_not_read(home, monkeypatch):
    """The attack: a cache of ours while it is looked at, another one when it is read."""
    keep_code("name", b"mine")
    theirs = home.with_name("theirs")
    monkeypatch.setenv("VELOCIRL_HOME", str(theirs))
    keep_code("name", b"theirs")
    for path in (theirs / "compiled" / "name", theirs / "compiled", theirs):
        os.chown(path, 12345, 12345)
    monkeypatch.setenv("VELOCIRL_HOME", str(home))
    open_file = cache.open_own

    def swap(path, directory):
        home.rename(home.with_name("moved"))
        theirs.rename(home)
        return open_file(path, directory)

    monkeypatch.setattr(cache, "open_own", swap)
    assert find_code("name") == b"mine"
    monkeypatch.setattr(cache, "open_own", open_file)
    with pytest.raises(UnsafePathError, match=f"{home} belongs to user 12345"):
        find_code("name")


def test_a_home_that_is_a_file_is_refused_by_name(home, forgetful):
    home.write_text("not a directory")
    with pytest.raises(OSError, match=str(home)):
        velocirl.make_vec("Counter-v0", 1)
    assert home.read_text() == "not a directory"


@pytest.mark.parametrize("variable", ["VELOCIRL_HOME", "XDG_CACHE_HOME"])
@pytest.mark.parametrize("place", ["/proc/nowhere", "/sys/nowhere"])  # where not even root may write
def test_a_place_that_cannot_be_written_costs_a_compilation_and_not_the_run(
    define, apply, forgetful, monkeypatch, variable, place
):
    monkeypatch.setattr(cache, "_told", set())
    monkeypatch.delenv("VELOCIRL_HOME", raising=False)
    monkeypatch.setenv(variable, place)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        state = apply(define(step=halved), value=[3.0])
    assert state["value"].tolist() == [1.5]
    assert len(said) == 1
    assert f"could not be cached in {place}" in str(said[0].message)
    assert "set to a directory that can be written" in str(said[0].message)
    assert cached_files() == set()


def test_a_read_only_home_is_read_and_what_is_not_there_is_compiled(tmp_path, run_script):
    """In a mount of its own, as root is stopped by nothing else."""
    unshare = [shutil.which("unshare") or "unshare", "--mount", "--map-root-user"]
    mount = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0"'
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    try:
        subprocess.run([*unshare, "sh", "-c", mount, home], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting is not allowed here")
    write_world(tmp_path)
    run_script(tmp_path / "main.py", "Constant", home=home)
    before = compiled_files(home)
    script = f'{mount} && exec "$1" -W default "$2" Constant Nested'
    finished = subprocess.run(
        [*unshare, "sh", "-c", script, home, sys.executable, tmp_path / "main.py"],
        env={**os.environ, "VELOCIRL_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert json.loads(finished.stdout) == {"Constant": 10.0, "Nested": 10.0}, finished.stderr
    assert finished.stderr.count("UserWarning") == 1
    assert f"could not be cached in {home}/compiled: Read-only file system" in finished.stderr
    assert compiled_files(home) == before


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
    assert said.startswith(f"1 compiled code could not be cached in {home}/compiled: File too large")
    assert compiled_files(home) == {}


@pytest.fixture(scope="module")
def halving(define, tmp_path_factory):
    """An environment, and a home in which it lies compiled."""
    environment, home = define(step=halved), tmp_path_factory.mktemp("halving")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VELOCIRL_HOME", str(home))
        patch.setattr(units, "_LOADED", {})
        velocirl.make_vec(environment, 1)
    return environment, home


@pytest.fixture
def forgetful(monkeypatch):
    """As in a new process, nothing has been loaded from the cache yet."""
    monkeypatch.setattr(units, "_LOADED", {})
    monkeypatch.setattr(compiling, "_LOADED", {})


@pytest.fixture
def compiled(monkeypatch):
    """The names of the units that had to be compiled."""
    names, order = [], units._Order

    def noted(key, function, *more):
        names.append(function.__name__)
        return order(key, function, *more)

    monkeypatch.setattr(units, "_Order", noted)
    return names


@pytest.mark.parametrize("damage", [
    lambda code: b"", lambda code: b"garbage", lambda code: code[:-1], lambda code: code[:100] + b"?" + code[101:],
], ids=["empty", "garbage", "cut short", "one byte"])  # fmt: skip
def test_a_damaged_unit_is_compiled_anew(home, halving, apply, forgetful, damage):
    environment, undamaged = halving
    shutil.copytree(undamaged, home)
    (file,) = (home / "compiled").iterdir()
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    assert apply(environment, value=[5.0])["value"].tolist() == [2.5]
    assert [one.name for one in (home / "compiled").iterdir()] == [file.name]
    assert find_code(file.name) is not None
    assert len(file.read_bytes()) == len(whole)


def test_a_unit_that_lies_in_it_is_not_compiled(home, halving, apply, forgetful, compiled):
    environment, undamaged = halving
    shutil.copytree(undamaged, home)
    assert apply(environment, value=[5.0])["value"].tolist() == [2.5]
    assert compiled == []


def add_to(numbers, more):
    for k in range(len(numbers)):
        numbers[k] += more


def sealed(code):
    return lambda name: hashlib.sha256(name.encode() + b"\0" + code).digest() + code


@pytest.mark.parametrize("damage", [lambda name: b"garbage", sealed(b"\x80\x04"), sealed(pickle.dumps(3))])
def test_a_damaged_file_of_a_whole_loop_is_compiled_anew(home, forgetful, monkeypatch, damage):
    arguments, missed = (np.zeros(3, np.float32), 1.5), []

    def add():
        monkeypatch.setattr(compiling, "_LOADED", {})
        translator = cpu_translator("test", double=False)
        compile_loop(add_to, arguments, translator, before=lambda: missed.append(1))(*arguments)

    add()
    (file,) = (home / "compiled").glob("*.loop")
    file.write_bytes(damage(file.name))
    add()
    add()
    assert arguments[0].tolist() == [4.5] * 3
    assert missed == [1, 1]
    assert file.stat().st_size > 1000


def test_units_that_were_exchanged_are_compiled_anew(home):
    """Each file is whole; only their names say which function each of them holds."""
    keep_code("one", b"code of one")
    keep_code("two", b"code of two")
    one, two = home / "compiled" / "one", home / "compiled" / "two"
    one.rename(home / "kept")
    two.rename(one)
    (home / "kept").rename(two)
    assert find_code("one") is find_code("two") is None
    keep_code("one", b"code of one")
    assert find_code("one") == b"code of one"


def draw_a_line(state, params, canvas):
    canvas.view(0, 1, 0, 1)


def draw_a_circle(state, params, canvas):
    canvas.view(-1, 1, -1, 1)
    canvas.disc(0, 0, 1, (0, 0, 0))


def test_a_changed_drawing_compiles_nothing(home, define, forgetful, compiled):
    velocirl.make_vec(define(step=halved, draw=draw_a_line), 1)
    assert compiled == ["advance"]
    velocirl.make_vec(define(step=halved, draw=draw_a_circle, text=lambda state, params: "a circle"), 1)
    assert compiled == ["advance"]


def doubled(state, params, action, rng):
    state.value = 2.0 * state.value
    return state.value, False


def test_a_changed_environment_compiles_itself_and_no_learner(define, compiled):
    def train(**changes):
        compiled.clear()
        config = {"num_envs": 8, "horizon": 8, "minibatch_size": 64, "epochs": 1, "threads": 1, "seed": 0}
        return PPO(define(max_steps=10, **changes), device="cpu", **config).learn(64)

    train(step=halved)
    train(step=doubled)
    assert set(compiled) <= {"advance", "begin_chosen"}
    assert train(step=doubled).steps == 64
    assert compiled == []


def test_other_bounds_of_what_is_drawn_compile_nothing(compiled):
    velocirl.make_vec("CartPole-v1", 2, params={"gravity": velocirl.uniform(5, 15)}).reset()
    compiled.clear()
    fleet = velocirl.make_vec("CartPole-v1", 3, params={"gravity": velocirl.log_uniform(1, 2)})
    fleet.reset()
    assert ((fleet.copies.params["gravity"] >= 1) & (fleet.copies.params["gravity"] <= 2)).all()
    assert compiled == []


def written(name, code, used):
    """Keep code, last used at a time."""
    keep_code(name, code)
    os.utime(cache_directory() / name, (used, used))


def names_left():
    return {entry.path.name for entry in entries()}


def test_what_was_used_longest_ago_goes_first(home, monkeypatch):
    monkeypatch.setenv("VELOCIRL_CACHE_SIZE", "1000")
    for age in range(10):
        written(f"age {age}", bytes(68), 1000 - age)  # 100 bytes with its hash
    assert len(entries()) == 10
    keep_code("new", bytes(268))
    assert names_left() == {"new", *(f"age {age}" for age in range(7))}
    assert [entry.path.name for entry in entries()] == [*(f"age {age}" for age in reversed(range(7))), "new"]
    assert sum(entry.size for entry in entries()) == 1000


def test_what_is_found_was_used(home, monkeypatch):
    monkeypatch.setenv("VELOCIRL_CACHE_SIZE", "300")
    for name, used in [("old", 1000), ("older", 999), ("oldest", 998)]:
        written(name, bytes(68), used)
    assert find_code("oldest") == bytes(68)
    keep_code("new", bytes(68))
    assert names_left() == {"new", "oldest", "old"}


def test_a_whole_loop_that_is_found_was_used(home, forgetful, monkeypatch):
    arguments = np.zeros(3, np.float32), 1.5
    compile_loop(add_to, arguments, cpu_translator("test", double=False), before=lambda: None)
    for entry in entries():
        os.utime(entry.path, (1000, 1000))
    monkeypatch.setattr(compiling, "_LOADED", {})
    compile_loop(add_to, arguments, cpu_translator("test", double=False), before=lambda: None)
    assert len(entries()) == 1
    assert all(entry.used > 1000 for entry in entries())


def test_it_is_looked_through_at_the_first_file_and_then_now_and_again(home, monkeypatch):
    monkeypatch.setenv("VELOCIRL_CACHE_SIZE", "3200")
    monkeypatch.setattr(cache, "_written", cache.BOUND)  # as in a new process
    looked, look = [], cache.entries
    monkeypatch.setattr(cache, "entries", lambda: looked.append(1) or look())
    for k in range(5):
        keep_code(f"code {k}", bytes(18))  # 50 bytes: every other one makes a thirty-second of the bound
    assert len(looked) == 3


def test_it_holds_two_gibibytes_unless_told_otherwise(monkeypatch):
    monkeypatch.delenv("VELOCIRL_CACHE_SIZE", raising=False)
    assert cache_bound() == 2 * 2**30


@pytest.mark.parametrize(("given", "bound"), [
    ("1000", 1000), ("500M", 500 * 2**20), ("3 GiB", 3 * 2**30), ("20kb", 20 * 2**10), (" 1g ", 2**30), ("0", 0),
])  # fmt: skip
def test_its_bound_is_read_with_units(monkeypatch, given, bound):
    monkeypatch.setenv("VELOCIRL_CACHE_SIZE", given)
    assert cache_bound() == bound


@pytest.mark.parametrize("given", ["much", "-1", "2T", "1.5G", "G"])
def test_a_bound_that_is_none_is_refused(home, monkeypatch, given):
    monkeypatch.setenv("VELOCIRL_CACHE_SIZE", given)
    with pytest.raises(ValueError, match=f"VELOCIRL_CACHE_SIZE is a number of bytes such as 500M or 2G, not '{given}'"):
        keep_code("code", b"code")


def test_clearing_it_removes_everything_and_says_what_it_was(home):
    written("one", b"1", 1000)
    written("two", b"22", 2000)
    assert [(entry.path.name, entry.size, entry.used) for entry in clear_cache()] == [
        ("one", 33, 1000.0),
        ("two", 34, 2000.0),
    ]
    assert entries() == []
    assert find_code("one") is None
    assert clear_cache() == []


def test_what_is_kept_is_found_as_it_was(home):
    assert find_code("name") is None
    keep_code("name", b"first")
    assert find_code("name") == b"first"
    keep_code("name", b"second")
    assert find_code("name") == b"second"
    assert names_left() == {"name"}


def test_another_number_of_copies_or_threads_needs_no_other_code(home, halving, apply, forgetful, compiled):
    environment, known = halving
    shutil.copytree(known, home)
    for count in (1, 5, 5000):
        np.testing.assert_array_equal(apply(environment, value=np.full(count, 3.0))["value"], 1.5)
        velocirl.make_vec(environment, count, threads=2)
    assert set(compiled) <= {"watch"}  # by which threads wait for each other, in whatever environment


TWO_ALGORITHMS = """
import sys
from velocirl.algorithms import load_algorithms
from velocirl.training.persistence import ALGORITHMS
load_algorithms()
for name in sys.argv[1:]:
    print(ALGORITHMS[name]("FrozenLake-v1", seed=1, num_envs=4).learn(20_000).table.values.sum())
"""


@pytest.mark.slow
def test_code_of_two_processes_does_not_mix(run_script, tmp_path):
    script, home = tmp_path / "script.py", tmp_path / "home"
    script.write_text(TWO_ALGORITHMS)
    alone = [run_script(script, name, home=home) for name in ("sarsa", "expected-sarsa")]
    assert alone[0] != alone[1]
    assert run_script(script, "sarsa", "expected-sarsa", home=home) == "".join(alone)
