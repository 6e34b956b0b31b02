"""Settings of a training run: from the command line, a TOML file and the environment's preset, in that order."""

from __future__ import annotations

import argparse
import dataclasses
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from velocirl.algorithms import load_algorithms
from velocirl.buffers.data.dataset import Dataset
from velocirl.cli.named.trust import add_trust
from velocirl.cli.parsing import Parser, number, one_of, whole_number
from velocirl.cli.setting_groups import LEARNING, grouped
from velocirl.engine.counts import whole
from velocirl.engine.disk.files import read_plain
from velocirl.engine.naming import nearest
from velocirl.optim.schedules import schedule_from
from velocirl.runs.placement import COMMAND, NEXT, Exist, require_exist
from velocirl.training.agent import Agent
from velocirl.training.offline import OfflineAgent
from velocirl.training.persistence import ALGORITHMS, algorithm_from
from velocirl.training.settings.documenting import default_of, descriptions, shown
from velocirl.training.settings.scheduled import scheduled_of, without_replaced
from velocirl.training.settings.words import other_names

load_algorithms()

DEFAULT_ALGORITHM = "ppo"
# Keys of the file in addition to the algorithm's settings, and their types.
PLAN: dict[str, type] = {
    "environment": str,
    "algorithm": str,
    "total_steps": int,
    "checkpoint_every": int,
    "evaluate_every": int,
    "target_return": float,
}
SCHEDULED = "; or give a schedule: linear, cosine, 0:3e-4,1:0"
# Options of the command line in addition to these.
TRUST = "trust"
OPTIONS: dict[str, dict[str, Any]] = {
    "seeds": {
        "type": whole_number,
        "metavar": "N",
        "help": "Train N agents with consecutive seeds from --seed on, and compare them",
    },
    "run_dir": {"type": Path, "metavar": "DIR", "help": "Keep the run in this directory (default: a new one in runs/)"},
    "exist": {
        "type": one_of(list(get_args(Exist))),
        "metavar": "|".join(get_args(Exist)),
        "help": "Where --run-dir is a run already: take the next free name, replace it, continue it, or refuse"
        f" (default: {NEXT})",
    },
    "evaluate_every": {
        "type": whole_number,
        "metavar": "STEPS",
        "help": "Evaluate every so many steps (default: never)",
    },
    "target_return": {
        "type": number,
        "metavar": "RETURN",
        "help": "Stop when the mean return of 100 episodes reaches this (default: never)",
    },
    "checkpoint_every": {
        "type": whole_number,
        "metavar": "STEPS",
        "help": "Save a checkpoint every so many steps (default: ten times in a run)",
    },
    "json": {"action": "store_true", "help": "Print lines of JSON"},
    "quiet": {"action": "store_true", "help": "Print nothing"},
}


@dataclass(frozen=True)
class Request:
    """A training request; what was not given is None, or missing in `values`."""

    environment: str
    algorithm: type[Agent]
    values: dict[str, Any]  # settings of the algorithm
    total_steps: int | None
    checkpoint_every: int | None
    evaluate_every: int | None
    target_return: float | None
    run_dir: Path | None
    seeds: int | None  # number of agents to train, each with its own seed
    json: bool
    quiet: bool
    named_by: str | None  # the file that named the environment, if the command line did not
    trust: bool  # whether unknown code that it names may run
    exist: Exist = NEXT
    given: Any = None  # the environment, if it was given as an object


def read_request(arguments: Sequence[str]) -> Request:
    """Read a request from the command line and the file that it names; a mistake is a ValueError of one line."""
    first = Parser("train", add_help=False)
    first.add_argument("--algorithm", default=None)
    first.add_argument("--config", type=Path, default=None)
    early, _ = first.parse_known_args(arguments)
    file = {} if early.config is None else _read_toml(early.config)
    algorithm = algorithm_from(early.algorithm or file.get("algorithm", DEFAULT_ALGORITHM))
    if early.config is not None:
        _check_keys(early.config, file, algorithm)

    given = _parser(algorithm).parse(arguments)
    said = {**without_replaced(algorithm.Config, file, given), **given}
    environment = said.get("environment") or _environment_of(said.get("data"))
    if environment is None:
        raise ValueError("say which environment is to be learnt: velocirl train CartPole-v1 (velocirl envs lists them)")
    for name in ("total_steps", "checkpoint_every", "evaluate_every", "seeds"):
        if said.get(name) is None:
            continue
        said[name] = whole(said[name])
        if said[name] < 1:
            raise ValueError(f"{name} must be at least 1, got {said[name]}")
    if file.get("buffer_file") is not None and not given.keys() & {"buffer_file", "trust"}:
        path = file["buffer_file"]
        raise ValueError(
            f"{early.config} wants the memory in {path}: if it may be made there, add --buffer-file {path}"
        )
    exist = given.get("exist", NEXT)
    require_exist(exist, given.get("run_dir"), "--run-dir", COMMAND)
    names = {field.name for field in dataclasses.fields(algorithm.Config)}
    return Request(
        environment=environment,
        algorithm=algorithm,
        values={name: value for name, value in said.items() if name in names},
        total_steps=said.get("total_steps"),
        checkpoint_every=said.get("checkpoint_every"),
        evaluate_every=said.get("evaluate_every"),
        target_return=said.get("target_return"),
        run_dir=given.get("run_dir"),
        seeds=given.get("seeds"),
        json="json" in given,
        quiet="quiet" in given,
        named_by=None if given.get("environment") else str(early.config),
        trust="trust" in given,
        exist=exist,
    )


@cache
def _parser(algorithm: type[Agent]) -> Parser:
    names, offline = ", ".join(sorted(ALGORITHMS)), issubclass(algorithm, OfflineAgent)
    parser = Parser(
        "train ENV",
        "Train an agent. Options override the settings in the --config file, which override the environment's preset,"
        " which overrides the defaults shown here. PPO and DQN have others for gym: environments: a run's config.toml"
        " has what it was trained with.",
    )
    parser.add_argument(
        "environment",
        nargs="?",
        metavar="ENV",
        help="Environment: an id (see velocirl envs), gym:ID, or a Python file: my_env.py[:ID]",
    )
    parser.add_argument("--algorithm", metavar="NAME", help=f"Algorithm: {names} (default: {DEFAULT_ALGORITHM})")
    parser.add_argument(
        "--total-steps",
        type=whole_number,
        metavar="N",
        help=f"Number of {'gradient' if offline else 'environment'} {algorithm.counted} (default: the preset's, or 1M)",
    )
    parser.add_argument(
        "--config", type=Path, metavar="TOML", help="Read settings from this file, such as a run's config.toml"
    )
    for group, names in grouped(algorithm.Config, (*OPTIONS, TRUST)).items():
        title = f"{group}, by {algorithm.name}" if group == LEARNING else group
        options = parser.add_argument_group(title)
        for name in names:
            if name == TRUST:
                add_trust(options)
            elif name in OPTIONS:
                counted = {"help": OPTIONS[name]["help"].replace("steps", algorithm.counted)}
                options.add_argument(_option(name), **OPTIONS[name] | counted)
            else:
                add_settings(options, algorithm.Config, [name])
    parser.elsewhere = {
        _option(there): " and ".join(map(_option, here)) for there, here in _other_names(algorithm).items()
    }
    return parser


def _environment_of(data: str | None) -> str | None:
    """Return the environment that a dataset was recorded in, if one is given."""
    if data is None:
        return None
    environment = Dataset.load(data, check=False).info.environment
    if environment is None:
        raise ValueError(
            f"{data} names no environment: give one with the same spaces, velocirl train ENV --data {data}"
        )
    return environment


def _other_names(algorithm: type[Agent]) -> dict[str, tuple[str, ...]]:
    """Return the names that Stable-Baselines3 uses for settings or parts of the plan."""
    return {**other_names(algorithm.Config), "total_timesteps": ("total_steps",)}


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def add_settings(
    group: argparse._ArgumentGroup | Parser, config: type[Any], names: Sequence[str] | None = None
) -> None:
    """Add an option for each field of a dataclass, or for those in `names`; the field's type determines its values."""
    types, texts = get_type_hints(config, include_extras=True), descriptions(config)
    fields = {field.name: field for field in dataclasses.fields(config)}
    for field in fields.values() if names is None else map(fields.__getitem__, names):
        what, default = texts.get(field.name, field.name.replace("_", " ")), default_of(field)
        what = what if what.endswith("...") else what.removesuffix(".")
        text = (what if default is None else f"{what} (default: {shown(default)})").replace("%", "%%")
        flag = _option(field.name)
        if field.name in scheduled_of(config):
            group.add_argument(flag, help=text, type=_number_or_schedule, metavar="X|SCHEDULE")
        elif types[field.name] in (bool, bool | None):
            group.add_argument(flag, action=argparse.BooleanOptionalAction, help=text)
        else:
            group.add_argument(flag, help=text, **_accepts(types[field.name]))


def _accepts(kind: Any) -> dict[str, Any]:
    """Return argparse's keyword arguments for a value of a type."""
    if get_origin(kind) is Annotated:
        return {**_accepts(get_args(kind)[0]), "metavar": get_args(kind)[1]}
    if get_origin(kind) in (Union, UnionType):
        kinds = [one for one in get_args(kind) if one is not NoneType]
        # A type with a short form and a table is given by the short form here; the table is for files.
        short = [one for one in kinds if get_origin(one) is not dict] or kinds
        if set(short) == {str, float}:
            return {"type": _number_or_text, "metavar": "X|TEXT"}
        kind = short[0] if len(short) == 1 else str
    if get_origin(kind) is Literal:
        return {"type": one_of([str(one) for one in get_args(kind)]), "metavar": "|".join(get_args(kind))}
    if get_origin(kind) is tuple:
        return {**_accepts(get_args(kind)[0]), "nargs": "+"}
    if get_origin(kind) is dict:
        value = _accepts(get_args(kind)[1])
        pair = {"type": _pair_of(value["type"]), "metavar": f"NAME={value['metavar']}"}
        return {**pair, "nargs": "+", "action": _Pairs}
    readers: dict[Any, tuple[Callable[[str], Any], str]] = {
        int: (whole_number, "N"),
        float: (number, "X"),
        Any: (_any_value, "VALUE"),
    }
    reader, metavar = readers.get(kind, (str, "TEXT"))
    return {"type": reader, "metavar": metavar}


def _any_value(text: str) -> Any:
    """Parse a value as JSON, a number as in Python, or else text: 9.8, false, [5, 15], uniform(5, 15)."""
    for read in (msgspec.json.decode, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def _number_or_text(text: str) -> float | str:
    try:
        return number(text)
    except argparse.ArgumentTypeError:
        return text


def _number_or_schedule(text: str) -> float | str:
    try:
        return number(text)
    except argparse.ArgumentTypeError as error:
        try:
            return str(schedule_from(text))
        except ValueError as cause:
            raise argparse.ArgumentTypeError(str(cause if ":" in text else error) + SCHEDULED) from None


def _pair_of(read: Callable[[str], Any]) -> Callable[[str], tuple[str, Any]]:
    """Return a parser of name=value."""

    def read_pair(text: str) -> tuple[str, Any]:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise argparse.ArgumentTypeError(f"must be name=value, got {text!r}")
        try:
            return name, read(value)
        except argparse.ArgumentTypeError as error:
            raise argparse.ArgumentTypeError(f"{name} {error}") from None

    return read_pair


class _Pairs(argparse.Action):
    """Action that collects name=value pairs in a dict."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:  # noqa: ARG002
        names = [name for name, _ in values]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise argparse.ArgumentError(self, f"{twice} is given twice")
        setattr(namespace, self.dest, dict(values))


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_plain(path).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is not TOML: {error}") from None


def _check_keys(path: Path, values: Mapping[str, Any], algorithm: type[Agent]) -> None:
    """Raise for unknown keys, and for values of the wrong type where the key is not a setting of the algorithm."""
    known = [*PLAN, *(field.name for field in dataclasses.fields(algorithm.Config))]
    for name, value in values.items():
        if name not in known:
            here = _other_names(algorithm).get(name)
            hint = nearest(name, known) if here is None else f": here there is {' and '.join(here)}"
            raise ValueError(f"{path}: there is no setting {name!r}{hint}")
        wanted = PLAN.get(name)
        value = whole(value) if wanted is int else value
        if wanted is not None and (isinstance(value, bool) or not isinstance(value, (wanted, int))):
            raise ValueError(f"{path}: {name} must be of type {wanted.__name__}, got {value!r}")
        if wanted is str and not isinstance(value, str):
            raise ValueError(f"{path}: {name} must be a string, got {value!r}")
