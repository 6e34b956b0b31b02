"""Every bug that tools/planted_bugs.py plants still finds its place, and its tests still exist."""

import ast
import importlib.util
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load():
    spec = importlib.util.spec_from_file_location("planted_bugs", ROOT / "tools" / "planted_bugs.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


planted_bugs = load()


@pytest.mark.parametrize("bug", planted_bugs.BUGS, ids=[bug.name for bug in planted_bugs.BUGS])
def test_a_bug_can_be_planted(bug):
    original = planted_bugs.source(bug).read_text()
    assert original.count(bug.text) == 1
    ast.parse(original.replace(bug.text, bug.bug))
    for test in bug.tests:
        file, _, name = test.partition("::")
        function = re.escape(name.partition("[")[0]) if name else r"test_\w+"  # any of a whole file
        assert re.search(rf"^def {function}\(", (ROOT / file).read_text(), re.MULTILINE)


def test_names_are_unique():
    assert len({bug.name for bug in planted_bugs.BUGS}) == len(planted_bugs.BUGS) >= 20
