"""Construction of preprocessed Gymnasium environments: arguments, wrappers, and the choice of ALE's vector."""

from __future__ import annotations

from functools import partial
from typing import Any

from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode

from velocirl.engine.environment import Environment
from velocirl.vector.host.copies import Preparing, Source
from velocirl.vector.preprocessing.ale import ALEVectorEnv, has_vector, is_game
from velocirl.vector.preprocessing.switches import Preprocess
from velocirl.vector.preprocessing.wrappers import Atari, preprocessed

LIMIT = "max_episode_steps"
# Options other than the environment's arguments, with the values that ALE's vector environment supports.
IN_ALE = {"autoreset_mode": (AutoresetMode.SAME_STEP,), "render_mode": (None,), "infos": (False,)}


def preparation(source: Source, arguments: dict[str, Any], switches: Atari) -> tuple[dict[str, Any], Preparing]:
    """Return the arguments with which to make an environment, and its wrapper.

    An ALE game without an explicit frame skip is made with none, and renders no colors that nobody sees. A given limit
    counts steps of the agent, not frames.
    """
    if not isinstance(source, EnvSpec):
        return arguments, partial(preprocessed, switches=switches)
    arguments, limit = dict(arguments), arguments.get(LIMIT)
    if is_game(source):
        arguments = {"frameskip": 1, **({"obs_type": "grayscale"} if switches.gray else {}), **arguments}
    if limit is not None:
        arguments[LIMIT] = -1
    return arguments, partial(preprocessed, switches=switches, limit=None if limit == -1 else limit)


def steps_in_ale(source: Source, options: dict[str, Any], switches: Atari) -> bool:
    """Return whether ALE's own vector environment can step with these options; it requires an image size."""
    arguments = {
        name: value for name, value in options.items() if name not in {*IN_ALE, "seed", "copy", "threads", LIMIT}
    }
    alike = all(options.get(name, values[0]) in values for name, values in IN_ALE.items())
    return alike and switches.size > 0 and has_vector(source, arguments)


def make_in_ale(source: Any, num_envs: int, options: dict[str, Any], switches: Atari) -> ALEVectorEnv:
    """Make a fleet in ALE's own vector environment."""
    options = {name: value for name, value in options.items() if name not in IN_ALE}
    limit = options.pop(LIMIT, None)
    return ALEVectorEnv(source, num_envs, switches, limit=None if limit == -1 else limit, **options)


def refuse_preprocessing(environment: Environment, preprocess: Preprocess | None) -> None:
    """Raise ValueError if `preprocess` is set for a compiled environment, which writes its own observations."""
    if preprocess is not None:
        raise ValueError(
            f"{environment.id} is compiled and has no preprocess=, which is for gym: environments that show pictures:"
            " skip= and stack= are for it"
        )
