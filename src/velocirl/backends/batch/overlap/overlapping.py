"""Off-policy updates while the next steps are taken: in a thread, or on a second CUDA stream.

Steps use a copy of the parameters from before the concurrent updates. These updates sample only records from before
the steps. The policy lag and the number of updates per step are therefore fixed. A run is reproducible, however fast
either side is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from velocirl.backends.batch.rounds import BatchRounds, stride_of
from velocirl.backends.batch.updates import BatchUpdates
from velocirl.program.counting.phases import add
from velocirl.program.pace import Pace, stretches
from velocirl.program.task import Task


class OverlappedRounds(BatchRounds):
    """Rounds that take the steps up to the next updates while the current updates run.

    Nothing is under way at the beginning and end of an iteration: a state saved in between is as without overlap.
    """

    def __init__(
        self, task: Task, device: Any, steps: Any, learn: BatchUpdates, decide: Callable[[], None] | None, acting: Any
    ) -> None:
        """`acting` is the copy of the network that takes the steps; the ring is a `LaggingRing`."""
        super().__init__(task, device, steps, learn, decide)
        self._acting, self._learns = acting, learn.networks.networks[task.acting]
        self._most_rounds = task.config.rounds_of_updates
        self._background = device.make_background(steps)
        ring: Any = learn.ring
        self._hand_over: Callable[[], None] = ring.show
        self._waited = self._idle = 0.0  # idle seconds: of the updates, and of the steps
        self._age = 0.0  # policy lag: mean number of updates during a step of the last iteration

    def gauges(self) -> dict[str, float]:
        """Return the idle seconds of learner and collector, and the policy lag in updates."""
        waiting = {"learner/waiting_seconds": self._waited, "collector/waiting_seconds": self._idle}
        return {**waiting, "collector/age_of_weights": self._age}

    def wait(self) -> None:
        """Wait until no step is under way."""
        self._background.wait()

    def count(self, marks: tuple[Any, ...]) -> None:
        """Split an iteration's seconds in the ratio of its timed rounds; waiting for steps counts as rollout."""
        began, ended, laps = marks
        (seconds,) = self.device.seconds_between(began, ended)
        waiting = learning = collecting = 0.0
        for *lap, under_way in laps:
            waited, learnt = self.device.seconds_between(*lap)
            waiting, learning = waiting + waited, learning + learnt
            collecting += sum(self.device.seconds_between(*under_way)) if under_way else 0.0
        scale = seconds / max(waiting + learning, 1e-9)
        add(self.task.phases, "rollout", waiting * scale)
        add(self.task.phases, "update", learning * scale)
        self._waited += waiting * scale
        self._idle += max(waiting + learning - collecting, 0.0) * scale

    def run(self, pace: Pace, first: int) -> list[tuple[Any, ...]]:
        """Run an iteration: while updates run, take the next steps."""
        copies, mark = self.task.config.num_envs, self.device.mark
        plan = list(stretches(first, copies, pace, self._most_rounds))
        stride = stride_of(len(plan))
        beside = [due * plan[k + 1][0] for k, (_, due) in enumerate(plan[:-1])]
        self._age = sum(beside) / pace.rounds
        step, laps = first, []
        self._refresh()
        try:
            self._start(plan[0][0], step, pace, None)
            for k, (rounds, due) in enumerate(plan):
                step += rounds * copies
                timed = k % stride == stride // 2
                before, under_way = mark() if timed else None, []
                self._background.join()
                for _ in range(rounds):
                    self._hand_over()
                self._refresh()
                handed_over = mark() if timed else None
                if k + 1 < len(plan):
                    self._start(plan[k + 1][0], step, pace, under_way if timed else None)
                self.improve(step, due)
                if timed:
                    laps.append((before, handed_over, mark(), under_way))
        except BaseException:
            self._background.wait()  # no step writes any more when the error is raised
            raise
        return laps

    def _start(self, rounds: int, step: int, pace: Pace, moments: list[Any] | None) -> None:
        """Begin `rounds` steps of all environments; their start and end times are appended to `moments`, if given."""

        def collect() -> None:
            if moments is not None:
                moments.append(self.device.mark())
            for t in range(rounds):
                self.take_step(step + t * self.task.config.num_envs, pace)
            if moments is not None:
                moments.append(self.device.mark())

        def collect_in_a_thread() -> None:
            with self.device.at_work():
                collect()

        self._background.start(collect if self._background.stream is not None else collect_in_a_thread)

    def _refresh(self) -> None:
        """Copy the current parameters to the acting network."""
        self.device.copy(self._acting.parameters, self._learns.parameters)
        if self._learns.takes_statistics:
            self._acting.buffers_from(self._learns)

    def try_each(self) -> None:
        """Run one step of each kind in the background, so that they can be captured."""
        self._background.start(super().try_each)
        self._background.join()
        self._hand_over()

    def capture(self) -> None:
        """Capture steps as CUDA graphs on the second stream."""
        capture, stream = self.device.capture, self._background.stream
        self._warm_up, self._step = capture(self._warm_up, stream), capture(self._step, stream)
        self._hand_over = capture(self._hand_over)
