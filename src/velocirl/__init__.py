"""velocirl: write scalars, run fleets. Reinforcement learning from plain Python functions, compiled."""

import importlib
import opcode
import sys
from typing import TYPE_CHECKING, Any

from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

from velocirl.algorithms import algorithm_modules
from velocirl.engine import random
from velocirl.engine.compiler.arithmetic.clearing import clear
from velocirl.engine.constraints import Constraint
from velocirl.engine.drawing import log_uniform, uniform
from velocirl.engine.environment import Environment
from velocirl.engine.errors import DefinitionError
from velocirl.engine.records import between, bool_, float32, float64, int8, int16, int32, int64, record, uint8
from velocirl.engine.registry import list_envs, load_built_in
from velocirl.engine.tables import lookup
from velocirl.vector import adapters
from velocirl.vector.checking import check_env
from velocirl.vector.making import make, make_vec
from velocirl.version import __version__ as __version__

if TYPE_CHECKING:
    from velocirl.buffers.data.dataset import Dataset
    from velocirl.buffers.data.episodes import Episode
    from velocirl.buffers.data.info import DatasetInfo
    from velocirl.cli.functions import plot, plot_table, train_seeds
    from velocirl.datasets.levels import create_dataset
    from velocirl.datasets.record import record_dataset
    from velocirl.deployment.exporting import export
    from velocirl.judging.fitted import FittedQEvaluation, fitted_q_evaluation
    from velocirl.judging.report import OfflineJudgement, judge_offline
    from velocirl.program.faults import NumericalError
    from velocirl.runs.callback import Callback
    from velocirl.runs.curves.figures import read_metrics
    from velocirl.tabular.planning.exploring import explore_model
    from velocirl.tabular.planning.models import TabularModel
    from velocirl.tabular.planning.policy_iteration import policy_iteration
    from velocirl.tabular.planning.value_iteration import value_iteration
    from velocirl.training.actors.playing import record_video
    from velocirl.training.agent import load
    from velocirl.training.callbacks import Checkpoint, EarlyStopping, Evaluate, StopOnReward
    from velocirl.training.evaluation import Evaluation, evaluate, evaluate_policy
    from velocirl.training.video import Video
    from velocirl.trajectories.rollout import rollout
    from velocirl.trajectories.safety import SafetyEvaluation, evaluate_safety
    from velocirl.trajectories.trajectory import Trajectory


# What is for training is imported when it is first used: who only steps environments need not wait for it.
_FOR_TRAINING = {
    "velocirl.buffers.data.dataset": ("Dataset",),
    "velocirl.buffers.data.episodes": ("Episode",),
    "velocirl.buffers.data.info": ("DatasetInfo",),
    "velocirl.cli.functions": ("plot", "plot_table", "train_seeds"),
    "velocirl.datasets.levels": ("create_dataset",),
    "velocirl.datasets.record": ("record_dataset",),
    "velocirl.deployment.exporting": ("export",),
    "velocirl.judging.fitted": ("FittedQEvaluation", "fitted_q_evaluation"),
    "velocirl.judging.report": ("OfflineJudgement", "judge_offline"),
    "velocirl.tabular.planning.exploring": ("explore_model",),
    "velocirl.tabular.planning.models": ("TabularModel",),
    "velocirl.tabular.planning.policy_iteration": ("policy_iteration",),
    "velocirl.tabular.planning.value_iteration": ("value_iteration",),
    "velocirl.runs.callback": ("Callback",),
    "velocirl.runs.curves.figures": ("read_metrics",),
    "velocirl.trajectories.rollout": ("rollout",),
    "velocirl.trajectories.safety": ("SafetyEvaluation", "evaluate_safety"),
    "velocirl.trajectories.trajectory": ("Trajectory",),
    "velocirl.training.agent": ("load",),
    "velocirl.training.video": ("Video",),
    "velocirl.training.callbacks": ("Checkpoint", "EarlyStopping", "Evaluate", "StopOnReward"),
    "velocirl.training.evaluation": ("Evaluation", "evaluate", "evaluate_policy"),
    "velocirl.training.actors.playing": ("record_video",),
    "velocirl.program.faults": ("NumericalError",),
}
_LATER = {name: module for module, names in _FOR_TRAINING.items() for name in names} | algorithm_modules()

__all__ = [  # pyright: ignore[reportUnsupportedDunderAll]
    "Box",
    "Callback",
    "Checkpoint",
    "Constraint",
    "Dataset",
    "DatasetInfo",
    "DefinitionError",
    "Dict",
    "Discrete",
    "EarlyStopping",
    "Environment",
    "Episode",
    "Evaluate",
    "Evaluation",
    "FittedQEvaluation",
    "MultiBinary",
    "MultiDiscrete",
    "NumericalError",
    "OfflineJudgement",
    "SafetyEvaluation",
    "StopOnReward",
    "TabularModel",
    "Trajectory",
    "Tuple",
    "Video",
    "adapters",
    "between",
    "bool_",
    "check_env",
    "clear",
    "create_dataset",
    "evaluate",
    "evaluate_policy",
    "evaluate_safety",
    "explore_model",
    "export",
    "fitted_q_evaluation",
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "judge_offline",
    "list_envs",
    "load",
    "log_uniform",
    "lookup",
    "make",
    "make_vec",
    "plot",
    "plot_table",
    "policy_iteration",
    "random",
    "read_metrics",
    "record",
    "record_dataset",
    "record_video",
    "rollout",
    "train_seeds",
    "uint8",
    "uniform",
    "value_iteration",
    *algorithm_modules(),
]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise _missing(name)
    globals()[name] = getattr(importlib.import_module(_LATER[name]), name)
    return globals()[name]


def _missing(name: str) -> Exception:
    """Return the error of a name that is not here; names of Stable-Baselines3 say what to use."""
    known = importlib.import_module("velocirl.training.names").IN_PACKAGE if name[:1].isalpha() else {}
    instead = known.get(name, "")
    text = f"module {__name__!r} has no attribute {name!r}{': use ' * bool(instead)}{instead}"
    caller = sys._getframe(2)
    # `from velocirl import NAME` drops the message of an AttributeError.
    imports = instead and caller.f_code.co_code[caller.f_lasti] == opcode.opmap["IMPORT_FROM"]
    return ImportError(text, name=__name__) if imports else AttributeError(text, name=name, obj=sys.modules[__name__])


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


load_built_in()  # so that Gymnasium knows them as velocirl/CartPole-v1 and so on
