"""Recorded data and the environment that it is of; or its spaces, where no such environment is known."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from velocirl.buffers.data.dataset import Dataset
from velocirl.buffers.data.info import DatasetInfo
from velocirl.buffers.data.spaces import space_document, space_from
from velocirl.training.saved import RECORDED
from velocirl.training.source import Source
from velocirl.vector.given import GIVEN

UNNAMED = "given data"  # what a configuration has in the place of the path of data that was given as an object


def require_fit(data: Dataset, path: str, source: Source) -> None:
    """Refuse data without transitions, of another environment, or of other spaces."""
    info = data.info
    if not len(data):
        raise ValueError(f"{path} has no transitions to learn from")
    named = not source.id.startswith((GIVEN, RECORDED))
    if named and info.environment is not None and info.environment != source.id:
        raise ValueError(f"{path} was recorded in {info.environment}, and this agent is for {source.id}")
    for what in ("observation", "action"):
        theirs, ours = getattr(info, f"{what}_space"), getattr(source, f"{what}_space")
        if theirs != ours:
            raise ValueError(f"the {what}s in {path} are {theirs}, and those of {source.id} are {ours}")


def path_of(given: Any) -> str:
    """The path of data that was given as one or as an object, from wherever it is looked for."""
    path = given.path if isinstance(given, Dataset) else given
    return UNNAMED if path in (None, UNNAMED) else str(Path(path).expanduser().absolute())


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
