"""Fingerprints follow what a function computes: each pair of sources here differs in just one thing."""

import importlib.util
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from velocirl.engine.compiler.caching import fingerprint as fingerprints
from velocirl.engine.compiler.caching.fingerprint import fingerprint, python_function
from velocirl.engine.compiler.compiling import cpu_translator, learning_translator

CHANGES = {
    "a literal": ("def f(x): return 2.0 * x", "def f(x): return 3.0 * x"),
    "the type of a literal": ("def f(x): return 2 * x", "def f(x): return 2.0 * x"),
    "the sign of zero": ("def f(x): return x * 0.0", "def f(x): return x * -0.0"),
    "an operator": ("def f(x): return 2 * x", "def f(x): return 2 + x"),
    "a constant": ("G = 9.8\ndef f(x): return G * x", "G = 9.9\ndef f(x): return G * x"),
    "a tuple": ("G = (1, 2)\ndef f(x): return G[x]", "G = (1, 3)\ndef f(x): return G[x]"),
    "a nested tuple": ("G = ((1, 2), 3)\ndef f(x): return G[0][x]", "G = ((1, 4), 3)\ndef f(x): return G[0][x]"),
    "an array": (
        "import numpy as np\nG = np.array([1, 2])\ndef f(x): return G[x]",
        "import numpy as np\nG = np.array([1, 3])\ndef f(x): return G[x]",
    ),
    "the type of an array": (
        "import numpy as np\nG = np.array([1, 2])\ndef f(x): return G[x]",
        "import numpy as np\nG = np.array([1, 2], np.int32)\ndef f(x): return G[x]",
    ),
    "a helper": ("def g(x): return x\ndef f(x): return g(x)", "def g(x): return -x\ndef f(x): return g(x)"),
    "a helper's helper": (
        "def h(x): return x\ndef g(x): return h(x)\ndef f(x): return g(x)",
        "def h(x): return -x\ndef g(x): return h(x)\ndef f(x): return g(x)",
    ),
    "a helper's constant": (
        "G = 1\ndef g(x): return G * x\ndef f(x): return g(x)",
        "G = 2\ndef g(x): return G * x\ndef f(x): return g(x)",
    ),
    "which of two helpers": (
        "def a(x): return x\ndef b(x): return -x\ng = a\ndef f(x): return g(x)",
        "def a(x): return x\ndef b(x): return -x\ng = b\ndef f(x): return g(x)",
    ),
    "the order of two helpers": (
        "def a(x): return x\ndef b(x): return -x\ndef f(x): return a(x) - 2 * b(x)",
        "def a(x): return -x\ndef b(x): return x\ndef f(x): return a(x) - 2 * b(x)",
    ),
    "a default argument": ("def f(x, k=1): return k * x", "def f(x, k=2): return k * x"),
    "a helper's default argument": (
        "def g(x, k=1): return k * x\ndef f(x): return g(x)",
        "def g(x, k=2): return k * x\ndef f(x): return g(x)",
    ),
    "a function within": (
        "def f(x):\n    def g(y): return y\n    return g(x)",
        "def f(x):\n    def g(y): return -y\n    return g(x)",
    ),
    "a constant of a function within": (
        "G = 1\ndef f(x):\n    def g(y): return G * y\n    return g(x)",
        "G = 2\ndef f(x):\n    def g(y): return G * y\n    return g(x)",
    ),
    "a closure": (
        "def make(k):\n    def f(x): return k * x\n    return f\nf = make(1)",
        "def make(k):\n    def f(x): return k * x\n    return f\nf = make(2)",
    ),
    "a helper in a closure": (
        "def g(x): return x\ndef make(k):\n    def f(x): return k(x)\n    return f\nf = make(g)",
        "def g(x): return -x\ndef make(k):\n    def f(x): return k(x)\n    return f\nf = make(g)",
    ),
    "a jitted helper": (
        "import numba\n@numba.njit\ndef g(x): return x\ndef f(x): return g(x)",
        "import numba\n@numba.njit\ndef g(x): return -x\ndef f(x): return g(x)",
    ),
    "an enumeration": (
        "import enum\nclass Move(enum.IntEnum):\n    UP = 1\ndef f(x): return x == Move.UP",
        "import enum\nclass Move(enum.IntEnum):\n    UP = 2\ndef f(x): return x == Move.UP",
    ),
    "the value of an enumeration": (
        "import enum\nclass Speed(enum.Enum):\n    FAST = 1.5\ndef f(x): return x * Speed.FAST.value",
        "import enum\nclass Speed(enum.Enum):\n    FAST = 2.5\ndef f(x): return x * Speed.FAST.value",
    ),
    "the order of a named tuple's fields": (
        "from collections import namedtuple\nG = namedtuple('G', 'a b')(1, 2)\ndef f(x): return G.a * x",
        "from collections import namedtuple\nG = namedtuple('G', 'b a')(1, 2)\ndef f(x): return G.a * x",
    ),
    "a cast under a name of one's own": (
        "from velocirl import int8 as cell\ndef f(x): return cell(x)",
        "from velocirl import int16 as cell\ndef f(x): return cell(x)",
    ),
    "a function of a library": (
        "from math import sin as g\ndef f(x): return g(x)",
        "from math import cos as g\ndef f(x): return g(x)",
    ),
    "an argument's name that a call uses": (
        "def g(a, b): return a - b\ndef f(x): return g(a=x, b=1)",
        "def g(b, a): return b - a\ndef f(x): return g(a=x, b=1)",
    ),
}

SAME = {
    "moved to other lines": ("def f(x): return 2 * x", "\n\n\n\ndef f(x): return 2 * x"),
    "reformatted": ("def f(x): return 2 * x", "def f(x):\n    # twice\n    return (\n        2 * x\n    )"),
    "beside other definitions": (
        "G = 1\ndef f(x): return G * x",
        "import math\nG = 1\nH = 2\ndef other(x): return H\ndef f(x): return G * x",
    ),
    "with annotations": ("def f(x): return 2 * x", "def f(x: int) -> int: return 2 * x"),
    "with a constant under the same name and value": ("G = 3\ndef f(x): return G", "G = 1 + 2\ndef f(x): return G"),
}


def function_of(source, filename="<source>"):
    namespace = {"__name__": "somewhere"}
    exec(compile(source, filename, "exec"), namespace)
    return namespace["f"]


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_gives_another_fingerprint(change):
    before, after = CHANGES[change]
    assert fingerprint(function_of(before)) != fingerprint(function_of(after))


@pytest.mark.parametrize("source", [source for pair in CHANGES.values() for source in pair])
def test_the_same_source_gives_the_same_fingerprint(source):
    assert fingerprint(function_of(source)) == fingerprint(function_of(source, "<elsewhere>"))


@pytest.mark.parametrize("change", SAME)
def test_what_changes_no_result_gives_the_same_fingerprint(change):
    before, after = SAME[change]
    assert fingerprint(function_of(before)) == fingerprint(function_of(after))


def written(directory, name, **modules):
    """Write modules (`a_b` is module b of package a) and import the one that is named."""
    for module, source in modules.items():
        path = directory.joinpath(*module.split("_")).with_suffix(".py")
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(dedent(source))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(directory))
        before = set(sys.modules)
        module = importlib.import_module(name)
        for added in set(sys.modules) - before:
            del sys.modules[added]
    return module


@pytest.mark.parametrize(
    "source",
    [
        "from physics import gravity\ndef f(x): return gravity * x",
        "import physics\ndef f(x): return physics.gravity * x",
        "import physics as p\ndef f(x): return p.weight(x)",
        "import world.physics\ndef f(x): return world.physics.gravity * x",
        "import world.physics\ndef f(x): return world.physics.weight(x)",
        "def make():\n    import physics\n    def f(x): return physics.gravity * x\n    return f\nf = make()",
        "def make():\n    import physics\n    def f(x): return physics.weight(x)\n    return f\nf = make()",
    ],
)
def test_a_change_in_another_file_gives_another_fingerprint(tmp_path, source):
    prints = []
    for gravity in (9.8, 9.9):
        physics = f"gravity = {gravity}\ndef weight(x):\n    return gravity * x\n"
        directory = tmp_path / str(gravity)
        module = written(directory, "user", user=source, physics=physics, world_physics=physics)
        prints.append(fingerprint(module.f))
    assert prints[0] != prints[1]


def test_a_function_that_calls_itself_has_a_fingerprint():
    source = "def f(x): return 1 if x < {} else x * f(x - 1)"
    assert fingerprint(function_of(source.format(2))) == fingerprint(function_of(source.format(2)))
    assert fingerprint(function_of(source.format(2))) != fingerprint(function_of(source.format(3)))


def test_it_is_the_same_in_every_process(tmp_path, run_script):
    """Whatever the seed of Python's own hashes: sets and names in another order change nothing."""
    script = tmp_path / "script.py"
    script.write_text(
        "from velocirl.engine.compiler.caching.fingerprint import fingerprint\n"
        "from velocirl.environments.cartpole import environment\n"
        "print(fingerprint(environment.step, environment.reset, frozenset('abc')))\n"
    )
    assert len({run_script(script, PYTHONHASHSEED=seed) for seed in ("1", "2")}) == 1


@pytest.mark.parametrize(
    "translator",
    [cpu_translator("test", double=False), cpu_translator("test", double=True), learning_translator("test")],
    ids=["single", "double", "learning"],
)
def test_what_stands_in_compiled_code_for_what_a_function_names_is_part_of_every_fingerprint(translator):
    """An intrinsic, or our own sine for that of math, is not found from the function that names the other one."""
    stand_ins = [python_function(compiled) for compiled in translator.known.values()]
    assert stand_ins
    hashed = {(Path(fingerprints.__file__).parents[1] / f"{name}.py").resolve() for name in fingerprints._COMPILER}
    assert {Path(one.__code__.co_filename) for one in stand_ins} <= hashed


def test_every_part_of_the_compiler_is_part_of_every_fingerprint(monkeypatch):
    prints = {fingerprint(1.0)}
    for name in fingerprints._COMPILER:
        others = tuple(one for one in fingerprints._COMPILER if one != name)
        with monkeypatch.context() as patch:
            patch.setattr(fingerprints, "_COMPILER", others)
            patch.setattr(fingerprints, "_compiler", fingerprints._compiler.__wrapped__)
            prints.add(fingerprint(1.0))
    assert len(prints) == 1 + len(fingerprints._COMPILER)
