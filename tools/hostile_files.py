"""Checkpoints that mean no good: whole, with a valid checksum, and wrong in one place. None of them may do harm.

Every algorithm is trained for a moment and saved. Then each of its arrays in turn gets values that no index or count
may have, other shapes and types, or goes missing; each key of its document is changed, removed or doubled. Each file is
opened in a process of its own under a limit of memory and time. It passes if it is

- refused: loading it, or beginning to train from it, raises an error that says what is wrong; or
- harmless: the agent acts and trains on as any agent does, or stops with an error that names the number.

    python tools/hostile_files.py --files 2000 --seed 0
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

os.environ["OMP_NUM_THREADS"] = "1"  # torch's threads would be missing in a child

from hostile_children import in_child
from small_agents import small_agents

import velocirl
from velocirl.engine.disk.safetensors_layout import tensor_bytes
from velocirl.engine.disk.writing import strict_json
from velocirl.program.faults import NumericalError
from velocirl.runs import state_file
from velocirl.runs.state_file import State, write_state
from velocirl.training.agent import Agent

REFUSALS = (ValueError, MemoryError, NumericalError, OSError, velocirl.DefinitionError)


@dataclasses.dataclass(frozen=True)
class Hostile:
    """One file: what was done to the state of which agent, and the function that does it."""

    agent: str
    name: str
    change: Callable[[State], bytes | State]


def trained(only: str = "") -> Iterator[tuple[str, State]]:
    """The state of each agent, or of those whose labels begin like `only`, after a moment of training."""
    for one in small_agents(only):
        yield one.label, one.make().learn(256).state()


def corpus(name: str, state: State) -> Iterator[Hostile]:
    """All that is done to one state."""
    for array in state.arrays:
        for change, function in _array_changes(state.arrays[array]):
            yield Hostile(name, f"{array}: {change}", _with_array(array, function))
    yield Hostile(name, "an array more", lambda s: State({**s.arrays, "more": np.zeros(3)}, s.document))
    for path in _paths(state.document):
        for change, value in _values(_at(state.document, path)):
            yield Hostile(name, f"{'.'.join(path)} = {change}", _with_value(path, value))
        yield Hostile(name, f"{'.'.join(path)} removed", _without(path))
        yield Hostile(name, f"{'.'.join(path)} doubled", _doubled(path))
    for path in ((), ("config",)):
        yield Hostile(name, f"{'.'.join((*path, 'more'))} added", _with_value((*path, "more"), 1))
    yield Hostile(name, "a document of many levels", _with_value(("best",), _deep(5000)))


def verdict(hostile: Hostile, state: State, directory: Path) -> str:
    """Refused, harmless, or what went wrong, of a file that is opened in a child."""
    changed = hostile.change(state)
    path = directory / "hostile.safetensors"
    if isinstance(changed, State):
        try:
            write_state(path, changed.arrays, changed.document)
        except (ValueError, TypeError, RecursionError):
            return "impossible"  # no file can say this
    else:
        path.write_bytes(changed)
    return in_child(lambda: _use(path))


def _use(path: Path) -> str:
    """Load a file, act, and train on for a little."""
    try:
        agent: Any = Agent.load(path)
    except REFUSALS as error:
        return "refused" if str(error).strip() else "refused without a word"
    try:
        observation = agent.source.make_evaluation(1, 0).reset(seed=0)[0]
        agent.predict(observation, deterministic=True)
        agent.goal = None
        agent.learn(64)
    except REFUSALS as error:
        return "stopped" if str(error).strip() else "stopped without a word"
    return "harmless"


def _array_changes(array: np.ndarray) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    if array.dtype.names:
        for field in array.dtype.names:
            for change, function in _number_changes(array[field]):
                yield f"{field} {change}", _in_field(field, function)
    else:
        yield from _number_changes(array)
    yield "missing", lambda given: None  # noqa: ARG005
    yield "empty", lambda given: given[:0]
    yield "one row more", lambda given: np.concatenate([given, given[:1]])
    yield "one row less", lambda given: given[:-1]
    yield "one dimension more", lambda given: given[None]
    if not array.dtype.names:
        other = np.float64 if array.dtype != np.float64 else np.float32
        yield "of another type", lambda given: given.astype(other)


def _number_changes(array: np.ndarray) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    if array.dtype.kind == "f":
        values: list[Any] = [np.nan, np.inf, -np.inf, 1e30]
    elif array.dtype.kind == "b":
        values = [True]
    else:
        bounds = np.iinfo(array.dtype)
        values = [one for one in (bounds.min, bounds.max, -1, 0, 3, 1000, 7777) if bounds.min <= one <= bounds.max]
    for value in values:
        yield f"all {value}", lambda given, value=value: np.full_like(given, value)
        yield f"last {value}", lambda given, value=value: _last(given, value)


def _last(array: np.ndarray, value: Any) -> np.ndarray:
    changed = array.copy()
    if changed.size:
        changed.reshape(-1)[-1] = value
    return changed


def _in_field(field: str, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def change(given: Any) -> Any:
        changed = given.copy()
        changed[field] = function(given[field])
        return changed

    return change


def _with_array(name: str, function: Callable[[Any], Any]) -> Callable[[State], State]:
    def change(state: State) -> State:
        changed = function(state.arrays[name])
        rest = {one: array for one, array in state.arrays.items() if one != name}
        return State(rest if changed is None else {**rest, name: changed}, state.document)

    return change


def _paths(document: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in document.items():
        yield (*path, key)
        if isinstance(value, dict):
            yield from _paths(value, (*path, key))


def _at(document: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        document = document[key]
    return document


def _values(value: Any) -> Iterator[tuple[str, Any]]:
    """Other values of a key: of its own kind and of others."""
    huge = 10**6
    others = [None, -5, 0, 2**31 - 1, 2**62, 2**70, 1e308, -0.5, True, "", "x" * 1000, "mlp(1000000, 1000000)", [],
              [5, -7], [huge, huge], [4000, 4000], {}, {"length": huge}, "/etc/passwd", "gym:os:system"]  # fmt: skip
    for other in others:
        if other != value:
            yield json.dumps(other)[:40], other


def _with_value(path: tuple[str, ...], value: Any) -> Callable[[State], State]:
    return lambda state: State(state.arrays, _put(state.document, path, value))


def _put(document: Any, path: tuple[str, ...], value: Any) -> Any:
    first, *rest = path
    return {**document, first: value if not rest else _put(document[first], tuple(rest), value)}


def _without(path: tuple[str, ...]) -> Callable[[State], State]:
    *above, last = path

    def change(state: State) -> State:
        inner = {key: value for key, value in _at(state.document, tuple(above)).items() if key != last}
        return State(state.arrays, _put(state.document, tuple(above), inner) if above else inner)

    return change


def _doubled(path: tuple[str, ...]) -> Callable[[State], bytes]:
    """The bytes of a file whose document has a key twice, with a checksum that is right."""

    def change(state: State) -> bytes:
        text = strict_json(state.document)
        key = json.dumps(path[-1])
        place = text.index(f"{key}:", 0 if len(path) == 1 else text.index(f'"{path[0]}":'))
        text = f"{text[:place]}{key}:null,{text[place:]}"
        tensors = dict(
            sorted(
                (pair for name, array in state.arrays.items() for pair in state_file._take_apart(name, array)),
                key=lambda item: (-item[1].itemsize, item[0]),
            )
        )
        header = state_file._header(tensors, text, state_file._digest(text, tensors))
        parts = [len(header).to_bytes(8, "little"), header, *map(tensor_bytes, tensors.values())]
        return b"".join(bytes(part) for part in parts)

    return change


def _deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


def run(files: int, seed: int, tell: Callable[[str], None], only: str = "") -> tuple[Counter[str], list[str]]:
    """So many files, spread over all agents or over some; how they ended, and those that did harm."""
    every = [(one, state) for name, state in trained(only) for one in corpus(name, state)]
    chosen = random.Random(seed).sample(every, min(files, len(every)))  # noqa: S311 - a sample, not a secret
    ends: Counter[str] = Counter()
    harmful: list[str] = []
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        for count, (one, state) in enumerate(chosen, 1):
            end = verdict(one, state, Path(directory))
            ends[end if end in PASSES else "harmful"] += 1
            if end not in PASSES:
                harmful.append(f"{one.agent}; {one.name}: {end}")
                tell(harmful[-1])
            if count % 100 == 0:
                left = (time.monotonic() - begun) / count * (len(chosen) - count)
                tell(f"{count} of {len(chosen)} files (of {len(every)} there are), {left:.0f} s left: {dict(ends)}")
    return ends, harmful


PASSES = ("refused", "stopped", "harmless", "impossible")


def main() -> int:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=2000, help="Number of files, drawn from all there are")
    parser.add_argument("--seed", type=int, default=0, help="Seed of the draw")
    parser.add_argument("--only", default="", metavar="AGENT", help="Only files of these agents, such as dqn")
    given = parser.parse_args()
    ends, harmful = run(given.files, given.seed, lambda text: print(text, flush=True), given.only)
    print(f"{sum(ends.values())} files: {dict(ends)}")
    for line in harmful:
        print(line)
    return 1 if harmful else 0


if __name__ == "__main__":
    sys.exit(main())
