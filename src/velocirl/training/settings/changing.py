"""Parameters of an environment that change while an agent learns: a curriculum."""

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
    """An agent as far as its environment may change; what trains it goes on with other copies, or is made anew."""

    Config: ClassVar[type[Any]]
    source: Source
    config: Any
    _learner: Any  # what trains it, once it was prepared
    _waiting: Mapping[str, NDArray[Any]] | None  # a saved state, until training needs it

    @abstractmethod
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Every array that decides the future of this agent."""

    @abstractmethod
    def prepare(self) -> None:
        """Compile and allocate what training needs, unless that was done before."""

    def set_params(self, params: Mapping[str, Any] | None = None, /, **named: Any) -> None:
        """Change parameters of the environment, between calls of `learn` or from a callback: a curriculum.

        As `params` of the constructor, and those that are not named stay. Numbers hold at once, in the midst of
        episodes; what is drawn, from each copy's next episode on. A gym: environment is made anew, and its episodes
        begin. They are saved with the agent; where one cannot be used, nothing has changed.
        """
        self.operate({**self.source.own_params, **(params or {}), **named}, self.source.scenario)

    def set_scenario(self, scenario: str | None) -> None:
        """Let the environment be operated in another scenario from now on, or with None in none; see `set_params`."""
        self.operate(self.source.own_params, scenario)

    def operate(self, params: Mapping[str, Any], scenario: str | None) -> None:
        """Let the environment have these parameters in a scenario, and its own where both say nothing."""
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
            fleet = None  # what is compiled is another
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
        """The arrays of a learner whose copies had other parameters."""
        native, rows = self.source.native, arrays.get("fleet.params")
        if native is None or rows is None:
            return dict(arrays)
        return {**arrays, "fleet.params": changed_rows(native, self.source.params, rows)}

    def _remake(self) -> None:
        """Let another learner go on from where this one is, with the environment as it is now."""
        self._waiting, learner = self._changed(self.arrays()), self._learner
        self._learner = None
        self.release(learner)
        self.prepare()

    def release(self, learner: Any) -> None:
        """Give back what a learner holds that will not be used again."""
        if (envs := getattr(learner, "envs", None)) is not None:
            envs.close()

    def pause(self) -> None:
        """Wait for what is under way; news of it are told with the next."""
