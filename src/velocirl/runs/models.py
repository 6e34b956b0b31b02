"""Models that a person names: a file, a directory of checkpoints, or a run, of which there are several."""

from __future__ import annotations

from pathlib import Path

from velocirl.runs.checkpoints import Checkpoints, NoCheckpointError
from velocirl.runs.directory import DESCRIPTION, Run, RunNotFoundError
from velocirl.runs.finding import find_run
from velocirl.runs.memory_files import read_checkpoint
from velocirl.runs.state_file import State

ENDING = ".safetensors"


def find_model(name: str | Path, *, best: bool | None = None, memory: bool = True) -> tuple[State, str, Run | None]:
    """A model, where it comes from in words, and the run that it is of, where it is one of a run."""
    path = Path(name).expanduser()
    file = path if path.suffix == ENDING or path.is_file() else path.with_name(f"{path.name}{ENDING}")
    if file.is_file() or file == path:
        return read_checkpoint(file, memory=memory), str(file), None
    if path.is_dir() and not (path / DESCRIPTION).is_file() and Checkpoints(path).any():
        return *model_in(Checkpoints(path), str(path), best=best, memory=memory), None
    try:
        run = find_run(str(path))
    except RunNotFoundError as error:
        raise RunNotFoundError(f"there is no file {file}, and {error}") from None
    return *model_of(run, best=best, memory=memory), run


def model_of(run: Run, *, best: bool | None = None, memory: bool = True) -> tuple[State, str]:
    """The best model of a run or, where there is none or it is not wanted, the newest; and which one, in words."""
    return model_in(run.checkpoints(), run.name, best=best, memory=memory)


def model_in(checkpoints: Checkpoints, name: str, *, best: bool | None, memory: bool) -> tuple[State, str]:
    """The same of a directory of checkpoints."""
    if best is not False:
        try:
            state = checkpoints.best()
        except NoCheckpointError:
            if best:
                raise
        else:
            return state, f"the best model of {name}, of step {state.document.get('steps')}"
    checkpoint = checkpoints.latest(memory=memory)
    return checkpoint.state, f"the latest model of {name}, of step {checkpoint.step}"
