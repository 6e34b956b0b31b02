"""What runs an algorithm knows none: no name of one is in the code of the rooms below them."""

import ast
from pathlib import Path

import pytest

import velocirl
from velocirl.algorithms import algorithm_modules

ROOMS = ("learners", "collect", "backends", "program", "vector", "engine", "buffers", "networks")
FILES = sorted(file for room in ROOMS for file in (Path(velocirl.__file__).parent / room).rglob("*.py"))


def words_of(source):
    """The names that code uses, and the words of its strings; docstrings and comments are for people."""
    tree, words = ast.parse(source), set()
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    described = {
        id(one.body[0].value) for one in ast.walk(tree) if isinstance(one, documented) and ast.get_docstring(one)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            words.add(node.id)
        elif isinstance(node, ast.Attribute):
            words.add(node.attr)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            words.add(node.name)
        elif isinstance(node, (ast.arg, ast.keyword)):
            words.add(node.arg)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            parts = [getattr(node, "module", None) or "", *(one.name for one in node.names)]
            words |= {word for part in parts for word in part.split(".")}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in described:
            words |= set("".join(one if one.isalnum() or one == "_" else " " for one in node.value).split())
    return words


def names():
    """Classes and the modules that hold them."""
    found = algorithm_modules()
    return {*found, *(module.rpartition(".")[2] for module in found.values()), "algorithms"}


def test_the_names_are_those_of_all_algorithms():
    assert {"PPO", "A2C", "DQN", "SAC", "TD3", "ppo", "sac", "QLearning"} <= names()


@pytest.mark.parametrize("planted", [
    "from velocirl.algorithms.online.ppo import loss_gradient", "import velocirl.algorithms", "kind = agent.PPO",
    'if name == "DQN":\n    pass', "def f(x: SAC): ...", "class TD3: ...",
    'raise ValueError(f"not for {name}: use A2C")',
])  # fmt: skip
def test_a_planted_name_is_found(planted):
    assert words_of(planted) & names()


def test_what_is_written_for_people_may_name_one():
    assert not words_of('"""As PPO does."""\n\ndef f():\n    """Not of DQN."""\n    return 1  # unlike SAC\n') & names()


@pytest.mark.parametrize("file", FILES, ids=lambda file: "/".join(file.parts[-2:]))
def test_no_algorithm_is_named(file):
    assert not words_of(file.read_text(encoding="utf-8")) & names()
