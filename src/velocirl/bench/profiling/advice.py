"""Advice from a profile, each with its measurement: one table of rules over the phases of training."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from velocirl.bench.profiling.tree import PYTHON
from velocirl.bench.units import SECONDS

GAIN = 1.05  # smallest speedup at which a tried change counts as helpful


@dataclass(frozen=True)
class Advice:
    """Suggested change, and the measurement that supports it."""

    text: str
    measurement: str
    changes: dict[str, Any] = field(default_factory=dict)  # settings to try it with
    tried: float | None = None  # measured speedup with `changes`


@dataclass(frozen=True)
class Facts:
    """Facts about a training besides its phases; an unknown fact keeps its default, which no rule uses."""

    seconds: float = 0.0  # wall time; if 0, the phases are all the time
    iterations: int = 0
    environment: str = "ENV"  # as on a command line
    native: bool = True  # compiled, rather than Gymnasium's
    settings: Mapping[str, Any] = field(default_factory=dict)  # of the algorithm, as used
    cores: int = 1
    callbacks: int = 0  # called between iterations, without those that only measure
    gpu: bool = False  # available and usable
    hottest_line: str = ""  # of the environment, and its share
    growth: str = ""  # description of memory growth, if any
    filling: bool = False  # a replay buffer or a table was still filling up


@dataclass(frozen=True)
class View:
    """Shares of the phases, and the facts."""

    shares: Mapping[str, float]
    facts: Facts

    def share(self, path: str) -> float:
        """Return a phase's share of the total time, 0 if it is unknown."""
        return self.shares.get(path, 0.0)

    def setting(self, name: str) -> Any:
        """Return one setting, or None."""
        return self.facts.settings.get(name)


Rule = Callable[[View], Iterator[Advice]]


def advise(phases: Mapping[str, float], facts: Facts) -> list[Advice]:
    """Return advice, the largest share first; empty if no rule applies.

    `phases` are seconds by path, as in `agent.phases`: "rollout", "rollout/policy".
    """
    spent = sum(seconds for path, seconds in phases.items() if "/" not in path)
    total = max(facts.seconds, spent)
    if not phases or total <= 0:  # no phases were measured: the remainder is not all Python
        return list(_memory(facts))
    shares = {path: seconds / total for path, seconds in phases.items()}
    if facts.seconds > 0:
        shares[PYTHON] = max(1.0 - spent / total, 0.0)
    view = View(shares, facts)
    found = [
        (view.share(path), advice) for path, least, rule in RULES if view.share(path) >= least for advice in rule(view)
    ]
    found.sort(key=lambda pair: -pair[0])
    return [*(advice for _, advice in found), *_memory(facts)]


def with_trial(advice: Advice, times: float, low: float, high: float) -> Advice:
    """Add a trial's result to advice: `times` is the speedup, `low` and `high` are the extremes of the rounds."""
    verdict = "no faster" if times < GAIN else "faster" if low > 1.0 else "not clearly faster"
    tried = f"tried: {times:.2f} times the steps/s ({low:.2f} to {high:.2f}), {verdict}"
    return dataclasses.replace(advice, measurement=f"{advice.measurement}; {tried}", tried=times)


def option(changes: Mapping[str, Any]) -> str:
    """Format settings as command-line options."""
    return " ".join(f"--{name.replace('_', '-')} {value}" for name, value in changes.items())


def _say(view: View, path: str) -> str:
    return f"{path} takes {view.share(path):.0%} of the time"


def _lines(view: View) -> Iterator[Advice]:
    measurement = _say(view, "rollout/environment")
    if view.facts.hottest_line:
        yield Advice("make the hottest line of the environment cheaper", f"{measurement}; {view.facts.hottest_line}")
    else:
        command = f"velocirl profile train {view.facts.environment} --lines"
        yield Advice(f"look at the lines of the environment: {command}", measurement)


def _threads(view: View) -> Iterator[Advice]:
    """Advise more threads where rollouts or updates can use them and threads do not already wait for each other."""
    if view.setting("device") == "cuda" or view.share("update/waiting") >= WAITING:
        return
    threads, cores, copies = view.setting("threads"), view.facts.cores, view.setting("num_envs") or 0
    most = cores if view.setting("batch_size") is not None else min(cores, copies)  # sharded: updates or environments
    path = "update" if view.share("update") > view.share("rollout") else "rollout"
    if (view.facts.native or path == "update") and threads is not None and threads < most:
        changes = {"threads": most}
        measurement = f"{_say(view, path)}, on {threads} of {cores} cores"
        yield Advice(f"work on more cores: {option(changes)}", measurement, changes)


def _runtime(view: View) -> Iterator[Advice]:
    if view.setting("runtime") == "serial" and view.facts.native and view.facts.cores > 1:
        changes = {"runtime": "threads"}
        measurement = f"{_say(view, 'rollout')}, on 1 of {view.facts.cores} cores"
        yield Advice(f"learn on all cores: {option(changes)}", measurement, changes)


def _workers(view: View) -> Iterator[Advice]:
    settings = view.facts.settings
    if view.facts.native or "workers" not in settings or settings["workers"] is not None or view.facts.cores < 2:
        return
    if "storage" in settings:  # a table
        changes = {"runtime": "processes"}
    else:
        changes = {"workers": min(view.facts.cores, view.setting("num_envs") or 1)}
        if changes["workers"] < 2:
            return
    measurement = f"{_say(view, 'rollout')}, in 1 process on {view.facts.cores} cores"
    yield Advice(f"step the environment in worker processes: {option(changes)}", measurement, changes)


def _copies(view: View) -> Iterator[Advice]:
    copies = view.setting("num_envs")
    if copies is not None and copies < FEW_COPIES and view.setting("horizon") is not None:
        changes = {"num_envs": 4 * copies}
        text = f"more copies share each pass through the network: {option(changes)} (fewer updates for each step)"
        yield Advice(text, f"{_say(view, 'rollout/policy')} with {copies} copies", changes)


def _waiting(view: View) -> Iterator[Advice]:
    threads = view.setting("threads")
    if threads is not None and threads > 1:
        measurement = f"{_say(view, 'update/waiting')}, with {threads} threads"
        fewer = {"threads": threads // 2}
        yield Advice(f"threads wait for each other; use fewer: {option(fewer)}", measurement, fewer)
        yield from _larger(view, "threads wait for each other less often", measurement)


def _optimiser(view: View) -> Iterator[Advice]:
    yield from _larger(view, "the optimiser moves less often", _say(view, "update/optimiser"))


def _larger(view: View, why: str, measurement: str) -> Iterator[Advice]:
    """Advise larger minibatches if a rollout has room for them."""
    size, copies, horizon = (view.setting(name) for name in ("minibatch_size", "num_envs", "horizon"))
    if size is not None and copies is not None and horizon is not None and 2 * size <= copies * horizon:
        changes = {"minibatch_size": 2 * size}
        text = f"{why} with larger minibatches: {option(changes)} (fewer updates for each step)"
        yield Advice(text, f"{measurement}, with minibatches of {size}", changes)


def _python(view: View) -> Iterator[Advice]:
    horizon, facts = view.setting("horizon"), view.facts
    each = SECONDS.say(facts.seconds / facts.iterations) if facts.iterations else ""
    measurement = f"{PYTHON} take {view.share(PYTHON):.0%} of the time" + (f", iterations {each} each" if each else "")
    if facts.callbacks:
        yield Advice(
            "let callbacks do less: evaluate and save less often", f"{measurement}, {facts.callbacks} callbacks"
        )
    if horizon is not None:
        changes = {"horizon": 2 * horizon}
        yield Advice(f"longer iterations: {option(changes)}", measurement, changes)


def _device(view: View) -> Iterator[Advice]:
    if view.facts.gpu and view.setting("device") == "cpu":
        changes = {"device": "cuda"}
        yield Advice(f"train on the GPU: {option(changes)}", f"{_say(view, 'update')}, on the CPU", changes)


def _few_minibatches(view: View) -> Iterator[Advice]:
    size, copies, horizon = (view.setting(name) for name in ("minibatch_size", "num_envs", "horizon"))
    if view.setting("device") == "cuda" and size is not None and copies is not None and horizon is not None:
        count, wanted = copies * horizon // size, copies * horizon // FEW_MINIBATCHES
        if count > 2 * FEW_MINIBATCHES:
            changes = {"minibatch_size": wanted}
            text = f"give the GPU more to do at once: {option(changes)} (fewer updates for each step)"
            yield Advice(text, f"{_say(view, 'update')}, in {count:,} minibatches of {size}", changes)


def _fewer_updates(view: View) -> Iterator[Advice]:
    every, size, steps = view.setting("train_every"), view.setting("batch_size"), view.setting("gradient_steps")
    if every is not None and size is not None:
        changes = {"train_every": 2 * every}
        text = f"fewer updates: {option(changes)} (half of them for each step; compare how it learns)"
        rhythm = f"{steps or 1} updates of {size} transitions every {every} steps"
        yield Advice(text, f"{_say(view, 'update')}, {rhythm}", changes)


def _priorities(view: View) -> Iterator[Advice]:
    if view.setting("priority") not in (None, "none"):
        changes = {"priority": "none"}
        text = f"draw transitions uniformly: {option(changes)} (another algorithm)"
        yield Advice(text, f"{_say(view, 'update/sample')}, with {view.setting('priority')} priorities", changes)


def _network(view: View) -> Iterator[Advice]:
    spent = view.share("update/forward") + view.share("update/backward")
    epochs = view.setting("epochs")
    if spent >= MUCH and epochs is not None and epochs > 1 and not view.facts.gpu and view.setting("device") != "cuda":
        changes = {"epochs": epochs // 2}
        hidden = view.setting("hidden")
        network = f" or a smaller network (now --hidden {' '.join(map(str, hidden))})" if hidden else ""
        text = f"fewer passes over each rollout: {option(changes)} (now {epochs}){network}; compare how it learns"
        yield Advice(text, f"update/forward and update/backward take {spent:.0%} of the time", changes)


def _memory(facts: Facts) -> Iterator[Advice]:
    if facts.growth and not facts.filling:
        text = "look for what is kept from step to step: callbacks, infos, or the environment itself"
        yield Advice(text, f"resident memory {facts.growth}")


FEW_MINIBATCHES = 8  # of a rollout, on a GPU
FEW_COPIES = 256  # enough for about the best time per environment of a network pass
MUCH, WAITING = 0.4, 0.1
RULES: tuple[tuple[str, float, Rule], ...] = (  # phase, its smallest share of the time, rule
    ("rollout/environment", MUCH, _lines),
    ("rollout", MUCH, _threads),
    ("update", 0.60, _threads),
    ("rollout", MUCH, _runtime),
    ("rollout", MUCH, _workers),
    ("rollout/policy", 0.25, _copies),
    ("update/waiting", WAITING, _waiting),
    ("update/optimiser", 0.15, _optimiser),
    ("update/sample", 0.25, _priorities),
    ("update", 0.50, _device),
    ("update", 0.50, _few_minibatches),
    ("update", 0.50, _network),
    ("update", 0.70, _fewer_updates),
    (PYTHON, 0.15, _python),
)
