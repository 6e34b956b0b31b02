"""Translation of Stable-Baselines3's names to settings.

Each algorithm's configuration has a table of these names, `words`. A name whose meaning differs there, or that has no
counterpart here, is rejected with the replacement to write; nothing is guessed.
"""

from __future__ import annotations

import warnings
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, get_args, get_type_hints

from gymnasium import Space

from velocirl.engine.counts import whole
from velocirl.engine.naming import nearest, plain_name
from velocirl.networks.activations import ACTIVATIONS
from velocirl.networks.initialisers import INITIALISERS
from velocirl.training.settings.images import is_image
from velocirl.training.settings.policies import (
    ACTION_SPACE,
    OBSERVATION_SPACE,
    POLICY,
    POLICY_KWARGS,
    Known,
    policy_kwargs_settings,
    policy_settings,
)
from velocirl.training.settings.scheduled import is_schedule, split_schedules, without_replaced

LEARN = {  # arguments of SB3's `learn`, and their names here; None: accepted and ignored here
    "total_timesteps": "total_steps",
    "callback": "callbacks",
    "progress_bar": "progress",
    "log_interval": None,
    "tb_log_name": None,
    "reset_num_timesteps": None,  # see `Agent.learn`
}


@dataclass(frozen=True)
class Word:
    """SB3 name: the settings that it maps to, and the translation of its values."""

    here: tuple[str, ...]  # empty if there is no counterpart
    translate: Callable[[Any, Known], Mapping[str, Any]]  # raises a ValueError with the replacement to write
    each_copy: bool = False  # whether it counts per environment, of which there are many here


def renamed(setting: str, *, each_copy: bool = False, **written: Any) -> Word:
    """Map a name to the same setting under another name; `written` maps values such as none and auto, in lower case."""

    def translate(value: Any, _: Known) -> Mapping[str, Any]:
        key = str(value).lower() if value is None or isinstance(value, str) else ""
        return {setting: written.get(key, value)}

    return Word((setting,), translate, each_copy)


def scaled(setting: str, factor: float) -> Word:
    """Map a name to a setting whose number is `factor` times as large."""

    def translate(value: Any, _: Known) -> Mapping[str, Any]:
        if is_schedule(value):
            raise ValueError(f"give the schedule to {setting}=, with values {factor:g} times as large")
        return {setting: factor * value if isinstance(value, Real) else value}

    return Word((setting,), translate)


def absent(*unasked: Any, instead: str) -> Word:
    """Map a name to nothing; values in `unasked`, which request nothing, are accepted."""

    def translate(value: Any, _: Known) -> Mapping[str, Any]:
        if not any(value is one or (type(value) is type(one) and value == one) for one in unasked):
            raise ValueError(instead)
        return {}

    return Word((), translate)


def policy_first(given: tuple[Any, ...], settings: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the constructor arguments with a policy before the environment moved to the settings."""
    if len(given) == 2 and str(given[1]).endswith("Policy"):
        raise TypeError(f"{given[1]!r} stands before the environment, as in Stable-Baselines3, or is left out")
    if len(given) == 2 or (given and "env" in settings):
        return given[1:], {"policy": given[0], **settings}
    return given, dict(settings)


def normalized(*settings: str) -> Word:
    """Map to settings that `normalize=True` turns on and False off. Images stay unchanged: uint8 has a known scale."""

    def translate(value: Any, known: Known) -> Mapping[str, Any]:
        if not isinstance(value, bool):
            raise ValueError(f"must be True or False, got {value!r}; the settings themselves are {', '.join(settings)}")
        images = is_image(known[OBSERVATION_SPACE])
        return {name: value and not (images and name.endswith("_observations")) for name in settings}

    return Word(settings, translate)


def _spelled(setting: str, names: Iterable[str]) -> Word:
    """Map to a setting that names one of several things, in any case: ReLU and torch's class of that name are relu."""

    def translate(value: Any, _: Known) -> Mapping[str, Any]:
        value = value.__name__ if isinstance(value, type) else value
        return {setting: plain_name(value, names) if isinstance(value, str) else value}

    return Word((setting,), translate)


def _device(value: Any, _: Known) -> Mapping[str, Any]:
    text = str(value) if type(value).__module__ == "torch" else value
    return {"device": text}


# Names common to all algorithms of Stable-Baselines3.
COMMON: Mapping[str, Word] = {
    "policy": Word((), policy_settings),
    "n_envs": renamed("num_envs"),
    "policy_kwargs": Word((), policy_kwargs_settings),
    "activation": _spelled("activation", ACTIVATIONS),
    "initialiser": _spelled("initialiser", INITIALISERS),
    "device": Word(("device",), _device),
    "verbose": Word((), lambda _, __: {}),
    "tensorboard_log": absent(
        None,
        instead="learn(run_dir=...) writes TensorBoard events into the directory of its run, as `velocirl train` does",
    ),
    "stats_window_size": absent(100, instead="returns and lengths are means over 100 episodes"),
    "use_sde": absent(False, instead="state-dependent exploration is not here; noise_correlation= of SAC and TD3 is"),
    "sde_sample_freq": absent(-1, instead="state-dependent exploration is not here"),
    "custom_objects": absent(None, {}, instead="no file holds objects; settings are replaced by their names"),
    "print_system_info": absent(False, instead="`velocirl doctor` says what is installed"),
    "force_reset": absent(True, instead="leave it out"),
    "_init_setup_model": absent(True, instead="leave it out"),
}


def own_settings(
    config: type[Any],
    given: Mapping[str, Any],
    preset: Mapping[str, Any],
    space: Space[Any],
    action_space: Space[Any] | None = None,
    *,
    counted: bool = False,
) -> dict[str, Any]:
    """Translate given settings to the names of this configuration; unknown names are kept.

    With `counted`, the environments themselves were given, and there is no warning about their number.
    """
    words: Mapping[str, Word] = getattr(config, "words", {})
    own = {name: value for name, value in given.items() if name not in words}
    beside = {name: given.get(name) for name in (POLICY, POLICY_KWARGS)}
    beside |= {OBSERVATION_SPACE: space, ACTION_SPACE: action_space}
    known = ChainMap(own, dict(preset), beside, vars(config()))
    for name, word in words.items():  # in the order of the table: some depend on earlier ones
        if name not in given:
            continue
        twice = [setting for setting in word.here if setting != name and setting in given]
        if twice:
            raise ValueError(f"{name} is {twice[0]} here: give one of them")
        try:
            meant = word.translate(given[name], known)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        except TypeError:
            raise ValueError(f"{name} cannot be {given[name]!r}") from None
        own.update(meant)
        copies = known.get("num_envs") or 1
        if word.each_copy and copies > 1 and not counted and not given.keys() & {"num_envs", "n_envs"}:
            settings = ", ".join(f"{setting}={value}" for setting, value in meant.items())
            warnings.warn(
                f"{name}={given[name]!r} counts for each of num_envs={copies} copies, where Stable-Baselines3 has one"
                f" unless told otherwise; here it is {settings}. Give num_envs= to say how many there should be",
                stacklevel=4,
            )
    return with_integers(config, split_schedules(config, own))


def with_integers(config: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings in which integral floats, such as buffer_size=1e6, are integers if the setting is one."""
    hints = get_type_hints(config) if any(whole(value) is not value for value in values.values()) else {}
    integral = {name for name, hint in hints.items() if int in (hint, *get_args(hint)) and float not in get_args(hint)}
    return {name: whole(value) if name in integral else value for name, value in values.items()}


def changed(config: type[Any], saved: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return saved settings with some replaced, under any of their names."""
    words: Mapping[str, Word] = getattr(config, "words", {})
    meant = dict(changes)
    for name in changes.keys() & words.keys():
        meant |= dict.fromkeys(words[name].here, changes[name])
    replaced = {setting for name in changes if name in words for setting in words[name].here}
    kept = without_replaced(config, saved, meant)
    return {**{name: value for name, value in kept.items() if name not in replaced}, **changes}


def other_names(config: type[Any]) -> dict[str, tuple[str, ...]]:
    """Return the SB3 names that are accepted, with the settings that they map to under another name."""
    words: Mapping[str, Word] = getattr(config, "words", {})
    return {name: word.here for name, word in words.items() if word.here and name not in word.here}


def own_arguments(given: Mapping[str, Any], words: Mapping[str, Any]) -> dict[str, Any]:
    """Translate the arguments of SB3's `learn` to this `learn`."""
    own = dict(given)
    for name, value in words.items():
        if name not in LEARN:
            raise TypeError(f"learn has no argument {name!r}{nearest(name, [*given, *LEARN])}")
        argument = LEARN[name]
        if argument is not None:
            if own[argument] not in (None, ()):
                raise TypeError(f"{name} is {argument} here: give one of them")
            own[argument] = value
    return own
