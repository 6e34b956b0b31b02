"""Recorded data as an agent's source, with its environment or, if that is unknown, only its spaces."""

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

UNNAMED = "given data"  # a configuration's path of data that was passed as an object


def require_fit(data: Dataset, path: str, source: Source) -> None:
    """Raise if data has no transitions, or comes from another environment or other spaces."""
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
    """Return the absolute path of data, which may be a path or an object."""
    path = given.path if isinstance(given, Dataset) else given
    return UNNAMED if path in (None, UNNAMED) else str(Path(path).expanduser().absolute())


class DataSource(Source):
    """Environment known only by its spaces, which cannot be stepped."""

    def __init__(self, name: str, spaces: Mapping[str, Any]) -> None:
        """Take the spaces of observations and actions from `spaces`, as JSON values."""
        self.id, self.given, self.spaces = name, None, spaces
        self.scenario = self.asked = self.preprocess = self.native = self.num_envs = self.ready = None
        self.params = self.own_params = {}
        self.frames, self.makers = {}, ""
        self.check = self.own_threads = self.masked = False
        self.observation_space, self.action_space = (space_from(spaces[name]) for name in ("observation", "action"))

    @classmethod
    def of(cls, info: DatasetInfo) -> DataSource:
        """Return the source of a dataset."""
        spaces = {"observation": info.observation_space, "action": info.action_space}
        name = RECORDED + (info.environment or "recorded").replace(":", " ")
        return cls(name, {name: space_document(space) for name, space in spaces.items()})
