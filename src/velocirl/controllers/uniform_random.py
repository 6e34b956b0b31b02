"""Random controller: the baseline that every policy must beat."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete, Space
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array
from numpy.typing import NDArray

from velocirl.controllers.controller import Controller
from velocirl.controllers.layout import Layout


class Random(Controller):
    """Actions sampled uniformly from the action space, legal ones only; reproducible with a seed."""

    def __init__(self, seed: int | None = None) -> None:
        self._seed = seed

    def __repr__(self) -> str:
        return f"Random({'' if self._seed is None else self._seed})"

    def settle(self, layout: Layout, environment: Any) -> None:  # noqa: ARG002 - as others need it
        """Copy and seed the action space: seeding a shared space would change later samples."""
        self._space = copy.deepcopy(layout.action)
        self._space.seed(self._seed)
        self._batches: dict[int, Space[Any]] = {}

    def act(self, observations: Any, state: Any, starts: NDArray[np.bool_], masks: Any) -> tuple[Any, None]:  # noqa: ARG002
        """Sample an action for each environment."""
        space, count = self._space, len(starts)
        if masks is None:
            if count not in self._batches:  # batched, since thousands of environments may be sampled at once
                self._batches[count] = batch_space(space, count)
                self._batches[count].seed(self._seed)
            return self._batches[count].sample(), None
        if not isinstance(space, Discrete):
            raise ValueError(f"{self.layout.id}: Random knows masks of Discrete actions, not of {space}")
        drawn = [space.sample(mask=np.asarray(mask, np.int8)) for mask in masks]
        return concatenate(space, drawn, create_empty_array(space, len(drawn))), None
