"""Acting outside of training: from observations to actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from velocirl.engine.action_parts import action_type, as_given, has_parts
from velocirl.engine.compiler.columns import Shared
from velocirl.engine.compiler.translating import Translator
from velocirl.engine.compiler.units import BoundUnit, bind_unit
from velocirl.engine.targets.indexing import row_loop
from velocirl.networks.encoding import Encoding, encode
from velocirl.networks.heads import Head
from velocirl.networks.observations import raw_space
from velocirl.program.normalizing import RunningMoments
from velocirl.program.rows.commands import command_for
from velocirl.vector.host.copies import map_arrays


def look(raw, table, centre, inverse_scale, into):
    """Encode an observation as network inputs."""
    encode(raw, table, centre, inverse_scale, into)


def draw_action(head, output, mask, rng, row):
    """Sample an action."""
    head.sample(output, mask, rng, row.action)


def best_action(head, output, mask, rng, row):  # noqa: ARG001 - as where one is drawn
    """Choose the most probable action."""
    head.mode(output, mask, row.action)


class Acting:
    """Base class of actors: buffers for the newest batch of observations, and the scalar functions run on its rows."""

    def __init__(
        self,
        head: Head,
        encoding: Encoding,
        observation_space: Space[Any],
        action_space: Space[Any],
        rng: NDArray[np.uint64],  # (1, 2)
    ) -> None:
        self.stale = True  # whether parameters or normalizer changed since the last choice
        self._head, self._encoding, self._action_space, self._rng = head, encoding, action_space, rng
        self._centre, self._inverse_scale = (np.zeros((1, encoding.inputs), np.float32) for _ in range(2))
        self._row_shape, self._row_dtype = raw_space(observation_space)
        self._row_type = np.dtype([("action", head.action_dtype, (head.action_size,))])
        self._command, self._table = command_for(action_space)
        self.chosen: Callable[[], Any]  # returns the actions written last, in the form of the action space
        self.count = 0
        self.allocate(1)

    def look_through(self, moments: RunningMoments) -> None:
        """Normalize observations by `moments` from now on."""
        self._centre[0], self._inverse_scale[0] = moments.mean, moments.inverse_deviation

    def take(self, observations: NDArray[Any], masks: NDArray[Any] | None) -> None:
        """Store observations (rows, *shape) and action masks."""
        if len(observations) != self.count:
            self.allocate(len(observations))
        self.observation[...] = observations
        if masks is not None:
            require_masks(self._head, masks, len(observations))
            self.mask[...] = masks
        elif self._head.masked:
            self.mask[...] = 1

    def allocate(self, count: int) -> None:
        """Allocate rows for `count` observations."""
        head, space = self._head, self._action_space
        self.count = count
        self.observation = np.zeros((count, *self._row_shape), self._row_dtype)
        self.mask = np.ones((count, head.options if head.masked else 1), np.int8)
        self.drawn = np.zeros(count, self._row_type)
        if has_parts(space):
            records = self._command_rows = np.zeros(count, action_type(space, own=True))
            self.chosen = lambda: map_arrays(np.copy, as_given(space, records))
        else:
            actions = np.zeros((count, *(space.shape or ())), space.dtype)
            self._command_rows, self.chosen = actions.reshape(count, -1), actions.copy

    def parts(self, inputs: Any, outputs: Any, bind: Callable[..., Any]) -> tuple[Any, ...]:
        """Bind the four stages of a choice: encode, sample, choose the best, write the command.

        `inputs` and `outputs` are columns. `bind(function, columns, head)` turns a scalar function into one that runs
        on a range of rows.
        """
        raw = self.observation.reshape(self.count, -1)
        seen = Shared(self._encoding.table[None]), Shared(self._centre), Shared(self._inverse_scale)
        chosen = outputs, self.mask, Shared(self._rng), self.drawn
        commands = self._command_rows, self.drawn, Shared(self._table)
        return (
            bind(look, (raw, *seen, inputs)),
            bind(draw_action, chosen, self._head),
            bind(best_action, chosen, self._head),
            bind(self._command, commands),
        )


def require_masks(head: Head, masks: NDArray[Any], count: int) -> None:
    """Raise unless masks are (count, options) and the policy reads masks."""
    shape = count, head.options
    if not head.masked or masks.shape != shape:
        wanted = f"have shape {shape}" if head.masked else "are not for this policy"
        raise ValueError(f"action masks of {count} observations {wanted}, got {masks.shape}")


def compiled_by(translator: Translator) -> Callable[..., BoundUnit]:
    """Return the function by which a compiled actor binds scalar functions."""

    def bind(function: Callable[..., Any], columns: tuple[Any, ...], head: Any = None) -> BoundUnit:
        return bind_unit(row_loop(function, head), columns, translator)

    return bind
