"""One profiling session: measurements, closer analysis, display and files."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from velocirl.bench.profiling.advice import Facts, advise
from velocirl.bench.profiling.document import Memory, Profile, StartUp
from velocirl.bench.profiling.flame import draw_flame, flame_missing
from velocirl.bench.profiling.lines import LineReport, lines_missing, profile_lines, short_file
from velocirl.bench.profiling.memory import GROWS, MemorySampler, draw_memory, judge_growth
from velocirl.bench.profiling.showing import Screen
from velocirl.bench.profiling.trace import on_gpu, trace_gpu, trace_missing
from velocirl.bench.profiling.tree import build_tree
from velocirl.bench.profiling.trials import try_advice, worth_trying
from velocirl.bench.profiling.watching import Training, watch_training
from velocirl.cli.named.environment_files import Chosen
from velocirl.cli.settings import Request
from velocirl.cli.train.command import build, plan_of
from velocirl.engine.compiler.caching.cache import cached_files
from velocirl.engine.targets.cores import available_cores
from velocirl.runs.callback import Callback
from velocirl.runs.placement import COMMAND, place_run, tell_next
from velocirl.runs.processor import processor
from velocirl.runs.recording import RunRecorder
from velocirl.training.agent import Agent
from velocirl.training.running import asked_by, new_run
from velocirl.training.settings.config import as_plain
from velocirl.training.settings.device_choice import no_cuda

SECONDS = 8.0  # of training, unless a number of steps is given
FLAME_SECONDS = 3.0
MEMORY, TRACE = "memory.png", "trace.json"
NO_PICTURE = 'the picture of memory needs matplotlib: pip install "velocirl[plots]"'


class ProfileSession:
    """Profiling session: shows each part as soon as it is done; an interrupt or error keeps the results so far."""

    def __init__(
        self,
        request: Request,
        chosen: Chosen,
        agent: Agent,
        directory: Path,
        screen: Screen,
        *,
        command: str,
        flame: bool,
        lines: bool,
    ) -> None:
        self._request, self._chosen, self._agent = request, chosen, agent
        self._directory, self._screen, self._command = directory, screen, command
        self._flame, self._lines = flame, lines
        self._total = plan_of(request, agent, chosen).total_steps
        self._doing = "training"

    def run(self, built: float) -> None:
        """Profile an agent that took `built` seconds to build; shows the results and writes them."""
        found = self._measure(built)
        try:
            if found.training.interrupted:
                raise KeyboardInterrupt
            self._look_closer(found)
        except KeyboardInterrupt:
            found.interrupted = self._doing
            self._screen.say(f"interrupted during {self._doing}: this is what there was by then", "yellow")
            raise
        finally:
            found.write(self._directory)
            if self._request.json:
                print(found.as_json(), end="", flush=True)
            self._screen.show_files(self._directory, sorted(one.name for one in self._directory.iterdir()))

    def _measure(self, built: float) -> Profile:
        """Run the training from which the basic measurements come."""
        agent, screen, total = self._agent, self._screen, self._total
        by_clock = self._request.total_steps is None and self._request.run_dir is None
        cached, began = cached_files(), time.perf_counter()
        screen.say("preparing")
        agent.prepare()
        prepared = time.perf_counter() - began
        compiled = bool(cached_files() - cached)
        screen.say(f"training for {SECONDS:.0f} s" if by_clock else f"training for {total:,} steps")
        cores, load = available_cores(), os.getloadavg()[0]
        callbacks, held = self._callbacks()
        with held, MemorySampler(lambda: agent.steps) as sampler:
            training = watch_training(agent, total, SECONDS if by_clock else None, callbacks)
        if training.interrupted and not training.iterations:
            raise KeyboardInterrupt
        course = sampler.course
        memory = Memory(course, sampler.processes, judge_growth(course.steps, course.bytes), _filling(agent))
        found = Profile(
            command=self._command,
            environment=self._chosen.id,
            algorithm=agent.name,
            settings=as_plain(agent.config),
            machine={"processor": processor(), "cores": cores, "load": load},
            start_up=StartUp(built, prepared, compiled, training.first_seconds),
            training=training,
            tree=build_tree(training.phases, training.seconds, training.steps),
            memory=memory,
        )
        screen.show_training(found)
        if load > cores:
            self._note(found, f"load average {load:.1f} on {cores} cores: shares hold better than seconds")
        screen.show_memory(memory)
        if draw_memory(course, self._directory / MEMORY, f"{self._chosen.id}: memory in training"):
            found.memory = replace(memory, picture=MEMORY)
        else:
            self._note(found, NO_PICTURE)
        return found

    def _look_closer(self, found: Profile) -> None:
        """Run the parts that need runs of their own: flame graph, GPU trace, lines, and trials of the advice."""
        if self._flame and self._can(found, "the flame graph", flame_missing()):
            self._draw_flame(found)
        if on_gpu(self._agent) and self._can(found, "the trace of the GPU", trace_missing()):
            found.trace = trace_gpu(self._agent, self._total, self._directory / TRACE)
            self._screen.show_trace(found.trace, self._directory)
        if self._lines and self._can(found, "the lines of the environment", lines_missing()):
            found.lines = profile_lines(self._agent.source)
            self._screen.show_lines(found.lines)
            if found.lines.interrupted:
                raise KeyboardInterrupt
        self._doing = "the trials of what to try next"
        found.advice = advise(found.training.phases, self._facts(found))
        try:
            chosen = worth_trying(found.advice, cached=not found.start_up.compiled)
            if chosen:
                self._screen.say("")
                self._screen.say("trying what may help, some seconds")
                needs = 0 if found.memory is None else found.memory.peak
                found.advice = try_advice(found.advice, chosen, self._variant, self._total, needs)
        finally:
            self._screen.show_advice(found.advice)

    def _draw_flame(self, found: Profile) -> None:
        def train() -> Training:
            return watch_training(self._agent, self._total, FLAME_SECONDS)

        title = f"velocirl train {self._chosen.id} with {self._agent.name}"
        found.flame, sampled = draw_flame(train, self._directory, title, found.training.rate)
        self._screen.show_flame(found.flame, self._directory)
        if sampled.interrupted:
            raise KeyboardInterrupt

    def _can(self, found: Profile, what: str, missing: str | None) -> bool:
        """Return whether a part can run; if a package is missing, adds a note on how to install it."""
        self._doing = what
        if missing is not None:
            self._note(found, missing)
        return missing is None

    def _variant(self, changes: Mapping[str, Any]) -> Agent:
        """Build an agent like the profiled one, with some settings changed."""
        values = {**self._request.values, "seed": getattr(self._agent.config, "seed", None), **changes}
        return build(self._request.algorithm, self._chosen, values)

    def _callbacks(self) -> tuple[list[Callback], AbstractContextManager[None]]:
        """Return the requested callbacks, and the lock on the run if it is kept."""
        request, chosen = self._request, self._chosen
        plan = plan_of(request, self._agent, chosen)
        callbacks = asked_by(plan)
        if request.run_dir is None:
            return callbacks, nullcontext()
        place = place_run(request.run_dir, request.exist, partial(tell_next, spelled=COMMAND))
        run = new_run(self._agent, place, plan, chosen.spelled)
        evaluated = plan.evaluate_every is not None
        return [*callbacks, RunRecorder(run, plan.checkpoint_every, evaluated=evaluated)], run.hold()

    def _facts(self, found: Profile) -> Facts:
        chosen, memory, request = self._chosen, found.memory, self._request
        asked = (request.evaluate_every, request.target_return, request.run_dir)
        return Facts(
            seconds=found.training.seconds,
            iterations=found.training.iterations,
            environment=short_file(str(chosen.file)) if chosen.file else chosen.id,
            native=self._agent.source.native is not None,
            settings=found.settings,
            cores=available_cores(),
            callbacks=sum(one is not None for one in asked),
            gpu=found.settings.get("device") == "cpu" and no_cuda() is None,
            hottest_line=_hottest(found.lines),
            growth=memory.growth.say() if memory is not None and memory.growth.verdict == GROWS else "",
            filling=memory is not None and bool(memory.filling),
        )

    def _note(self, found: Profile, text: str) -> None:
        found.notes.append(text)
        self._screen.say(text, "yellow")


def _filling(agent: Agent) -> str:
    """Describe what still grows with every step until it is full."""
    size = getattr(agent.config, "buffer_size", None)
    if size is not None and agent.steps < size:
        return f"the memory of {size:,} transitions held {agent.steps:,}"
    return "the table grows with the states that are met" if hasattr(agent.config, "storage") else ""


def _hottest(lines: LineReport | None) -> str:
    hottest = None if lines is None else lines.hottest()
    if hottest is None:
        return ""
    function, line = hottest
    place = f"{short_file(function.file)}:{line.number}"
    return f"{place} takes {line.share:.0%} of it as plain Python: {line.text.strip()}"
