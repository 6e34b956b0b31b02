"""Learning from a memory while the next steps are taken: in a thread, or on a GPU on a second stream.

Steps are taken by a copy of the parameters from before the updates that run meanwhile, and those draw from what was
there before these steps. So how far one is behind the other is fixed, as many updates come to as many steps as ever,
and a run is the same every time, however fast either side is.
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
    """Takes the steps up to the next round of updates while those of this round run.

    An iteration begins with nothing under way, and ends so: what is saved between two is as without overlapping.
    """

    def __init__(
        self, task: Task, device: Any, steps: Any, learn: BatchUpdates, decide: Callable[[], None] | None, acting: Any
    ) -> None:
        """`acting` is the copy of the network that takes the steps; the ring lags behind (see `lagging_ring`)."""
        super().__init__(task, device, steps, learn, decide)
        self._acting, self._learns = acting, learn.networks.networks[task.acting]
        self._most_rounds = task.config.rounds_of_updates
        self._background = device.make_background(steps)
        ring: Any = learn.ring
        self._hand_over: Callable[[], None] = ring.show
        self._waited = self._idle = 0.0  # seconds: of the updates for steps, and of the steps for updates
        self._age = 0.0  # updates that were under way during a step of the last iteration, on average

    def gauges(self) -> dict[str, float]:
        """How long learner and collector have waited, and by how many updates the parameters that act are behind."""
        waiting = {"learner/waiting_seconds": self._waited, "collector/waiting_seconds": self._idle}
        return {**waiting, "collector/age_of_weights": self._age}

    def wait(self) -> None:
        """Wait until no step is under way."""
        self._background.wait()

    def count(self, marks: tuple[Any, ...]) -> None:
        """Share out the seconds of an iteration as those of the rounds that were timed; rollout is waiting for it."""
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
        """Take steps, and while updates run, those that come next."""
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
            self._background.wait()  # nothing is written any more when this is told
            raise
        return laps

    def _start(self, rounds: int, step: int, pace: Pace, moments: list[Any] | None) -> None:
        """Begin so many steps of all copies; where they are timed, their first and last moments are added."""

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
        """Let steps be taken by the parameters of now."""
        self.device.copy(self._acting.parameters, self._learns.parameters)
        if self._learns.takes_statistics:
            self._acting.buffers_from(self._learns)

    def try_each(self) -> None:
        """Run one step of each kind where steps are taken, so that they can be recorded."""
        self._background.start(super().try_each)
        self._background.join()
        self._hand_over()

    def capture(self) -> None:
        """Record steps as graphs of the second stream."""
        capture, stream = self.device.capture, self._background.stream
        self._warm_up, self._step = capture(self._warm_up, stream), capture(self._step, stream)
        self._hand_over = capture(self._hand_over)
