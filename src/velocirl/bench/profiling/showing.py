"""Terminal output of a profile: each part is printed as soon as it is complete."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from velocirl.bench.profiling.advice import GAIN, Advice
from velocirl.bench.profiling.document import Memory, Profile, StartUp
from velocirl.bench.profiling.flame import Flame
from velocirl.bench.profiling.lines import LineReport, short_file
from velocirl.bench.profiling.memory import GROWS, MEBIBYTE
from velocirl.bench.profiling.trace import Trace
from velocirl.bench.profiling.tree import bar, overlap, tree_text
from velocirl.bench.units import SECONDS, STEPS
from velocirl.runs.curves.characters import terminal_plot

PLOT_WIDTH, PLOT_HEIGHT = 72, 8
EVEN = 0.01  # of the peak; smaller differences are drawn as a flat line
MARKED = 3  # hottest lines to mark
NOTHING = "nothing stands out: no part of the loop is above the share from which on there is advice"


class Screen:
    """Printer of a profile's parts; without a console it prints nothing."""

    def __init__(self, console: Console | None) -> None:
        self._console = console
        encoding = "ascii" if console is None else console.encoding
        self._ascii = not encoding.lower().startswith("utf")

    def say(self, text: str, style: str = "dim") -> None:
        """Print one line."""
        if self._console is not None:
            self._console.print(Text(text, style), soft_wrap=True)

    def show_training(self, profile: Profile) -> None:
        """Print the speed, and the tree of the training loop."""
        training = profile.training
        self._title(f"{profile.environment} with {profile.algorithm}")
        count = f"{training.steps:,} steps in {training.iterations:,} iterations"
        self.say(f"{count}, {training.seconds:.2f} s: {STEPS.say(training.rate)}", "bold")
        self._start_up(profile.start_up)
        self.say("")
        for node, line in zip(profile.tree, tree_text(profile.tree, ascii_only=self._ascii), strict=True):
            self.say(line, "bold" if node.depth == 0 else "")
        beyond = overlap(training.phases, training.seconds)
        if beyond > 0.01:
            self.say(f"phases run at the same time: they add up to {1 + beyond:.0%} of the clock's time")
        self.say("from counters that are always on, in a run without a sampler")

    def _start_up(self, start_up: StartUp) -> None:
        how = "compiled, once" if start_up.compiled else "from the compile cache"
        self.say(
            f"before that: agent {SECONDS.say(start_up.build)}, preparing {SECONDS.say(start_up.prepare)} ({how}),"
            f" first iteration {SECONDS.say(start_up.first_iteration)}"
        )

    def show_memory(self, memory: Memory) -> None:
        """Print the memory plot and the verdict on growth."""
        course = memory.course
        self._title("memory")
        mebibytes: list[float] = [one / MEBIBYTE for one in course.bytes]
        if len(mebibytes) > 1:
            if max(mebibytes) - min(mebibytes) < EVEN * max(mebibytes):  # do not magnify single pages
                mebibytes = [sum(mebibytes) / len(mebibytes)] * len(mebibytes)
            for line in terminal_plot(course.seconds, mebibytes, PLOT_WIDTH, PLOT_HEIGHT, ascii_only=self._ascii):
                self.say(line, "")
        of = "" if memory.processes == 1 else f" of {memory.processes} processes"
        self.say(
            f"MiB resident{of} over seconds: {memory.lowest / MEBIBYTE:.1f} to {memory.peak / MEBIBYTE:.1f} MiB", ""
        )
        self.say(memory.growth.say(), "yellow" if memory.growth.verdict == GROWS else "")
        if memory.filling and memory.growth.verdict == GROWS:
            self.say(f"{memory.filling}: that growth ends when it is full")

    def show_flame(self, flame: Flame, directory: Path) -> None:
        """Print the flame graph's files and the sampler's cost."""
        self._title("flame graph")
        self.say(f"{directory / flame.file}: {flame.samples:,} samples in {flame.seconds:.1f} s of another run", "")
        self.say(f"{directory / flame.calls}: the same samples as a tree of calls", "")
        cost = f"{flame.slowdown:.0%} slower" if flame.slowdown >= 0.005 else "no slower"
        self.say(f"that run was {cost} than the one above; a compiled loop is the Python call that runs it")

    def show_trace(self, trace: Trace, directory: Path) -> None:
        """Print the kernels that took the longest."""
        self._title("GPU")
        self.say(
            f"{directory / trace.file}: iterations: {trace.iterations}, for chrome://tracing or ui.perfetto.dev", ""
        )
        self.say(f"the GPU was busy for {trace.busy:.0%} of {SECONDS.say(trace.wall_seconds)}, as traced")
        for kernel in trace.kernels:
            share = f"{bar(kernel.share, 12, ascii_only=self._ascii)}  {kernel.share:>6.1%}"
            self.say(f"{share}  {SECONDS.say(kernel.seconds):>8}  {kernel.calls:>7,} calls  {kernel.name[:90]}", "")

    def show_lines(self, report: LineReport) -> None:
        """Print each executed line; the hottest are marked."""
        self._title("lines of the environment")
        if not report.functions:
            self.say("none of its functions is Python", "yellow")
            return
        mark = "<" if self._ascii else "◄"
        for function in report.functions:
            called = "" if function.called_by_training else ", called by the others and counted there too"
            name = f"{function.name}  {short_file(function.file)}  {function.share:.1%}{called}"
            self.say(name, "bold")
            self.say(f"{'line':>6}  {'hits':>9}  {'time':>8}  {'per hit':>8}  {'share':>6}")
            for line in function.lines:
                figures = f"{line.number:>6}  {line.hits:>9,}  {SECONDS.say(line.seconds):>8}"
                each = SECONDS.say(line.seconds / line.hits) if line.hits else ""
                hot = line.rank <= MARKED
                note = f"  {mark} hottest {line.rank}" if hot else ""
                style = ("bold red" if line.rank == 1 else "yellow") if hot else ""
                self.say(f"{figures}  {each:>8}  {line.share:>6.1%}  {line.text}{note}", style)
        self.say(f"{report.steps:,} steps with random actions as plain Python; a line's time is with what it calls")
        if report.native:
            self.say(
                "training runs them compiled, where shares may differ: reading a field costs next to nothing there"
            )

    def show_advice(self, advice: list[Advice]) -> None:
        """Print the advice, each with its measurement."""
        self._title("what to try next")
        if not advice:
            self.say(NOTHING, "")
        for number, one in enumerate(advice, 1):
            failed = one.tried is not None and one.tried < GAIN
            self.say(f"{number}. {one.text}", "dim" if failed else "bold" if one.tried is not None else "")
            self.say(f"   {one.measurement}")

    def show_files(self, directory: Path, names: list[str]) -> None:
        """Print the directory and names of all files."""
        self.say("")
        if self._console is not None:
            self._console.print(f"[dim]files[/dim]  {escape(str(directory))}: {', '.join(names)}", soft_wrap=True)

    def _title(self, text: str) -> None:
        self.say("")
        self.say(text, "bold cyan")
