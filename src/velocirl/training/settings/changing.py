"""Changing an environment's parameters during training: curricula."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from numpy.typing import NDArray

from velocirl.training.settings.config import build_config
from velocirl.training.settings.params import changed_rows, check_copies
from velocirl.training.source import Source


class Changing:
    """Base class of agents: changing the environment; the learner continues with it, or is created again."""

    Config: ClassVar[type[Any]]
    source: Source
    config: Any
    _learner: Any  # learner, once training was prepared
    _waiting: Mapping[str, NDArray[Any]] | None  # saved training state, kept until training is prepared

    @abstractmethod
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return every array that determines the future of this agent."""

    @abstractmethod
    def prepare(self) -> None:
        """Compile and allocate what training needs, unless that was done before."""

    def set_params(self, params: Mapping[str, Any] | None = None, /, **named: Any) -> None:
        """Change parameters of the environment, between calls of `learn` or from a callback: a curriculum.

        Parameters that are not named keep their values. Numbers apply at once, within episodes; distributions from each
        environment's next episode. A gym: environment is created again, and its episodes restart. The parameters are
        saved with the agent. If one of them is invalid, nothing changes.

        Args:
            params: Parameters by name, as in the constructor.
            **named: Parameters as keyword arguments.

        Raises:
            ValueError: If a parameter is unknown or invalid, or would change the spaces.
        """
        self.operate({**self.source.own_params, **(params or {}), **named}, self.source.scenario)

    def set_scenario(self, scenario: str | None) -> None:
        """Operate the environment in another scenario from now on, or in none if it is None; see `set_params`."""
        self.operate(self.source.own_params, scenario)

    def operate(self, params: Mapping[str, Any], scenario: str | None) -> None:
        """Set the environment's parameters and scenario; parameters in neither get the environment's defaults."""
        source = self.source.operated(params, scenario)
        check_copies(source.native, source.params, self.config.num_envs)
        if source.signature() != self.source.signature():
            raise ValueError(
                f"{source.id} would have {source.signature()}, and this agent learns with {self.source.signature()}:"
                " make another agent"
            )
        changed = build_config(self.Config, {"params": source.own_params, "scenario": scenario})
        config = dataclasses.replace(self.config, params=changed.params, scenario=scenario)
        fleet: Any = getattr(self._learner, "fleet", None)
        native = source.native
        if native is None or fleet is None or native.drawn != fleet.environment.drawn:
            fleet = None  # a different environment is compiled
        if self._learner is not None and fleet is None and getattr(self.config, "buffer_file", None) is not None:
            raise ValueError(
                f"other parameters would be drawn than until now, for which the memory in {self.config.buffer_file}"
                " would have to be read anew: save the agent, and load it with params="
            )
        self.pause()
        self.source, self.config = source, config
        if self._waiting is not None:
            self._waiting = self._changed(self._waiting)
        elif fleet is not None and native is not None:
            fleet.write({"params": changed_rows(native, source.params, fleet.read(("params",))["params"])})
        elif self._learner is not None:
            self._remake()

    def _changed(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Return the arrays of a learner with the environment's new parameters."""
        native, rows = self.source.native, arrays.get("fleet.params")
        if native is None or rows is None:
            return dict(arrays)
        return {**arrays, "fleet.params": changed_rows(native, self.source.params, rows)}

    def _remake(self) -> None:
        """Replace the learner by one that continues from its state, with the changed environment."""
        self._waiting, learner = self._changed(self.arrays()), self._learner
        self._learner = None
        self.release(learner)
        self.prepare()

    def release(self, learner: Any) -> None:
        """Release the resources of a learner that will not be used again."""
        if (envs := getattr(learner, "envs", None)) is not None:
            envs.close()

    def pause(self) -> None:
        """Wait for the iteration in progress; its metrics are reported with the next one."""
