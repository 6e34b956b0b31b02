"""What a Gymnasium environment is made with so that it can be preprocessed, and by what its copies step."""

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
# Options of copies, beside the arguments of their environment, and with what values ALE's vector environment has them.
IN_ALE = {"autoreset_mode": (AutoresetMode.SAME_STEP,), "render_mode": (None,), "infos": (False,)}


def preparation(source: Source, arguments: dict[str, Any], switches: Atari) -> tuple[dict[str, Any], Preparing]:
    """With which arguments an environment is made, and what wraps it then.

    A game of ALE's that was told nothing of skipping skips nothing, and draws no colours that nobody sees. A limit that
    somebody gave is one of the agent's steps, and not of frames.
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
    """Whether copies with these options step in ALE's own vector environment, which gives all pictures a size."""
    arguments = {
        name: value for name, value in options.items() if name not in {*IN_ALE, "seed", "copy", "threads", LIMIT}
    }
    alike = all(options.get(name, values[0]) in values for name, values in IN_ALE.items())
    return alike and switches.size > 0 and has_vector(source, arguments)


def make_in_ale(source: Any, num_envs: int, options: dict[str, Any], switches: Atari) -> ALEVectorEnv:
    """Copies in ALE's own vector environment."""
    options = {name: value for name, value in options.items() if name not in IN_ALE}
    limit = options.pop(LIMIT, None)
    return ALEVectorEnv(source, num_envs, switches, limit=None if limit == -1 else limit, **options)


def refuse_preprocessing(environment: Environment, preprocess: Preprocess | None) -> None:
    """Preprocessing is of no use to a compiled environment, which writes what agents see."""
    if preprocess is not None:
        raise ValueError(
            f"{environment.id} is compiled and has no preprocess=, which is for gym: environments that show pictures:"
            " skip= and stack= are for it"
        )
