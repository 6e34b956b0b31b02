"""Controllers selected in place of a trained model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from velocirl.cli.named.environment_files import Chosen, choose
from velocirl.cli.parsing import Parser, one_of
from velocirl.controllers import MPPI, Constant, Random

CONTROLLERS = {"shipped": None, "random": Random, "constant": Constant, "mppi": MPPI}
FOR_MODELS = ("best", "latest", "env", "trust", "stochastic", "render", "video")


def add_controller(parser: Parser) -> None:
    """Add the option that selects a controller; the model argument then names an environment."""
    parser.add_argument(
        "--controller",
        type=one_of(list(CONTROLLERS)),
        metavar="|".join(CONTROLLERS),
        help="Let a controller act instead, in the environment that is named: the one that is shipped with it,"
        " random or constant actions, or model predictive control",
    )


def find_controller(given: Mapping[str, Any]) -> tuple[Any, Chosen]:
    """Return the requested controller and its environment."""
    name = given["controller"]
    if "model" not in given:
        raise ValueError(f"say in which environment: ENV --controller {name}")
    for option in FOR_MODELS:
        if option in given:
            raise ValueError(f"--{option} is for trained models: leave out --controller {name}, or that")
    chosen = choose(given["model"])
    make = CONTROLLERS[name]
    if make is Random:
        return Random(given.get("seed", 0)), chosen
    if make is not None:
        return make(), chosen
    shipped = getattr(chosen.environment, "controller", None)
    if shipped is None:
        raise ValueError(f"{chosen.id} ships no controller; there are --controller random, constant and mppi")
    return shipped, chosen
