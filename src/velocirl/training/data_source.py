"""The spaces of recorded data, where no environment is known that it is of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from velocirl.buffers.data.info import DatasetInfo
from velocirl.buffers.data.spaces import space_document, space_from
from velocirl.training.saved import RECORDED
from velocirl.training.source import Source


class DataSource(Source):
    """An environment that nobody can step: its spaces are known, and no more."""

    def __init__(self, name: str, spaces: Mapping[str, Any]) -> None:
        """`spaces` are those of observations and actions, as JSON has them."""
        self.id, self.given, self.spaces = name, None, spaces
        self.scenario = self.asked = self.preprocess = self.native = self.num_envs = self.ready = None
        self.params = self.own_params = {}
        self.frames, self.makers = {}, ""
        self.check = self.own_threads = self.masked = False
        self.observation_space, self.action_space = (space_from(spaces[name]) for name in ("observation", "action"))

    @classmethod
    def of(cls, info: DatasetInfo) -> DataSource:
        """That of a data set."""
        spaces = {"observation": info.observation_space, "action": info.action_space}
        name = RECORDED + (info.environment or "recorded").replace(":", " ")
        return cls(name, {name: space_document(space) for name, space in spaces.items()})
