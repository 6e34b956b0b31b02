"""velocirl: write scalars, run fleets. Reinforcement learning from plain Python functions, compiled."""

from gymnasium.spaces import Box, Discrete, MultiDiscrete

from velocirl.algorithms.online.ppo import A2C, PPO
from velocirl.engine import random
from velocirl.engine.environment import Environment
from velocirl.engine.errors import DefinitionError
from velocirl.engine.records import bool_, float32, float64, int8, int16, int32, int64, record, uint8
from velocirl.engine.registry import list_envs, load_built_in
from velocirl.training.callbacks import Callback, Checkpoint, EarlyStopping, Evaluate, StopOnReward
from velocirl.training.evaluation import Evaluation, evaluate
from velocirl.training.faults import NumericalError
from velocirl.vector.checking import check_env
from velocirl.vector.making import make, make_vec

__version__ = "0.1.0.dev0"

__all__ = [
    "A2C",
    "PPO",
    "Box",
    "Callback",
    "Checkpoint",
    "DefinitionError",
    "Discrete",
    "EarlyStopping",
    "Environment",
    "Evaluate",
    "Evaluation",
    "MultiDiscrete",
    "NumericalError",
    "StopOnReward",
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
    "random",
    "record",
    "uint8",
]

load_built_in()  # so that Gymnasium knows them as velocirl/CartPole-v1 and so on
