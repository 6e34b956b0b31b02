"""Settings that are tables: as name=value on a command line, as inline tables in a file."""

import re
import tomllib
from dataclasses import dataclass, field, fields
from itertools import pairwise
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from velocirl.cli.parsing import Parser
from velocirl.cli.setting_groups import grouped
from velocirl.cli.settings import add_settings, read_request
from velocirl.runs.config_file import as_toml
from velocirl.training.offline import OfflineAgent
from velocirl.training.persistence import ALGORITHMS
from velocirl.training.settings.config import as_plain, build_config


@dataclass(frozen=True)
class Tables:
    params: dict[str, float] | None = None
    """Fields of the environment."""
    given: dict[str, Any] | None = None
    """Anything."""
    counts: dict[str, int] = field(default_factory=lambda: {"a": 1, "b": 2})
    network: str | dict[str, str] | None = None
    """A name, or a name for each part."""
    hidden: tuple[int, ...] | None = (4,)
    norm: bool | None = None


def parse(*arguments):
    parser = Parser("train ENV")
    parser.add_argument("environment", nargs="?")
    add_settings(parser, Tables)
    return parser.parse(arguments)


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        (["E-v0", "--params", "gravity=9.5", "length=1e-3"], {"params": {"gravity": 9.5, "length": 0.001}}),
        (["E-v0", "--counts", "a=2k", "--network", "torch"], {"counts": {"a": 2000}, "network": "torch"}),
        (["E-v0", "--network", "mlp(64, act=relu)"], {"network": "mlp(64, act=relu)"}),
        (["E-v0", "--hidden", "8", "4"], {"hidden": [8, 4]}),
        (["E-v0", "--norm"], {"norm": True}),
        (["E-v0", "--no-norm"], {"norm": False}),
        (
            ["E-v0", "--given", "a=uniform(5,15)", "b=false", "c=8x8", "d=[1, 2.5]", "e=9.8", "f=1_000", "g=", "h=3"],
            {
                "given": {
                    "a": "uniform(5,15)",
                    "b": False,
                    "c": "8x8",
                    "d": [1, 2.5],
                    "e": 9.8,
                    "f": 1000.0,
                    "g": "",
                    "h": 3,
                }
            },
        ),
        (["E-v0"], {}),
    ],
)
def test_tables_are_pairs_on_a_command_line_and_a_short_form_is_text(arguments, values):
    found = parse(*arguments)
    assert found == {"environment": "E-v0", **values}
    config = build_config(Tables, {name: value for name, value in found.items() if name != "environment"})
    for name, value in values.items():
        assert getattr(config, name) == (tuple(value) if isinstance(value, list) else value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--params", "gravity"], "--params: must be name=value, got 'gravity'"),
        (["--params", "=3"], "--params: must be name=value, got '=3'"),
        (["--params", "gravity=low"], "--params: gravity must be a number, got 'low'"),
        (["--counts", "a=0.5"], "--counts: a must be a whole number, got '0.5'"),
        (["--params", "a=1", "a=2"], "--params: a is given twice"),
    ],
)
def test_mistakes_in_pairs_are_named(arguments, message):
    with pytest.raises(ValueError, match="^" + message):
        parse(*arguments)


def test_help_shows_pairs_and_their_defaults():
    parser = Parser("train ENV")
    add_settings(parser, Tables)
    text = " ".join(parser.format_help().split())
    assert "--params NAME=X [NAME=X ...] Fields of the environment --given" in text
    assert "--given NAME=VALUE [NAME=VALUE ...] Anything --counts" in text
    assert "--counts NAME=N [NAME=N ...] counts (default: a=1 b=2) --network" in text
    assert "--network TEXT A name, or a name for each part --hidden" in text


@pytest.mark.parametrize(
    "values",
    [
        {"params": {"gravity": 9.5, "two words": -1.0}, "network": {"policy": 'a "quoted" = one', "value": ""}},
        {"params": {}, "counts": {}, "network": "torch"},
        {"counts": {"a.b": 3}},
    ],
)
def test_tables_survive_toml_and_come_back_as_the_same_configuration(values):
    config = build_config(Tables, values)
    read = tomllib.loads(as_toml(as_plain(config)))
    assert {name: read[name] for name in values} == values
    assert build_config(Tables, read) == config


def test_what_is_none_in_a_table_is_left_out():
    assert tomllib.loads(as_toml({"table": {"nothing": None, "one": [1, {"deep": True}]}})) == {
        "table": {"one": [1, {"deep": True}]}
    }


# What a person may write for a setting of each kind, and what it is then; a share of 1/2 suits every number.
SAID = {int: (["3"], 3), float: (["0.5"], 0.5), str: (["text"], "text")}
# Texts that are not any text.
WORDS = {
    "learning_rate_schedule": "cosine(end=0.1)", "optimiser": "sgd(momentum=0.9)", "network": "mlp(8)",
    "critic": "mlp(8)", "activation": "relu", "initialiser": "orthogonal", "temperature": "auto",
    "exploration_schedule": "two_phase(0.5)", "preprocess": "atari(stack=3)", "device": "cuda:1",
}  # fmt: skip


def said(name, kind):
    """An option, as it is written, and the value that it has."""
    flag = f"--{name.replace('_', '-')}"
    if name == "dual_clip":
        return [flag, "2"], 2.0
    if name in WORDS and kind is not float:  # what SAC calls a temperature may be a word, that of FOCOPS is a number
        return [flag, WORDS[name]], WORDS[name]
    kinds = [one for one in get_args(kind) if one is not NoneType] if get_origin(kind) is UnionType else [kind]
    kind = kinds[0]
    if kind is bool:
        return [f"--no-{name.replace('_', '-')}"], False
    if get_origin(kind) is Literal:
        return [flag, get_args(kind)[-1]], get_args(kind)[-1]
    if get_origin(kind) is tuple:
        return [flag, "8", "4"], [8, 4]
    if get_origin(kind) is dict:
        return [flag, "gravity=9.5"], {"gravity": 9.5}
    words, value = SAID[kind]
    return [flag, *words], value


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_every_setting_of_every_algorithm_is_an_option_and_survives_a_file(algorithm, tmp_path):
    kind = ALGORITHMS[algorithm].Config
    hints = get_type_hints(kind)
    for one in fields(kind):
        words, value = said(one.name, hints[one.name])
        if one.name == "schedules":
            *_, last = kind.scheduled
            if last == "learning_rate":  # whose schedule is a setting of its own
                continue
            words, value = ["--schedules", f"{last}=linear(end=0.5)"], {last: "linear(end=0.5)"}
        request = read_request(["E-v0", "--algorithm", algorithm, *words])
        assert request.values == {one.name: value}, one.name
        more = {"num_envs": 3} if one.name in ("workers", "buffer_size") else {}
        if "pin" in hints and one.name in ("workers", "pin"):  # of tables
            more["runtime"] = "threads"
        config = build_config(kind, {**more, **request.values})
        plain = as_plain(config)
        assert plain[one.name] == (tuple(value) if isinstance(value, list) else value)
        file = tmp_path / "config.toml"
        file.write_text(f'environment = "E-v0"\nalgorithm = "{algorithm}"\n{as_toml(plain)}')
        assert build_config(kind, read_request(["--config", str(file), "--trust"]).values) == config


def test_counts_in_a_file_may_be_floats_without_a_fraction(tmp_path):
    file = tmp_path / "config.toml"
    file.write_text('environment = "E-v0"\ntotal_steps = 1e6\ncheckpoint_every = 2e5\nevaluate_every = 1e5\n')
    request = read_request(["--config", str(file)])
    counts = (request.total_steps, request.checkpoint_every, request.evaluate_every)
    assert counts == (1_000_000, 200_000, 100_000)
    assert all(type(count) is int for count in counts)
    file.write_text('environment = "E-v0"\ntotal_steps = 1.5\n')
    with pytest.raises(ValueError, match=r"total_steps must be of type int, got 1\.5"):
        read_request(["--config", str(file)])


def test_a_number_or_a_word():
    for words, value in ((["0.25"], 0.25), (["auto"], "auto"), (["1e-3"], 0.001)):
        request = read_request(["E-v0", "--algorithm", "sac", "--temperature", *words])
        assert build_config(request.algorithm.Config, request.values).temperature == value


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_help_is_in_groups_with_what_is_used_most_first(name, capsys):
    with pytest.raises(SystemExit):
        read_request(["--algorithm", name, "--help"])
    shown = capsys.readouterr().out
    titles = re.findall(r"^(\w[\w ,-]*):$", shown, re.MULTILINE)
    kind = "network" if "hidden" in {one.name for one in fields(ALGORITHMS[name].Config)} else "table"
    assert titles[2:] == ["environment", kind, f"learning, by {name}", "running"]
    options = {title: re.findall(r"^  (--[\w-]+)", part, re.MULTILINE) for title, part in by_title(shown, titles)}
    assert options["options"] == ["--algorithm", "--total-steps", "--config"]
    assert options["environment"][0] == ("--data" if issubclass(ALGORITHMS[name], OfflineAgent) else "--num-envs")
    assert options[f"learning, by {name}"][:2] == ["--learning-rate", "--learning-rate-schedule"]
    assert options["running"][:2] == ["--seed", "--seeds"]
    everything = [option for some in options.values() for option in some]
    assert len(everything) == len(set(everything))


def by_title(shown, titles):
    places = [shown.index(f"{title}:\n") for title in titles]
    return zip(titles, (shown[first:last] for first, last in pairwise([*places, len(shown)])), strict=True)


def test_a_setting_that_no_group_names_is_one_of_learning():
    assert grouped(Tables) == {
        "environment": ["params"],
        "network": ["hidden", "network"],
        "learning": ["given", "counts", "norm"],
    }


@pytest.mark.parametrize(
    ("text", "value"), [("3e-4", 3e-4), ("cosine", "cosine"), ("0:3e-4,1:0", "0.0:0.0003, 1.0:0.0")]
)
def test_a_number_or_a_schedule(text, value):
    assert read_request(["CartPole-v1", "--learning-rate", text]).values == {"learning_rate": value}


def test_what_is_neither_a_number_nor_a_schedule():
    with pytest.raises(ValueError, match="--learning-rate: must be a number, got 'fast'; or give a schedule: linear"):
        read_request(["CartPole-v1", "--learning-rate", "fast"])
    with pytest.raises(ValueError, match="cannot read '1' as a point of a schedule"):
        read_request(["CartPole-v1", "--learning-rate", "0:3e-4,1"])


def test_a_schedule_of_the_command_line_replaces_the_file_s(tmp_path):
    """Also where the file is the configuration of a run, which has both."""
    config = tmp_path / "run.toml"
    config.write_text('learning_rate = 1e-3\nlearning_rate_schedule = "0:1e-3,1:0"\n')
    arguments = ["CartPole-v1", "--config", str(config), "--learning-rate"]
    assert read_request([*arguments, "linear"]).values == {"learning_rate": "linear"}
    expected = {"learning_rate": 0.1, "learning_rate_schedule": "constant"}
    assert read_request([*arguments, "0.1"]).values == expected
    config.write_text("learning_rate = [[0.0, 1e-3], [1.0, 0.0]]\n")
    assert read_request(arguments[:-1]).values == {"learning_rate": [[0.0, 1e-3], [1.0, 0.0]]}
