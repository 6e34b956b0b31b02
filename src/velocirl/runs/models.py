"""Lookup of models: a file, a directory of checkpoints, a run, or an environment with a pretrained model."""

from __future__ import annotations

from pathlib import Path

from velocirl.runs.checkpoints import SCORE, Checkpoints, NoCheckpointError
from velocirl.runs.directory import DESCRIPTION, Run, RunNotFoundError, list_runs
from velocirl.runs.finding import find_run
from velocirl.runs.memory_files import read_checkpoint
from velocirl.runs.model_score import ModelScore
from velocirl.runs.state_file import State

ENDING = ".safetensors"
SHIPPED = Path(__file__).parents[1] / "pretrained"  # pretrained models, named by environment id


def find_model(name: str | Path, *, best: bool | None = None, memory: bool = True) -> tuple[State, str, Run | None]:
    """Find a model; returns its state, its origin in words, and its run if it belongs to one."""
    path = Path(name).expanduser()
    file = path if path.suffix == ENDING or path.is_file() else path.with_name(f"{path.name}{ENDING}")
    if file.is_file() or file == path:
        return read_checkpoint(file, memory=memory), str(file), None
    if path.is_dir() and not (path / DESCRIPTION).is_file() and Checkpoints(path).any():
        return *model_in(Checkpoints(path), str(path), best=best, memory=memory), None
    try:
        run = find_run(str(path))
    except RunNotFoundError as error:
        shipped = shipped_model(str(path))
        if shipped is None:
            raise RunNotFoundError(f"there is no file {file}, and {error}") from None
        return read_checkpoint(shipped, memory=memory), say_shipped(shipped), None
    return *model_of(run, best=best, memory=memory), run


def shipped_model(name: str | None) -> Path | None:
    """Return the pretrained model of an environment; without a name and without runs, the default one."""
    shipped = {path.stem: path for path in sorted(SHIPPED.glob(f"*{ENDING}"), reverse=True)}
    if name is None:
        return None if list_runs() else next(iter(shipped.values()), None)
    return shipped.get(name)


def say_shipped(path: Path) -> str:
    """Format the origin of a pretrained model."""
    return f"the model that is shipped for {path.stem}"


def model_of(run: Run, *, best: bool | None = None, memory: bool = True) -> tuple[State, str]:
    """Load the best model of a run, or the newest if there is no best or `best` is False; returns it and its origin."""
    return model_in(run.checkpoints(), run.name, best=best, memory=memory)


def model_in(checkpoints: Checkpoints, name: str, *, best: bool | None, memory: bool) -> tuple[State, str]:
    """Load the best model in a directory of checkpoints, or the newest; returns it and its origin in words."""
    if best is not False:
        try:
            state = checkpoints.best()
        except NoCheckpointError:
            if best:
                raise
        else:
            return state, f"{say_best(state, name)}, of step {state.document.get('steps')}"
    checkpoint = checkpoints.latest(memory=memory)
    return checkpoint.state, f"the latest model of {name}, of step {checkpoint.step}"


def say_best(state: State, name: str) -> str:
    """Format the origin of a run's best model; with constraints, how its costs compare with them."""
    score = ModelScore.read(state.document.get(SCORE))
    if score is None or not score.costs:
        return f"the best model of {name}"
    least = ", which exceeds them least" if score.excess else ""
    return f"the best model of {name} ({score}{least})"
