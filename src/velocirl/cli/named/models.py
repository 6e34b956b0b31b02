"""Models named on a command line: a run, a file, or an environment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from velocirl.algorithms import load_algorithms
from velocirl.cli.named.environment_files import Chosen, choose
from velocirl.cli.named.trust import add_trust
from velocirl.cli.parsing import Parser, whole_number
from velocirl.cli.resume import environment_of
from velocirl.engine import registry
from velocirl.runs.directory import RunNotFoundError
from velocirl.runs.finding import find_run
from velocirl.runs.memory_files import read_checkpoint
from velocirl.runs.models import model_of, say_shipped, shipped_model
from velocirl.runs.state_file import State
from velocirl.tabular.agent import TabularAgent
from velocirl.training.agent import Agent, load
from velocirl.training.persistence import algorithm_from
from velocirl.training.saved import RECORDED
from velocirl.vector.given import GIVEN

UNNAMED = "recorded"  # the environment of data that names none

load_algorithms()


def add_model(parser: Parser, *, best_first: bool = True) -> None:
    """Add the options that name a model; of a run, the default is the best one if `best_first`, else the latest."""
    best, latest = (" (default where there is one)", "") if best_first else ("", " (default)")
    parser.add_argument(
        "model",
        nargs="?",
        metavar="RUN|FILE",
        help="A run, a model file, or an environment whose model is shipped (default: the newest run)",
    )
    parser.add_argument("--best", action="store_true", help=f"Use the best model of the run{best}")
    parser.add_argument("--latest", action="store_true", help=f"Use the latest model of the run{latest}")
    parser.add_argument("--env", metavar="ENV", help="Use another environment with the same spaces")
    add_trust(parser)


def add_playing(parser: Parser) -> None:
    """Add the options for playing episodes."""
    parser.add_argument("--episodes", type=whole_number, metavar="N", help="Number of episodes (default: 1)")
    parser.add_argument("--seed", type=whole_number, metavar="N", help="Seed of the first episode (default: 0)")
    add_stochastic(parser)


def add_stochastic(parser: Parser) -> None:
    """Add the option to sample from the policy."""
    parser.add_argument(
        "--stochastic", action="store_true", help="Sample actions instead of taking the most probable ones"
    )


def find_model(given: Mapping[str, Any]) -> tuple[State, Chosen, str]:
    """Return a model's state, its environment and its origin in words."""
    if "best" in given and "latest" in given:
        raise ValueError("choose --best or --latest")
    name = given.get("model")
    if name is not None and (path := Path(name)).is_file():
        return _of_file(path, str(path), given)
    try:
        run = find_run(name)
    except RunNotFoundError:
        shipped = shipped_model(name)
        if shipped is None:
            raise
        return _of_file(shipped, say_shipped(shipped), given)
    _require_plant(run.description.environment, run.name, given)
    chosen = environment_of(run, given)
    state, source = model_of(run, best="best" in given or (False if "latest" in given else None), memory=False)
    return state, chosen, source


def find_agent_of_data(given: Mapping[str, Any]) -> tuple[Agent, str] | None:
    """Load the agent of a model trained on data of no known environment, with its name; None for other models."""
    name = given.get("model")
    if "env" in given:
        return None
    if name is not None and (path := Path(name)).is_file():
        found, environment = path, read_checkpoint(path, memory=False).document.get("environment")
    else:
        try:
            run = find_run(name)
        except RunNotFoundError:
            return None
        found, environment = run.path, run.description.environment
    if not str(environment).startswith(RECORDED):
        return None
    best = True if "best" in given else False if "latest" in given else None
    return load(found, memory=False, best=best), str(found)


def _of_file(path: Path, source: str, given: Mapping[str, Any]) -> tuple[State, Chosen, str]:
    state = read_checkpoint(path, memory=False)
    env, stated = given.get("env"), str(state.document.get("environment"))
    _require_plant(stated, source, given)
    if env is None and (stated.startswith(GIVEN) or (":" not in stated and stated not in registry.list_envs())):
        raise ValueError(
            f"{source} was trained in {stated}, an environment of a file or script: name the file that defines it,"
            " --env FILE.py"
        )
    chosen = choose(env) if env else choose(stated, named_by=str(path), trust="trust" in given)
    return state, chosen, source


def _require_plant(environment: str, source: str, given: Mapping[str, Any]) -> None:
    """Raise for a model trained on data without an environment, unless one is named."""
    if environment.startswith(RECORDED) and "env" not in given:
        plant = environment.removeprefix(RECORDED)
        data = "data" if plant == UNNAMED else f"data of {plant}"
        raise ValueError(
            f"{source} learned from {data}, and has no environment to act in: name one, --env ENV or --env FILE.py"
        )


def find_table(given: Mapping[str, Any]) -> tuple[TabularAgent, str]:
    """Load an agent with a table, with its origin; of a run, the latest one unless --best is given."""
    given = given if "best" in given else {**given, "latest": True}
    state, chosen, source = find_model(given)
    kind = algorithm_from(str(state.document.get("algorithm")))
    if not issubclass(kind, TabularAgent):
        raise ValueError(
            f"{source} has no table: what {kind.name} learns is a network; velocirl evaluate shows how it acts"
        )
    agent: Any = Agent.from_state(state, chosen.environment, source)
    return agent, source
