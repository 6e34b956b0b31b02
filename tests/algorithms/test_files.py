"""An algorithm is one file: short, found by itself, public, and with help for each of its settings."""

import dataclasses
import pydoc
from pathlib import Path

import pytest

import velocirl
from velocirl.algorithms import algorithm_modules, load_algorithms
from velocirl.training.persistence import ALGORITHMS

load_algorithms()
ROOM = Path(velocirl.__file__).parent / "algorithms"
FILES = sorted(ROOM.glob("*/[!_]*.py"))
every_algorithm = pytest.mark.parametrize("name", algorithm_modules())


@pytest.mark.parametrize("file", sorted((ROOM / "online").glob("*.py")), ids=lambda file: file.stem)
def test_a_file_is_short(file):
    assert len(file.read_text(encoding="utf-8").splitlines()) <= 400


def test_every_file_is_found():
    found = {module.removeprefix("velocirl.algorithms.") for module in algorithm_modules().values()}
    assert found == {f"{file.parent.name}.{file.stem}" for file in FILES}
    assert {"online.ppo", "online.discrete_sac", "online.qr_dqn", "tabular.q_learning"} <= found


def test_what_is_found_is_every_algorithm_there_is():
    own = {kind.__name__: kind.__module__ for kind in ALGORITHMS.values() if kind.__module__.startswith("velocirl.")}
    assert algorithm_modules() == own


@every_algorithm
def test_it_is_public(name):
    assert name in velocirl.__all__
    assert name in dir(velocirl)
    assert getattr(velocirl, name) is ALGORITHMS[getattr(velocirl, name).name]


def settings_listed(text):
    """The first words of lines, without the bar that help() has before them."""
    words = (line.replace("|", " ").split() for line in text.splitlines())
    return {first.rstrip(":") for first, *_ in filter(None, words) if first.endswith(":")}


@every_algorithm
@pytest.mark.parametrize("text_of", [lambda kind: kind.__doc__, pydoc.render_doc], ids=["doc", "help"])
def test_its_help_lists_every_setting(name, text_of):
    kind = getattr(velocirl, name)
    assert {field.name for field in dataclasses.fields(kind.Config)} <= settings_listed(text_of(kind))
