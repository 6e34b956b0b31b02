"""Programs: an algorithm's stages as they are run, with every name in them resolved and checked.

Stages between two reductions form a pass; its rows are independent of each other. An invalid stage is reported when an
agent is created, with the algorithm's file, the stage, and what to write instead.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress, product
from math import nan
from typing import Any

from velocirl.engine.compiler.caching.fingerprint import names_reached
from velocirl.engine.errors import DefinitionError
from velocirl.engine.naming import nearest
from velocirl.networks.declared import Declared, Network, Number, TargetNetwork
from velocirl.program.several import flat_names, name_of
from velocirl.program.stages import (
    Backward,
    Column,
    Each,
    Every,
    Follow,
    Forward,
    Mean,
    Once,
    Stage,
    Step,
    Stop,
    When,
    flat,
)  # fmt: skip

HEAD = "head"
GRADIENT, SLOPE = "_gradient", "_slope"  # suffixes: of a forward pass's name, and of a field's
ROW_WORDS = ("row", "metrics", "means", "numbers", "settings", "rng")
ONCE_WORDS = ("means", "numbers", "settings")
ROLLOUT_WORDS = ("episodes", "numbers", "settings")  # for a `once` after a rollout
FIXED = ("action", "mask", "next_mask")  # row fields that an update only reads
ACTING_WORDS = ("row", "mask", "rng", "exploration", "noise", "settings")


@dataclass(frozen=True)
class Call:
    """Scalar function and the names of its arguments, without the head."""

    function: Callable[..., Any]
    arguments: tuple[str, ...]
    takes_head: bool
    metrics: tuple[str, ...] = ()  # the fields of `metrics` that it adds to

    @property
    def gradients(self) -> list[str]:
        """The forward passes whose gradients the function writes."""
        return [name.removesuffix(GRADIENT) for name in self.arguments if name.endswith(GRADIENT)]


@dataclass(frozen=True)
class Pass:
    """Stages that each row passes through in turn, independently of other rows."""

    stages: tuple[Forward | Call | Backward, ...]
    every: str | None  # the setting with its period; None if it runs in every update


@dataclass(frozen=True)
class Meeting:
    """Reduction over all rows: a mean, a step, a number, a stop, or a target network's update."""

    stage: Mean | Step | Once | Stop | Follow
    call: Call | None  # the function of a mean, a once or a stop
    every: str | None


@dataclass(frozen=True)
class Program:
    """An update as passes and reductions."""

    steps: tuple[Pass | Meeting, ...]
    metrics: tuple[str, ...]  # metrics that functions use, in the order of declaration

    @property
    def passes(self) -> list[Pass]:
        """The passes, in order."""
        return [one for one in self.steps if isinstance(one, Pass)]

    @property
    def forwards(self) -> dict[str, Forward]:
        """All forward passes by name."""
        return {one.name: one for part in self.passes for one in part.stages if isinstance(one, Forward)}

    @property
    def calls(self) -> list[Call]:
        """All functions called for each row."""
        return [one for part in self.passes for one in part.stages if isinstance(one, Call)]

    @property
    def functions(self) -> list[Call]:
        """All functions, including those called once."""
        return [*self.calls, *(one.call for one in self.steps if isinstance(one, Meeting) and one.call is not None)]

    @property
    def first_trained(self) -> str:
        """The network that takes the first step of an update."""
        stages = [one.stage for one in self.steps if isinstance(one, Meeting)]
        return next(one.network for one in stages if isinstance(one, Step))

    @property
    def shares(self) -> list[str]:
        """Settings with the averaging fractions of target networks."""
        return [one.stage.share for one in self.steps if isinstance(one, Meeting) and isinstance(one.stage, Follow)]

    @property
    def periods(self) -> list[str]:
        """Settings with the periods of stages that do not run in every update."""
        return list(dict.fromkeys(one.every for one in self.steps if one.every is not None))

    def due(self, config: Any, number: int) -> frozenset[str]:
        """Return the settings of `periods` that are due at update `number` of a run."""
        return frozenset(name for name in self.periods if number % getattr(config, name) == 0)

    def kinds_of_updates(self) -> list[frozenset[str]]:
        """Return all combinations of periods that may be due in the same update."""
        either = product((False, True), repeat=len(self.periods))
        return [frozenset(compress(self.periods, flags)) for flags in either]


class Resolver:
    """Resolver of the names of one algorithm; `algorithm` is used in messages."""

    def __init__(
        self,
        algorithm: type,
        networks: Mapping[str, Declared],
        fields: Sequence[str],  # fields of a row, including observations
        metrics: Sequence[str],  # metrics that the algorithm declares
        config: Any,
    ) -> None:
        self._algorithm, self._networks, self._config = algorithm, networks, config
        self._fields, self._metrics = list(fields), list(metrics)
        for name, one in networks.items():
            if isinstance(one, TargetNetwork) and not isinstance(networks.get(one.of), Network):
                advice = f"name a network that learns{self._near(one.of, Network)}"
                raise self._error(f"networks[{name!r}]", f"there is no network {one.of!r}", advice)

    def program(self, stages: Sequence[Any]) -> Program:
        """Return the stages of an update as passes and reductions."""
        found = list(self._walk(flat(tuple(stages)), None))
        steps: list[Pass | Meeting] = []
        pending: list[Any] = []
        known = _Known()
        every: str | None = None

        def close() -> None:
            if pending:
                steps.append(Pass(tuple(pending), every))
                pending.clear()

        for place, (stage, period) in enumerate(found):
            if period != every:
                close()
                every = period
            following = [one for one, _ in found[place + 1 :]]
            if isinstance(stage, (Forward, Each, Backward)):
                pending.append(self._row_stage(stage, known, following))
            else:
                close()
                steps.append(Meeting(stage, self._meeting_call(stage, known), period))
        close()
        program = Program(tuple(steps), ())
        functions = [call.function for call in program.functions]
        reached = names_reached(*functions)
        return replace(program, metrics=tuple(one for one in self._metrics if name_of(one) in reached))

    def starts_of(self, number: str, given: Mapping[str, float]) -> dict[str, float]:
        """Return the initial value of a number, or of each of its entries, by flat name.

        The value is `given[start]` if there is one, else the setting named `start`.
        """
        declared = self._networks[number]
        assert isinstance(declared, Number)  # noqa: S101 - only these begin somewhere
        start, stage = declared.start, f"Number({declared.start!r}) {number}"
        if declared.each is not None:
            self._setting(stage, declared.each)
        value = given[start] if start in given else self._setting(stage, start)
        return dict.fromkeys(flat_names(number, declared.each, self._config), value)

    def acting(self, function: Callable[..., Any], network: str) -> Call:
        """Resolve a function that draws an action, or reads a value, from a network's output."""
        return self._call(function, (network, *ACTING_WORDS), f"{function.__name__}, which acts")

    def estimating(self, function: Callable[..., Any]) -> Call:
        """Resolve a function that reads the value of a state or an action from the outputs of networks."""
        learnt = [name for name, one in self._networks.items() if isinstance(one, Network)]
        return self._call(
            function, (*learnt, "action", "row", "mask", "settings"), f"{function.__name__}, which estimates"
        )

    def once_after(self, stages: Sequence[Any]) -> list[Call]:
        """Resolve the functions that are called once, after the functions over columns."""
        found = [stage for stage, _ in self._walk(flat(tuple(stages)), None) if isinstance(stage, Once)]
        for stage in found:
            if stage.steps is not None:
                raise self._error(stage, f"steps {stage.steps!r}", "only in `update`: here, write to numbers")
        return [self._call(stage.function, ROLLOUT_WORDS, str(stage)) for stage in found]

    def episodes_before(self, stages: Sequence[Any]) -> int:
        """Return how many episodes must end before the stages' functions are called: the setting of their `every`."""
        found = list(self._walk(flat(tuple(stages)), None))
        for stage, _ in found:
            if not isinstance(stage, Once):
                raise self._error(stage, "is not decided by episodes", "write once(function)")
        periods = {period for _, period in found}
        if len(periods) > 1:
            raise self._error("decide", "has several periods", 'write one every("setting", ...) around all of it')
        return max((int(getattr(self._config, one)) for one in periods if one is not None), default=1)

    def columns(self, stages: Sequence[Any], fields: Sequence[str]) -> list[tuple[Callable[..., Any], list[str]]]:
        """Return functions over an environment's time column, each with the fields of its arguments, or `settings`."""
        found = []
        for stage, _ in self._walk(flat(tuple(stages)), None):
            if isinstance(stage, Once):
                continue
            if not isinstance(stage, Column):
                raise self._error(stage, "is not a column", "write column(function), as in column(gae)")
            names = [stage.names.get(name, name) for name in _names(stage.function)]
            for name in names:
                if name not in (*fields, "settings"):
                    raise self._error(stage, f"has no field {name!r}", f"a rollout has{nearest(name, fields)}")
            found.append((stage.function, names))
        return found

    def _walk(self, stages: tuple[Stage, ...], every: str | None) -> Iterator[tuple[Any, str | None]]:
        """Yield the stages that the configuration selects, each with the setting of its period."""
        for stage in stages:
            if isinstance(stage, When):
                chosen = stage.stages if self._setting(stage, stage.setting) else stage.otherwise
                yield from self._walk(chosen, every)
            elif isinstance(stage, Every):
                period = self._setting(stage, stage.setting)
                yield from self._walk(stage.stages, every if period == 1 else stage.setting)
            elif not isinstance(stage, Stage):
                name = getattr(stage, "__name__", stage)
                raise self._error(name, "is not a stage", "write forward(...), each(...), backward(...), step(...)")
            else:
                function = getattr(stage, "function", None)
                if not isinstance(stage, Mean) and hasattr(stage, "function") and not inspect.isfunction(function):
                    word = f"{type(stage).__name__.lower()}({function!r})"
                    raise self._error(word, "is of no function", "write one with def, and give it by its name")
                yield stage, every

    def _row_stage(self, stage: Any, known: _Known, following: list[Any]) -> Forward | Call | Backward:
        if isinstance(stage, Forward):
            network = self._network(stage, stage.network)
            reads = network.reads if isinstance(network, Network) else ()
            if reads and len(reads) != len(stage.reads):
                raise self._error(stage, f"gives {stage.network} {len(stage.reads)} fields", f"it reads {len(reads)}")
            for name in stage.reads:
                if name not in self._fields:
                    raise self._error(stage, f"reads {name!r}", f"a row has no such field{nearest(name, self._fields)}")
            if isinstance(stage.rows, str):
                self._setting(stage, stage.rows)
            known.forwards[stage.name] = stage
            known.written.discard(stage.name)
            return stage
        if isinstance(stage, Backward):
            if stage.name not in known.forwards:
                raise self._error(stage, "has no forward pass before it", f"write forward({stage.name!r}, ...) first")
            if stage.name not in known.written:
                advice = f"write each(function) before it, of a function with an argument {stage.name}{GRADIENT}"
                raise self._error(stage, f"no function writes the gradient of {stage.name!r}", advice)
            network = known.forwards[stage.name].network
            if stage.into is None and isinstance(self._networks[network], TargetNetwork):
                raise self._error(stage, f"{network!r} is a target network, which only follows", "write into=...")
            if stage.into is None:
                known.learnt.add(network)
            else:
                if stage.into not in known.forwards[stage.name].reads:
                    reads = ", ".join(known.forwards[stage.name].reads)
                    raise self._error(stage, f"goes into {stage.into!r}", f"{stage.name} read {reads}")
                known.slopes.append(stage.into)
            return stage
        following_backward = next((one.name for one in following if isinstance(one, Backward)), None)
        gradients = [f"{name}{GRADIENT}" for name in known.forwards] + ["gradient"] * (following_backward is not None)
        words = [*known.forwards, *ROW_WORDS, *gradients, *(f"{name}{SLOPE}" for name in known.slopes)]
        call = self._call(stage.function, words, str(stage))
        arguments = tuple(f"{following_backward}{GRADIENT}" if name == "gradient" else name for name in call.arguments)
        made = Call(call.function, arguments, call.takes_head, call.metrics)
        known.written.update(made.gradients)
        return made

    def _meeting_call(self, stage: Any, known: _Known) -> Call | None:
        if isinstance(stage, Step):
            if not isinstance(self._networks.get(stage.network), Network):
                advice = f"name one of networks{self._near(stage.network, Network)}"
                raise self._error(stage, "is of no network that learns", advice)
            if stage.network not in known.learnt:
                raise self._error(stage, "has no gradient to follow", f"write backward({stage.network!r}) before it")
            return None
        if isinstance(stage, Follow):
            target = self._networks.get(stage.target)
            if not isinstance(target, TargetNetwork) or target.of != stage.source:
                raise self._error(stage, f"{stage.target!r} is no target network of {stage.source!r}",
                                  f"declare it as TargetNetwork({stage.source!r})")  # fmt: skip
            self._setting(stage, stage.share)
            return None
        if isinstance(stage, Mean):
            return None if stage.then is None else self._call(stage.then, ("means", "settings"), str(stage))
        if (
            isinstance(stage, Once)
            and stage.steps is not None
            and not isinstance(self._networks.get(stage.steps), Number)
        ):
            raise self._error(
                stage, f"steps {stage.steps!r}", f"there is no such number{self._near(stage.steps, Number)}"
            )
        return self._call(stage.function, ONCE_WORDS, str(stage))

    def _call(self, function: Callable[..., Any], words: Sequence[str], stage: str) -> Call:
        names = _names(function)
        takes_head = names[:1] == [HEAD]
        for name in names[takes_head:]:
            if name not in words:
                what = "comes first" if name == HEAD else f"is not known here{nearest(name, [HEAD, *words])}"
                raise self._error(stage, f"its argument {name!r} {what}", "an argument says by its name what it is",
                                  function)  # fmt: skip
        reached = names_reached(function) if "metrics" in names else frozenset()
        metrics = tuple(one for one in self._metrics if name_of(one) in reached)
        return Call(function, tuple(names[takes_head:]), takes_head, metrics)

    def _network(self, stage: Any, name: str) -> Declared:
        found = self._networks.get(name)
        if not isinstance(found, (Network, TargetNetwork)):
            raise self._error(stage, f"there is no network {name!r}", f"declare it in networks{self._near(name)}")
        return self._networks[found.of] if isinstance(found, TargetNetwork) else found

    def _near(self, name: str, kind: Any = (Network, TargetNetwork)) -> str:
        return nearest(name, [one for one, declared in self._networks.items() if isinstance(declared, kind)])

    def _setting(self, stage: Any, name: str) -> Any:
        if not hasattr(self._config, name):
            raise self._error(stage, f"there is no setting {name!r}", "add it to the Config, or as a property of it")
        return getattr(self._config, name)

    def _error(self, stage: Any, what: str, advice: str, function: Callable[..., Any] | None = None) -> DefinitionError:
        code = None if function is None else function.__code__
        place = file_of(self._algorithm) if code is None else f"{code.co_filename}:{code.co_firstlineno}"
        return DefinitionError(f"{self._algorithm.__name__}: {stage}: {what}; {advice}\n  at {place}")


class _Known:
    """Names defined by earlier stages."""

    def __init__(self) -> None:
        self.forwards: dict[str, Forward] = {}
        self.slopes: list[str] = []
        self.written: set[str] = set()  # forward passes whose gradient a function has written
        self.learnt: set[str] = set()  # networks with a gradient


def file_of(algorithm: type) -> str:
    """Return the source file of an algorithm."""
    try:
        return inspect.getsourcefile(algorithm) or algorithm.__module__
    except (TypeError, OSError):  # a class defined interactively
        return algorithm.__module__


def _names(function: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(function).parameters)


def mean_metrics(
    names: Sequence[str], slots: Sequence[tuple[int, int]], totals: Sequence[float], seen: Sequence[float]
) -> dict[str, float]:
    """Return the mean of each metric; NaN if its pass was not seen.

    Each of `slots` has two indices: the metric, and the pass that added to it.
    """
    found = dict.fromkeys(names, nan)
    for (metric, number), total in zip(slots, totals, strict=False):
        if seen[number]:
            name = names[metric]
            before = found[name]
            found[name] = total / seen[number] + (before if before == before else 0.0)
    return found
