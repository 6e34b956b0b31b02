"""Random calls, legal and illegal, on every built-in environment and on environments that nobody thought of.

Each environment gets single copies and fleets, on threads and in plain Python, and random calls of all that one can do
with them: resets with seeds and options, actions that are right, wrong or no numbers at all, states that were tampered
with. A call that is refused must say so, with one of the errors below, and change nothing; whatever is given back must
lie in its space. Each environment has a process of its own, so that a crash or a hang is seen and told.

    python tools/fuzz_environments.py --calls 1000000 --seed 0
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.error import Error
from gymnasium.spaces import Box, Discrete

import velocirl
from velocirl.engine import registry

REFUSALS = (ValueError, TypeError, RuntimeError, IndexError, OverflowError, Error)
SECONDS_A_CALL = 0.01  # on average, before an environment counts as hung
OWN = 12  # environments that are made up
LOOK_EVERY = 8  # calls: spaces and states are compared then, which takes longer than most calls


def make_up(number: int, draw: random.Random) -> str:
    """The source of an environment with random fields, spaces and functions."""
    kinds = draw.sample(["float32", "float64", "int32", "int64", "bool_", "int8[4]", "float32[3]", "uint8[2]"], 3)
    fields = {"count": "int32", **{f"field{k}": kind for k, kind in enumerate(kinds)}}
    action, reading = draw.choice([
        ("Discrete(5)", "action"), ("MultiDiscrete([3, 4])", "action[1]"), ("Box(-1.0, 1.0, (2,))", "action[0]"),
    ])  # fmt: skip
    observation, shown = draw.choice([
        ("Discrete(50)", "observation[0] = state.count % 50"),
        ("MultiDiscrete([7, 9])", "observation[0] = state.count % 7\n    observation[1] = 8"),
        ("Box(-1e6, 1e6, (3,))", "for k in range(3):\n        observation[k] = k + state.count"),
        ("Box(0, 255, (4, 4), uint8_type)", "observation[:, :] = state.count % 256"),
    ])  # fmt: skip
    begin, move = ["state.count = 0"], ["state.count += 1"]
    for name, kind in list(fields.items())[1:]:
        base, _, size = kind.partition("[")
        fresh = {"f": "random.uniform(rng, -1.0, 1.0)", "b": "random.uniform(rng) < 0.5"}.get(base[0])
        fresh = fresh or "random.integer(rng, 0, 7)"
        if size:
            begin.append(f"for k in range({size[0]}):\n        state.{name}[k] = {fresh}")
            move.append(f"state.{name}[state.count % {size[0]}] = {fresh}")
        else:
            begin.append(f"state.{name} = {fresh}")
            move.append(f"state.{name} = {fresh}")
    masked = not action.startswith("Box") and draw.random() < 0.5
    width = 5 if action.startswith("Discrete") else 7
    legal = f"mask[k] = 1 if (k + state.count) % 2 == 0 or k in (0, {width - 1}) else 0" if masked else ""
    return "\n".join([
        "from numpy import uint8 as uint8_type",
        "from velocirl import *",
        "from velocirl import random",
        "@record", "class State:", *(f"    {name}: {kind}" for name, kind in fields.items()),
        "@record", "class Params:", "    chance: float32 = 0.05",
        "def reset(state, params, rng):", *(f"    {line}" for line in begin),
        "def step(state, params, action, rng):", *(f"    {line}" for line in move),
        f"    return 0.5 * {reading}, random.uniform(rng) < params.chance",
        "def observe(state, params, observation):", f"    {shown}",
        *([f"def legal(state, params, mask):\n    for k in range({width}):\n        {legal}"] if masked else []),
        f"environment = Environment('MadeUp{number}-v0', state=State, params=Params, observation={observation},",
        f"    action={action}, max_steps={draw.choice([None, 1, 7, 200])}, reset=reset, step=step, observe=observe,",
        f"    legal={'legal' if masked else None}, report=('count',))",
    ])  # fmt: skip


def subjects(directory: Path, draw: random.Random) -> Iterator[Callable[[], Any]]:
    """What gives each environment, in the process that needs it."""
    for name in velocirl.list_envs():
        if registry.find(name).source.startswith(registry.BUILT_IN):
            yield lambda name=name: registry.find(name)
    for number in range(OWN):
        path = directory / f"made_up_{number}.py"
        path.write_text(make_up(number, draw))
        yield lambda path=path: _import(path)


def _import(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None  # noqa: S101, PT018 - it was just written
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module.environment


class Fuzz:
    """Random calls on one environment."""

    def __init__(self, environment: Any, draw: random.Random) -> None:
        self._environment, self._draw = environment, draw
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []

    def run(self, calls: int) -> None:
        """Make so many calls, on fleets of several kinds and on single copies."""
        kinds = [{"device": "cpu", "threads": 1}, {"device": "cpu", "threads": 2}, {"device": "python"}]
        shares = 0.5, 0.2, 0.05
        for kind, share in zip(kinds, shares, strict=True):
            fleet = velocirl.make_vec(self._environment, self._draw.choice([1, 2, 5, 33]), seed=1, **kind)
            self._play(fleet, int(calls * share), self._fleet_call)
            self._refused_when_closed(fleet)
        single = velocirl.make(self._environment)
        self._play(single, calls - int(calls * sum(shares)), self._single_call)

    def _refused_when_closed(self, fleet: Any) -> None:
        fleet.close()
        for call in (fleet.reset, lambda: fleet.step(self._actions(fleet)), lambda: fleet.run_randomly(3)):
            try:
                call()
            except Error:
                self.counts["refused"] += 1
            else:
                self.wrong.append("a fleet that was closed went on")

    def _play(self, envs: Any, calls: int, choose: Callable[[Any], tuple[str, Callable[[], Any]]]) -> None:
        for _ in range(calls):
            name, call = choose(envs)
            look = self._draw.randrange(LOOK_EVERY) == 0
            before = self._state(envs) if look else None
            try:
                given = call()
            except REFUSALS as error:
                self.counts["refused"] += 1
                if not str(error).strip():
                    self.wrong.append(f"{name}: refused without a word")
                if look and not _same(before, self._state(envs)):
                    self.wrong.append(f"{name}: refused ({error}), and something has changed")
            else:
                self.counts["done"] += 1
                if name.startswith("bad"):
                    self.wrong.append(f"{name}: taken")
                elif look:
                    self._check(name, envs, given)
            if len(self.wrong) > 5:  # enough to look into
                return

    def _check(self, name: str, envs: Any, given: Any) -> None:
        if name in ("reset", "step") and not envs.observation_space.contains(given[0]):
            self.wrong.append(f"{name}: {given[0]} is not in {envs.observation_space}")
        if name == "step" and not np.all(np.isfinite(given[1])):
            self.wrong.append(f"step: a reward of {given[1]}")

    @staticmethod
    def _state(envs: Any) -> Any:
        return {name: np.array(array) for name, array in envs.target.copies._asdict().items() if name in SEEN}

    def _fleet_call(self, envs: Any) -> tuple[str, Callable[[], Any]]:
        draw, count = self._draw, envs.num_envs
        kind = draw.choices(["step", "bad step", "reset", "bad reset", "masked reset", "state", "bad state", "random"],
                            [60, 15, 3, 4, 3, 2, 3, 5])[0]  # fmt: skip
        if kind == "step":
            return kind, lambda: envs.step(self._actions(envs))
        if kind == "bad step":
            bad = draw.choice(list(self._bad_actions(envs)))
            return kind, lambda: envs.step(bad)
        if kind == "reset":
            return kind, lambda: envs.reset(seed=draw.choice([None, 0, 2**64 - 1, list(range(count))]))
        if kind == "bad reset":
            bad_seed: Any = draw.choice([-1, 2**64, 1.5, "7", [1] * (count + 1), [-1] * count, None])
            return kind, lambda: envs.reset(seed=bad_seed, options={"nonsense": 1} if bad_seed is None else None)
        if kind == "masked reset":
            mask = np.array([draw.random() < 0.5 for _ in range(count)])
            mask[0] = True
            return kind, lambda: envs.reset(options={"reset_mask": mask})
        if kind == "random":
            return kind, lambda: envs.run_randomly(draw.randrange(20))
        state = envs.get_state()
        if kind == "state":
            return kind, lambda: envs.set_state(state)
        bad_state = draw.choice([
            {name: array for name, array in state.items() if name != "rng"}, {**state, "more": state["rng"]},
            {**state, "elapsed": state["elapsed"] - 2**30}, {**state, "rng": state["rng"] * 0},
            {**state, "observation": state["observation"][:, :0]}, {**state, "mask": state["mask"] + 7},
            {**state, "state": np.concatenate([state["state"], state["state"]])},
        ])  # fmt: skip
        return kind, lambda: envs.set_state(bad_state)

    def _single_call(self, env: Any) -> tuple[str, Callable[[], Any]]:
        draw = self._draw
        kind = draw.choices(["step", "bad step", "reset", "bad reset"], [60, 15, 10, 3])[0]
        if kind == "step":  # refused after the end of an episode
            return kind, lambda: env.step(self._legal(env.copies.mask[0]))
        if kind == "bad step":
            bad: Any = draw.choice([None, "left", [], np.full(50, 0), float("nan"), -1000, 10**6, object(), {}, 1e300])
            return kind, lambda: env.step(bad)
        if kind == "reset":
            return kind, lambda: env.reset(seed=draw.choice([None, 0, 5]))
        return kind, lambda: env.reset(seed=draw.choice([-1, 2**64, "x"]))

    def _actions(self, envs: Any) -> Any:
        return np.array([self._legal(mask) for mask in envs.copies.mask])

    def _legal(self, mask: Any) -> Any:
        """A legal action of one copy, drawn by Gymnasium's own space."""
        space = self._environment.action
        if self._environment.legal is None:
            return space.sample()
        if isinstance(space, Discrete):
            return space.sample(mask=np.ascontiguousarray(mask))
        return space.sample(mask=tuple(np.split(mask, np.cumsum(space.nvec)[:-1])))

    def _bad_actions(self, envs: Any) -> Iterator[Any]:
        """Actions that no fleet of this environment has."""
        good = self._actions(envs)
        yield from (None, "left", [], good[:-1], np.concatenate([good, good]), good[None], [object()] * len(good))
        space = envs.single_action_space
        if isinstance(space, Box):
            yield from (good * np.nan, good + np.inf, good.astype(complex), np.full_like(good, np.nan))
        else:
            yield from (good - 1000, good + 1000, good + 2**31, good.astype(float) + 0.5, np.full(good.shape, -1))
            yield from (good.astype(np.uint8) + np.uint8(200), good * np.nan)


SEEN = ("state", "params", "rng", "elapsed", "total", "observation", "mask")


def _same(one: Any, other: Any) -> bool:
    return all(_bytes(one[name]) == _bytes(other[name]) for name in one)


def _bytes(array: Any) -> list[bytes]:
    """The numbers to the last bit; what lies between the fields of records means nothing."""
    return [array[name].tobytes() for name in array.dtype.names] if array.dtype.names else [array.tobytes()]


def in_child(find: Callable[[], Any], calls: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Fuzz an environment in a process of its own; how calls ended, and what was wrong."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        signal.setitimer(signal.ITIMER_REAL, 120 + SECONDS_A_CALL * calls)
        warnings.simplefilter("ignore")
        try:
            environment = find()
            fuzz = Fuzz(environment, random.Random(seed))  # noqa: S311 - no secret
            with np.errstate(all="ignore"):
                fuzz.run(calls)
            wrong, counts = [f"{environment.id}: {one}" for one in fuzz.wrong], fuzz.counts
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is told
            wrong, counts = [f"raised {type(error).__name__}: {error}"], Counter()
        said = "\n".join([f"{counts['done']} {counts['refused']}", *(one.replace("\n", " ") for one in wrong)])
        os.write(write, said.encode()[: 2**15])
        os._exit(0)
    os.close(write)
    with open(read, "rb") as answer:  # noqa: PTH123 - a descriptor
        said = answer.read().decode()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        what = "hung" if number == signal.SIGALRM else f"crashed with {signal.Signals(number).name}"
        return Counter(), [f"{find().id} {what}"]
    first, *wrong = said.splitlines()
    done, refused = map(int, first.split())
    return Counter(done=done, refused=refused), wrong


def run(calls: int, seed: int, tell: Callable[[str], None]) -> tuple[Counter[str], list[str]]:
    """So many calls, spread over all environments; how they ended, and what was wrong."""
    draw, counts, wrong, begun = random.Random(seed), Counter(), [], time.monotonic()  # noqa: S311
    with tempfile.TemporaryDirectory() as directory:
        every = list(subjects(Path(directory), draw))
        for number, find in enumerate(every, 1):
            ends, found = in_child(find, -(-calls // len(every)), draw.randrange(2**31))
            counts += ends
            wrong += found
            for line in found:
                tell(line)
            left = (time.monotonic() - begun) / number * (len(every) - number)
            tell(f"{number} of {len(every)} environments, {left:.0f} s left: {dict(counts)}")
    return counts, wrong


def main() -> int:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=1_000_000, help="Number of calls, over all environments")
    parser.add_argument("--seed", type=int, default=0, help="Seed of the calls")
    given = parser.parse_args()
    counts, wrong = run(given.calls, given.seed, lambda text: print(text, flush=True))
    print(f"{sum(counts.values()):,} calls: {counts['done']:,} done, {counts['refused']:,} refused, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
