"""Base of native environments, single or a fleet: construction, parameters, resets and pickling."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from velocirl.engine.drawing import is_draw, with_draws
from velocirl.engine.environment import Environment
from velocirl.engine.fleets.actions import gate_for
from velocirl.engine.fleets.fleet import NO_LIMIT, make_target
from velocirl.engine.fleets.lifecycle import ARRAYS
from velocirl.engine.naming import nearest
from velocirl.vector.rendering import Renderer

BOUND = ("target", "copies", "_copies", "renderer", "_gate")  # to this process and to the memory of these environments


class NativeCopies:
    """Base class of a single native environment and a fleet, independent of the interface.

    Compiled code is bound to the memory of its environments. A pickle or deep copy therefore holds the constructor's
    arguments and the arrays' contents, and binds code of its own. It continues from the same state, independently of
    the original.
    """

    def __init__(
        self,
        environment: Environment,
        count: int,
        *,
        params: Mapping[str, Any] | None,
        render_mode: str | None,
        **target: Any,
    ) -> None:
        self.environment = with_draws(environment, params)
        self.render_mode = render_mode
        self._count = count
        self._target_options = target
        self._bind(params)

    @property
    def time_limit(self) -> int | None:
        """Number of steps after which an episode is truncated; None without a limit."""
        limit = self.target.copies.limit
        return None if limit == NO_LIMIT else limit

    @property
    def action_masks(self) -> Callable[[], NDArray[np.bool_]]:
        """Method that sb3-contrib calls for the legal actions; missing if all actions are always legal."""
        if self.environment.legal is None:
            raise AttributeError(f"{self.environment.id} has no action_masks: all of its actions are always legal")
        return self._legal

    def read(self, names: Iterable[str]) -> dict[str, NDArray[Any]]:
        """Copy the named arrays to the host."""
        return {name: np.array(getattr(self.target.copies, name)) for name in names}

    def write(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Overwrite the contents of arrays."""
        for name, array in arrays.items():
            getattr(self.target.copies, name)[...] = array

    def set_params(self, values: Mapping[str, Any]) -> None:
        """Set parameters from now on: one value for all environments or one for each."""
        for name, value in values.items():
            if is_draw(value) and name not in self.environment.drawn:
                raise ValueError(
                    f"{self.environment.id}: {name} is drawn only where copies are made with params={{{name!r}: ...}}"
                )
        rows = self.read(("params",))["params"]
        self.environment.params.fill(rows, values)
        self.write({"params": rows})

    def begin(self, chosen: NDArray[np.bool_], options: Mapping[str, Any]) -> None:
        """Start new episodes in the chosen environments; options override parameters during this reset only."""
        if not options:
            self.target.begin(chosen)
            return
        before = self.read(("params",))["params"]
        self.set_params(options)
        self.target.begin(chosen)
        for name in set(self.environment.drawn) - set(options):  # randomized parameters hold for the whole episode
            before[name] = self.read(("params",))["params"][name]
        self.write({"params": before})

    def known(self, options: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """Return the options of a reset; raises ValueError for an unknown one."""
        for name in options or {}:
            if name not in self.environment.options:
                advice = nearest(name, self.environment.options)
                raise ValueError(f"{self.environment.id}: reset has no option {name!r}{advice}")
        return options or {}

    def _legal(self) -> NDArray[np.bool_]:
        return self.read(("mask",))["mask"].astype(np.bool_)

    def _bind(self, params: Mapping[str, Any] | None) -> None:
        self.target = make_target(self.environment, self._count, params=params, **self._target_options)
        self.copies: Any = self.target.copies
        self.renderer = Renderer(self.environment, self.render_mode)
        self._gate = gate_for(self.environment, self._arriving())

    def _arriving(self) -> NDArray[Any]:
        """Return the array into which the caller's actions are written."""
        return self.copies.action

    def __getstate__(self) -> dict[str, Any]:
        kept = {name: value for name, value in vars(self).items() if name not in BOUND}
        return {**kept, "arrays": self.read(ARRAYS)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._bind(None)
        self.write(vars(self).pop("arrays"))


def own(space: gymnasium.Space[Any]) -> gymnasium.Space[Any]:
    """Copy a space of an environment; seeding it or sampling from it changes the samples that follow."""
    made = copy.deepcopy(space)
    made.seed()  # the definition's space may have been sampled from: all copies would continue its stream alike
    return made
