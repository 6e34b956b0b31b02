"""`velocirl evaluate ENV --controller ...`: controllers in the place of a trained model."""

import json
from pathlib import Path

import pytest
from cart import cart

import velocirl
from velocirl.cli.main import main
from velocirl.controllers import Constant, Random

CART = Path(__file__).parents[1] / "cart.py"


@pytest.mark.parametrize(
    ("name", "controller"), [("shipped", cart.controller), ("random", Random(3)), ("constant", Constant())]
)
def test_the_figures_are_those_of_the_controller(name, controller, capsys):
    main(["evaluate", str(CART), "--controller", name, "--episodes", "3", "--seed", "3", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["returns"] == velocirl.evaluate(controller, cart, episodes=3, seed=3).returns.tolist()
    assert (found["model"], found["environment"]) == (name, "Cart-v0")


def test_in_words(capsys):
    main(["evaluate", str(CART), "--controller", "constant", "--episodes", "2"])
    said = capsys.readouterr().out
    assert said.startswith("constant: Cart-v0\nreturn -50.00")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--controller", "random"], "say in which environment"),
        (["CartPole-v1", "--controller", "shipped"], "CartPole-v1 ships no controller"),
        (["CartPole-v1", "--controller", "pdi"], "cannot be 'pdi'; there are shipped, random, constant, mppi"),
        (["CartPole-v1", "--controller", "random", "--best"], "--best is for trained models"),
    ],
)
def test_what_is_wrong_is_said(arguments, says, refused):
    assert says in refused("evaluate", *arguments)
