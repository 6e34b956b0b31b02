"""Persistence of agents: their state, saving it to a file, and loading it from a file or a run."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from velocirl.engine.disk.allowance import loading
from velocirl.engine.disk.saved import Specs, StateError, check_arrays, within
from velocirl.engine.fleets.fleet_state import try_copies
from velocirl.engine.naming import nearest
from velocirl.engine.warning import warn_caller
from velocirl.program.counting.recent import RecentEpisodes
from velocirl.runs.checkpoints import SCORE
from velocirl.runs.memory_files import ROWS, forget, whole
from velocirl.runs.model_score import ModelScore
from velocirl.runs.models import find_model, model_of
from velocirl.runs.state_file import State, write_state
from velocirl.training.data_source import DataSource
from velocirl.training.elsewhere import begins_elsewhere, settings_elsewhere
from velocirl.training.saved import named_environment, require_known, unasked_file
from velocirl.training.settings.config import as_plain
from velocirl.training.settings.device_choice import here_or_any
from velocirl.training.settings.words import changed
from velocirl.training.source import Given, Source
from velocirl.vector.making import GYMNASIUM

if TYPE_CHECKING:
    from velocirl.training.agent import Agent

ALGORITHMS: dict[str, type[Agent]] = {}  # by name; algorithms register themselves
ROOM = "velocirl.algorithms"  # module that imports all algorithms
Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Total = Annotated[int, msgspec.Meta(ge=1, le=2**62)]


class Document(msgspec.Struct, forbid_unknown_fields=True):
    """Schema of the document of a saved agent."""

    algorithm: str
    environment: str
    observation_space: str
    action_space: str
    config: dict[str, Any]
    steps: Count
    iterations: Count
    goal: tuple[Count, Total] | None
    best: dict[str, Any] | None = None  # score of a best model
    ranks: Total = 1  # ranks that trained it
    spaces: dict[str, Any] | None = None  # spaces of an offline agent without a known environment


@dataclass(frozen=True)
class Goal:
    """Step budget of a call of `learn`; schedules run over it, and a resumed run keeps it."""

    start: int
    total: int

    @property
    def stop(self) -> int:
        """Step count at which the budget is used up."""
        return self.start + self.total

    def progress(self, steps: int) -> float:
        """Return the fraction of the budget that is used, from 0 to 1."""
        return min(max((steps - self.start) / self.total, 0.0), 1.0)


class Saving(ABC):
    """Base class of agents: saving and loading."""

    name: ClassVar[str]
    config: Any
    source: Source
    steps: int
    iterations: int
    goal: Goal | None
    recent: RecentEpisodes
    run_dir: Path | None
    saved_ranks: int
    _learner: Any  # learner, once training was prepared

    @property
    def label(self) -> str:
        """Display name of the algorithm."""
        return self.name.upper()

    @property
    def ranks(self) -> int:
        """Number of processes that train this agent together."""
        return 1

    @property
    def follows(self) -> bool:
        """Return whether this process is a rank other than 0; rank 0 has the run and the callbacks."""
        return False

    @abstractmethod
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return every array that determines the future of this agent."""

    @abstractmethod
    def specs(self, arrays: Mapping[str, NDArray[Any]]) -> Specs:
        """Return the shapes and types that the given arrays must have, of a trained agent or a new one."""

    @abstractmethod
    def load_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Load validated arrays returned by `arrays`."""

    def state(self, *, live: bool = False) -> State:
        """Return the full state: arrays and a document of plain values.

        With `live`, replay buffer rows may be views of the buffer itself. Read them before training continues. A
        checkpoint can then write only the new rows out of millions.
        """
        document = {
            "algorithm": self.name,
            "environment": self.source.id,
            **self.source.signature(),
            "config": as_plain(self.config),
            "steps": self.steps,
            "iterations": self.iterations,
            "goal": None if self.goal is None else [self.goal.start, self.goal.total],
            **({"ranks": self.ranks} if self.ranks > 1 else {}),
        }
        if isinstance(self.source, DataSource):
            document["spaces"] = self.source.spaces
        arrays: dict[str, Any] = {**self.arrays(), **self.recent.arrays()}
        if not live and ROWS in arrays and getattr(arrays[ROWS], "base", arrays) is not None:  # a view of the buffer
            arrays[ROWS] = np.array(arrays[ROWS][:])
        return State(arrays, document)

    def save(self, path: str | Path, *, memory: bool = True, training: bool = True) -> Path:
        """Save the agent to one file, from which training can continue.

        With several ranks, only rank 0 writes.

        Args:
            path: File to write; the suffix .safetensors is added if it has none. Missing directories are created.
            memory: Whether to save the replay buffer, if there is one. Without it the file is small, and a loaded agent
                starts with an empty buffer.
            training: Whether to save what training needs. Without it the file is smallest: it has what was learned, but
                no optimizers and no environment states.

        Returns:
            The path of the file.
        """
        path = Path(path)
        path = path if path.suffix else path.with_suffix(".safetensors")
        if self.ranks > 1 and self.follows:
            return path
        state = self.state(live=True)
        arrays = state.arrays if memory else forget(state.arrays)
        if not training:
            kept = self.specs({}).keys() | {name for name in arrays if name.startswith(("recent.", "reported."))}
            arrays = {name: array for name, array in arrays.items() if name in kept}
        path.parent.mkdir(parents=True, exist_ok=True)
        write_state(path, whole(arrays), state.document)
        return path

    @classmethod
    def load(
        cls,
        path: str | Path,
        env: Given | None = None,
        *,
        memory: bool = True,
        best: bool | None = None,
        allow_nan: bool = False,
        **changes: Any,
    ) -> Self:
        """Load an agent from a file that `save` or a checkpoint wrote, or from a run.

        Of a run, the best model is loaded if there is one, as in `velocirl evaluate`; for tabular algorithms the
        newest.

        Args:
            path: File, or a run: its directory or its name.
            env: Environment, if it is your own or differs from the saved one.
            memory: Whether to load the replay buffer. Without it, an agent starts with an empty buffer: enough to let
                it act.
            best: Whether to load a run's best model; False loads the newest, from which training continues.
            allow_nan: Accept parameters that are not finite, which are rejected otherwise.
            **changes: Settings to replace: `device="cpu"`, `params={...}`, or `network=MyModule()` if the network is
                your own.

        Returns:
            The agent.

        Raises:
            ValueError: If the file holds another algorithm, does not fit this version or `env`, or if its environment
                is not known here and `env` is missing.
        """
        state, name, run = find_model(path, best=best, memory=memory)
        if run is not None and best is None and not algorithm_from(run.description.algorithm).best_is_best:
            state, name = model_of(run, best=False, memory=memory)
        if env is None:
            require_known(str(state.document.get("environment")), name, run)
        agent = cls.from_state(state, env, name, allow_nan=allow_nan, **changes)
        agent.run_dir = None if run is None else run.path
        score = ModelScore.read(state.document.get(SCORE))
        if score is not None and not score.within:
            warn_caller(f"{name}: judge it by velocirl.evaluate_safety before it acts")
        return agent

    @classmethod
    def from_state(
        cls,
        state: State,
        env: Given | None = None,
        name: str = "the state",
        *,
        allow_nan: bool = False,
        **changes: Any,
    ) -> Self:
        """Create the agent that a state describes.

        Args:
            state: State returned by `state`; it is validated before it is used.
            env: Environment, if it is your own or differs from the saved one.
            name: Name of the state in error messages.
            allow_nan: Accept parameters that are not finite.
            **changes: Settings to replace.

        Returns:
            The agent, as it was when `state` was taken.

        Raises:
            ValueError: If the state is invalid, of another algorithm, or does not fit `env`.
        """
        try:
            document = msgspec.convert(state.document, Document)
            kind = algorithm_from(document.algorithm)
            if not issubclass(kind, cls):
                raise ValueError(f"{name} holds a {kind.name} agent; load it with {kind.__name__}.load")
            # Native environments get other parameters only after their states are restored.
            later = {}
            if not document.environment.startswith(GYMNASIUM):
                later = {name: changes.pop(name) for name in ("params", "scenario") if name in changes}
            config = changed(kind.Config, document.config, changes)
            if env is not None and document.spaces is None:
                config |= settings_elsewhere(document.environment, document.config, env, changes)
            if "device" in document.config.keys() - changes.keys():
                config["device"] = here_or_any(document.config["device"])
            if "buffer_file" in document.config.keys() - changes.keys():
                config["buffer_file"] = unasked_file(document.config["buffer_file"], state, name)
            with loading(sum(array.nbytes for array in state.arrays.values())):
                agent: Any = kind(_environment_of(document, name) if env is None else env, **config)
            agent.restore(state, name, allow_nan=allow_nan)
            if later:
                params = later.get("params", agent.source.own_params)
                agent.operate(params or {}, later.get("scenario", agent.source.scenario))
        except (KeyError, TypeError, OverflowError) as error:
            raise ValueError(f"{name} is not an agent of this version: {error!r}") from error
        except msgspec.ValidationError as error:
            wrong = str(error).replace("`", "").replace("$.", "")
            raise ValueError(f"{name} is not an agent of this version: {wrong}") from None
        except StateError as error:
            advice = "; it goes on with as many copies as it had: leave num_envs out" if "num_envs" in changes else ""
            raise StateError(f"{name} cannot be used: {error}{advice}") from None
        return agent

    def restore(self, state: State, name: str, *, allow_nan: bool = False) -> None:
        """Restore a state of an agent with the same settings; raises if the state is invalid for this agent."""
        if self._learner is not None:
            raise ValueError(f"{self.label} is prepared for training already: create a new agent")
        document = msgspec.convert(state.document, Document)
        arrays, specs = state.arrays, {**self.recent.specs(), **self.specs(state.arrays)}
        if begins_elsewhere(self, document, arrays, name):
            names = self.names_of_learned(arrays)
            arrays = {one: array for one, array in arrays.items() if one in names}
            specs = {one: spec for one, spec in specs.items() if one in names}
        check_arrays(arrays, specs, allow_nan=allow_nan)
        if self.source.native is not None and "fleet.state" in arrays:
            try_copies(self.source.native, within("fleet", arrays))
        goal = None if document.goal is None else Goal(*document.goal)
        if goal is not None and goal.start > document.steps:
            raise ValueError(f"its goal was set at step {goal.start}, and it has taken {document.steps}")
        self.steps, self.iterations, self.saved_ranks, self.goal = (
            document.steps,
            document.iterations,
            document.ranks,
            goal,
        )
        if "recent.returns" in arrays:  # else the episodes are of another environment
            self.recent.load(arrays)
        self.load_arrays(arrays)

    def names_of_learned(self, arrays: Mapping[str, NDArray[Any]]) -> set[str]:  # noqa: ARG002 - of those that have more
        """Return the names of learned arrays: everything except the state of episodes and environments."""
        return set(self.specs({}))


def _environment_of(document: Document, name: str) -> Any:
    """Return the environment that a document names, or the spaces of recorded data."""
    if document.spaces is not None:
        return DataSource(document.environment, document.spaces)
    return named_environment(document.environment, name)


def algorithm_from(name: str) -> type[Agent]:
    """Return the algorithm of a name, ignoring case."""
    if str(name).lower() not in map(str.lower, ALGORITHMS):
        importlib.import_module(ROOM).load_algorithms()
    found = {known.lower(): kind for known, kind in ALGORITHMS.items()}
    if str(name).lower() not in found:
        raise ValueError(f"there is no algorithm {name!r}{nearest(str(name).lower(), list(found))}")
    return found[str(name).lower()]
