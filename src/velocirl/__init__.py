"""velocirl: write scalars, run fleets. Reinforcement learning from plain Python functions, compiled."""

import importlib
from typing import TYPE_CHECKING, Any

from gymnasium.spaces import Box, Discrete, MultiDiscrete

from velocirl.engine import random
from velocirl.engine.environment import Environment
from velocirl.engine.errors import DefinitionError
from velocirl.engine.records import bool_, float32, float64, int8, int16, int32, int64, record, uint8
from velocirl.engine.registry import list_envs, load_built_in
from velocirl.vector.checking import check_env
from velocirl.vector.making import make, make_vec

if TYPE_CHECKING:
    from velocirl.algorithms.online.dqn import DQN
    from velocirl.algorithms.online.ppo import A2C, PPO
    from velocirl.algorithms.online.sac import SAC
    from velocirl.algorithms.online.td3 import TD3
    from velocirl.algorithms.tabular.double_q_learning import DoubleQLearning
    from velocirl.algorithms.tabular.expected_sarsa import ExpectedSARSA
    from velocirl.algorithms.tabular.q_lambda import QLambda
    from velocirl.algorithms.tabular.q_learning import QLearning
    from velocirl.algorithms.tabular.sarsa import SARSA
    from velocirl.learners.faults import NumericalError
    from velocirl.runs.callback import Callback
    from velocirl.tabular.planning.models import TabularModel
    from velocirl.tabular.planning.policy_iteration import policy_iteration
    from velocirl.tabular.planning.value_iteration import value_iteration
    from velocirl.training.callbacks import Checkpoint, EarlyStopping, Evaluate, StopOnReward
    from velocirl.training.evaluation import Evaluation, evaluate

__version__ = "0.1.0.dev0"

# What is for training is imported when it is first used: who only steps environments need not wait for it.
_FOR_TRAINING = {
    "velocirl.algorithms.online.dqn": ("DQN",),
    "velocirl.algorithms.online.ppo": ("A2C", "PPO"),
    "velocirl.algorithms.online.sac": ("SAC",),
    "velocirl.algorithms.online.td3": ("TD3",),
    "velocirl.algorithms.tabular.double_q_learning": ("DoubleQLearning",),
    "velocirl.algorithms.tabular.expected_sarsa": ("ExpectedSARSA",),
    "velocirl.algorithms.tabular.q_lambda": ("QLambda",),
    "velocirl.algorithms.tabular.q_learning": ("QLearning",),
    "velocirl.algorithms.tabular.sarsa": ("SARSA",),
    "velocirl.tabular.planning.models": ("TabularModel",),
    "velocirl.tabular.planning.policy_iteration": ("policy_iteration",),
    "velocirl.tabular.planning.value_iteration": ("value_iteration",),
    "velocirl.runs.callback": ("Callback",),
    "velocirl.training.callbacks": ("Checkpoint", "EarlyStopping", "Evaluate", "StopOnReward"),
    "velocirl.training.evaluation": ("Evaluation", "evaluate"),
    "velocirl.learners.faults": ("NumericalError",),
}

__all__ = [
    "A2C",
    "DQN",
    "PPO",
    "SAC",
    "SARSA",
    "TD3",
    "Box",
    "Callback",
    "Checkpoint",
    "DefinitionError",
    "Discrete",
    "DoubleQLearning",
    "EarlyStopping",
    "Environment",
    "Evaluate",
    "Evaluation",
    "ExpectedSARSA",
    "MultiDiscrete",
    "NumericalError",
    "QLambda",
    "QLearning",
    "StopOnReward",
    "TabularModel",
    "bool_",
    "check_env",
    "evaluate",
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "list_envs",
    "make",
    "make_vec",
    "policy_iteration",
    "random",
    "record",
    "uint8",
    "value_iteration",
]


def __getattr__(name: str) -> Any:
    for module, names in _FOR_TRAINING.items():
        if name in names:
            globals()[name] = getattr(importlib.import_module(module), name)
            return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


load_built_in()  # so that Gymnasium knows them as velocirl/CartPole-v1 and so on
