"""Configurations: frozen dataclasses of plain values, from keyword arguments, presets, files and the command line."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import msgspec
import numpy as np

from velocirl.engine.drawing import Draw
from velocirl.engine.naming import nearest
from velocirl.engine.random import require_seed
from velocirl.engine.targets.device_names import kind_of
from velocirl.engine.targets.team import MAX_ITEMS
from velocirl.networks.activations import activation_from
from velocirl.networks.initialisers import initialiser_from
from velocirl.networks.specs import MOST_LAYERS, parse_network
from velocirl.optim.optimisers import optimiser_from
from velocirl.training.settings.params import savable
from velocirl.training.settings.scheduled import Range, check_schedules
from velocirl.training.settings.words import COMMON, Word
from velocirl.vector.preprocessing.switches import switches_from

Config = TypeVar("Config")
MODULES = ("network", "critic")  # settings that may be a user's own module
OWN_MODULE = "module "  # prefix of the name of a user's own module in a configuration


def is_own_module(network: str | Mapping[str, str] | None) -> bool:
    """Return whether a configuration's network was a user's own module."""
    return isinstance(network, str) and network.startswith(OWN_MODULE)


def build_config(kind: type[Config], values: Mapping[str, Any]) -> Config:
    """Build a configuration from named values; raises for unknown names and values of the wrong type."""
    names = [field.name for field in dataclasses.fields(kind)]  # pyright: ignore[reportArgumentType]
    for name in values:
        if name not in names:
            raise ValueError(f"there is no setting {name!r}{nearest(name, names)}")
    plain = {name: _plain(value) for name, value in values.items()}
    try:
        return msgspec.convert(plain, kind)
    except msgspec.ValidationError as error:
        raise ValueError(str(error).replace("`", "").replace("$.", "")) from None


def as_plain(config: Any) -> dict[str, Any]:
    """Return the configuration as plain values, for JSON."""
    if getattr(config, "params", None) is None:
        return msgspec.to_builtins(config)
    return {**msgspec.to_builtins(dataclasses.replace(config, params=None)), "params": savable(config.params)}


def require(condition: bool, name: str, value: Any, wanted: str) -> None:
    """Raise ValueError naming the setting unless the condition holds."""
    if not condition:
        raise ValueError(f"{name} must be {wanted}, got {value!r}")


def require_whole(config: Any, low: int, high: int, *names: str) -> None:
    """Raise for integers outside of a range; settings that are None are accepted."""
    for name in names:
        value = getattr(config, name)
        require(value is None or value >= low, name, value, f"at least {low}")
        require(value is None or value <= high, name, value, f"at most {high:,}")


def check_widths(config: Any, name: str) -> None:
    """Raise for hidden layers of width 0, and for too many of them."""
    widths = getattr(config, name)
    require(all(width >= 1 for width in widths), name, widths, "widths of at least 1")
    require(len(widths) <= MOST_LAYERS, name, widths, f"at most {MOST_LAYERS} widths")


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, Draw):
        return str(value)
    return [_plain(item) for item in value] if isinstance(value, (tuple, list, np.ndarray)) else value


@dataclass(frozen=True)
class DeepConfig:
    """Settings of every algorithm with neural networks."""

    words: ClassVar[Mapping[str, Word]] = COMMON  # Stable-Baselines3's names of settings, see `words`
    # Every float may change in training, except those in `fixed`; see `scheduled_of`.
    scheduled: ClassVar[Mapping[str, Range]] = {
        "learning_rate": Range(least=0.0),
        "max_grad_norm": Range(zero_is_off=True),
        "max_grad_value": Range(zero_is_off=True, is_built=True),
    }
    fixed: ClassVar[frozenset[str]] = frozenset()
    num_envs: int = 8
    """Number of environment copies stepped together."""
    learning_rate: float = 1e-3
    """Step size of the optimiser, or a schedule of it: a name, points of progress (0:3e-4,1:0) or, in Python, a
    function of the remaining progress."""
    learning_rate_schedule: str = "constant"
    """How the learning rate changes over training: constant, linear, cosine(end=0.1), warmup(0.05) cosine, ..."""
    schedules: dict[str, str] | None = None
    """Schedules of settings beside the learning rate, by name: clip=linear, entropy_coefficient=0:0.01,1:0. In Python,
    give the setting itself a schedule."""
    optimiser: str = "adam"
    """Optimiser: adam, adamw(weight_decay=0.01), sgd(momentum=0.9), rmsprop, ..."""
    gamma: float = 0.99
    """Discount factor."""
    max_grad_norm: float = 0.0
    """Clip the gradient to this norm; 0 turns clipping off."""
    max_grad_value: float = 0.0
    """Clip every entry of the gradient to this; 0 turns clipping off."""
    network: str | dict[str, str] | None = None
    """Description of a torch network, such as cnn(32x8s4, 64x4s2) mlp(128, norm=layer), or the name of one that is
    known: nature, minatar. Without it, images are read by one of these, and all else by the native network of
    `hidden`."""
    hidden: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers."""
    activation: str = "relu"
    """Activation function: relu, leaky_relu, elu, gelu, silu, tanh, sigmoid or linear."""
    layer_norm: bool | None = None
    """Normalise each hidden layer before its activation, with a learnt gain and shift. As the algorithm has it if not
    given, which is mostly without. In a description of a torch network write norm=layer."""
    initialiser: str = "orthogonal"
    """Initialisation of the weights: orthogonal, xavier_uniform, xavier_normal, he_uniform or he_normal."""
    params: dict[str, Any] | None = None
    """Parameters of the environment to change: numbers, one for each copy as [5, 15], or drawn anew for each copy and
    episode as uniform(5, 15) or log_uniform(0.1, 10). Of a gym: environment, any keyword arguments."""
    scenario: str | None = None
    """Scenario in which a native environment is operated: parameters of it by a name, of which `params` replace
    some."""
    preprocess: str | dict[str, Any] | None = None
    """What is done to the pictures of a gym: environment: atari, or with some of its switches set, as atari(skip=4,
    stack=4, size=84, gray=true, life_loss=true, clip_rewards=true, noops=30). Agents are evaluated in whole games, by
    their own scores."""
    skip: int | None = None
    """Repeat each action so many times, as one step: for native environments that do not skip by themselves."""
    stack: int | None = None
    """Let the agent see so many of the newest observations, oldest first: for native environments that do not stack by
    themselves."""
    seed: int | None = None
    """Seed of all random numbers. Drawn at random if not given."""
    threads: int | None = None
    """Number of CPU threads, of each process, at most: fewer work while others use the cores. Chosen automatically if
    not given. Results do not depend on it where networks are native."""
    shares: int | None = None
    """Shares of an update that threads can work on at the same time, of each process. Chosen by the size of the update
    if not given; results depend on it by rounding."""
    runtime: Literal["auto", "local", "mpi", "torch"] = "auto"
    """Processes that train together and share out copies, memory and data: those of mpirun, srun or torchrun,
    recognised by their environment variables. local is this process alone."""
    workers: int | None = None
    """Number of worker processes for gym: environments, or 0 to run them in the training process. Chosen
    automatically if not given, by the time that a step takes; results do not depend on it."""
    device: Annotated[str, "auto|cpu|cuda|cuda:N|python"] = "auto"
    """Where to train: auto picks the GPU where that is faster, python runs everything in the interpreter for
    debugging. cuda:1 is the second GPU; with cuda, each process of a machine takes its own."""
    precision: Literal["auto", "float32", "tf32", "bf16", "fp16"] = "auto"
    """Precision of the matrix products of torch networks: auto is tf32 on a GPU and float32 elsewhere. Parameters
    are always float32."""
    compile: bool = False
    """Compile the network with torch.compile. It is then a torch network, even if `network` is not given."""
    check: bool = False
    """Test every index of the environment's functions, and every division of whole numbers: a wrong one is named with
    its line, copy and step. Slower; for environments that are compiled, on the CPU."""

    def __post_init__(self) -> None:
        known = self.device in ("auto", "cpu", "python") or kind_of(self.device) == "cuda"
        require(known, "device", self.device, "auto, cpu, cuda, cuda:N for GPU number N, or python")
        require_whole(self, 1, 2**24, "num_envs")
        require_whole(self, 1, 1024, "threads")
        require_whole(self, 1, MAX_ITEMS, "shares")
        require_whole(self, 0, 1024, "workers")
        require_whole(self, 1, 1024, "skip", "stack")
        require(0 < self.learning_rate < inf, "learning_rate", self.learning_rate, "above 0")
        require(0 <= self.gamma <= 1, "gamma", self.gamma, "from 0 to 1")
        for name in ("max_grad_norm", "max_grad_value"):
            require(0 <= getattr(self, name) < inf, name, getattr(self, name), "at least 0")
        check_widths(self, "hidden")
        if self.seed is not None:
            require_seed(self.seed)
        if self.preprocess is not None:
            switches_from(self.preprocess)
        activation_from(self.activation)
        initialiser_from(self.initialiser)
        optimiser_from(self.optimiser)
        check_schedules(self)
        for name in MODULES:
            described = getattr(self, name, None)
            if described is not None and not is_own_module(described):
                parse_network(described)
