"""Complete tuning run: candidates, their speed, the learning of the fastest, and the choice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from velocirl.bench.tuning.candidates import Candidate, candidates_for
from velocirl.bench.tuning.choosing import Choice, choose
from velocirl.bench.tuning.evidence import Goal, Measured, goal_of
from velocirl.bench.tuning.racing import LEARNING_SHARE, Seeds, contestants, enough, race
from velocirl.bench.tuning.speed import for_speed, glance, in_turns, let_go
from velocirl.bench.tuning.trials import Trial, run_trial, score
from velocirl.bench.tuning.watching import Attentive, Deadline, Watcher
from velocirl.engine.targets.cpu import available_cores
from velocirl.runs.signals import StopSignals
from velocirl.training.agent import Agent

NEUTRAL_FINALISTS = 3  # ways to run the reference itself that are measured in turns
FEWEST_FINALISTS, TURN_SECONDS = 5, 0.8  # least number measured in turns, however short the time; least time for one
LEAST_SEEDS, MOST_SEEDS = 3, 10  # unless `seeds` is set
Build = Callable[[Mapping[str, Any]], Agent]  # creates an agent; the settings override the preset


@dataclass(frozen=True)
class Plan:
    """Tuning request."""

    given: Mapping[str, Any]  # settings that are not tuned
    total_steps: int | None  # of a training; None: unknown how many suffice
    budget: float = 60.0  # seconds, without compiling
    seeds: int | None = None
    tolerance: float = 0.02  # as a fraction of the reference's gain

    @property
    def all_seeds(self) -> Seeds:
        """Seeds of the trainings."""
        least, most = (LEAST_SEEDS, MOST_SEEDS) if self.seeds is None else (self.seeds, self.seeds)
        return Seeds(self.given.get("seed") or 0, least, most)


class Tuner:
    """Tuning run; its results can be read at any time, so that an interrupt loses nothing."""

    def __init__(self, build: Build, plan: Plan, watcher: Watcher) -> None:
        self._build, self.plan, self._signals = build, plan, StopSignals()
        self._watcher = Attentive(watcher, self._signals)
        self.rows: list[Measured] = []
        self.goal: Goal | None = None
        self.notes: list[str] = []
        self.reference_config: Any = None  # set once the reference was created
        self._limits: dict[str, Any] = {}  # limits of settings while only speed is measured

    @property
    def reference(self) -> Measured:
        """Baseline of all comparisons."""
        return self.rows[0]

    def run(self) -> Choice:
        """Measure and choose."""
        agent = self._prepare()
        trained = self._trained_steps(agent)
        candidates = candidates_for(agent, self.plan.given, trained, available_cores())
        self.rows = [Measured(one) for one in candidates]
        self.reference_config, self._limits = agent.config, for_speed(agent.config)
        let_go(agent)
        self._prepare_others(candidates)
        with self._signals:
            self._measure(trained)
        self._signals.raise_received()
        return self.choice()

    def _measure(self, trained: int | None) -> None:
        """Measure speed, then learning."""
        plan, deadline = self.plan, Deadline(self.plan.budget)
        self._watcher.begin("speed")
        if trained is not None and not self._has_time(deadline):
            self.rows = [row for row in self.rows if row.candidate.is_neutral]
            trained = None
        self._measure_speed(
            Deadline((1.0 - LEARNING_SHARE) * plan.budget if trained is not None else plan.budget), trained
        )
        if trained is not None:
            self._measure_learning(trained, Deadline(max(plan.budget - deadline.used, 0.5 * plan.budget)))

    def choice(self) -> Choice:
        """Choose a candidate from the measurements so far."""
        return choose(self.rows, self.goal)

    def catch_up(self) -> None:
        """After an interrupt, set the goal if enough trainings are complete."""
        if self.goal is None and self.rows and len(self.reference.trials) >= self.plan.all_seeds.least:
            self.goal = goal_of(self.reference, self.plan.tolerance)

    def chosen_agent(self, choice: Choice) -> Agent:
        """Create an agent with the chosen settings."""
        row = next(row for row in self.rows if row.name == choice.name)
        return self._make(row.candidate, seed=self.plan.given.get("seed"))

    def _make(self, candidate: Candidate, **more: Any) -> Agent:
        return self._build({**self.plan.given, **candidate.settings, **more})

    def _prepare(self) -> Agent:
        """Create the reference, and compile it and its evaluation."""
        self._watcher.begin("compiling")
        agent = self._build({**self.plan.given, "seed": self.plan.all_seeds.first})
        agent.prepare()
        if self.plan.total_steps is not None:
            score(agent)
        return agent

    def _prepare_others(self, candidates: Iterable[Candidate]) -> None:
        """Compile the code of the other candidates, once for each combination of settings that changes it."""
        seen = set()
        for one in candidates:
            settings = one.settings
            where = settings.get("device"), settings.get("runtime"), settings.get("workers") is None
            kind = *where, settings.get("compile"), settings.get("precision")
            if kind not in seen:
                seen.add(kind)
                agent = self._for_speed(one)
                agent.prepare()
                let_go(agent)

    def _trained_steps(self, agent: Agent) -> int | None:
        """Return the steps of a training; None, with a note, if it is unknown how many suffice."""
        steps = self.plan.total_steps
        if steps is None:
            self.notes.append(
                f"{agent.source.id} has no preset for {agent.name}, so nobody knows how long it takes to learn: only"
                " what cannot change learning is tuned (--steps N says how long)"
            )
        return steps

    def _has_time(self, deadline: Deadline) -> bool:
        """Return whether the budget suffices to train the reference and one other candidate; if not, add a note."""
        steps, seeds = self.plan.total_steps, self.plan.all_seeds
        assert steps is not None  # noqa: S101 - asked only then
        glance([self.reference], self._for_speed, steps, deadline, self._watcher)
        seconds = steps / self.reference.rate
        if 2 * seeds.least * seconds <= LEARNING_SHARE * self.plan.budget:
            return True
        self.notes.append(
            f"{steps:,} steps take {seconds:.3g} s, and {2 * seeds.least} trainings are not in the budget: only what"
            f" cannot change learning is tuned (--budget {enough(1.2 * seconds, seeds):.0f} would do, or fewer --steps)"
        )
        return False

    def _for_speed(self, candidate: Candidate) -> Agent:
        limits = {name: min(most, candidate.settings.get(name, most)) for name, most in self._limits.items()}
        return self._make(candidate, seed=self.plan.all_seeds.first, **limits)

    def _measure_speed(self, deadline: Deadline, steps: int | None) -> None:
        glance(self.rows, self._for_speed, steps, deadline, self._watcher)
        missed = sum(row.glance is None for row in self.rows)
        if missed:
            self.notes.append(f"{missed} of {len(self.rows)} candidates were not looked at: the budget (--budget)")
        in_turns(self._finalists(deadline), self._for_speed, steps, deadline, self._watcher)

    def _finalists(self, deadline: Deadline) -> list[Measured]:
        """Return the reference, other ways to run it, and candidates worth training, as far as time permits."""
        neutral = [row for row in self.rows if row.candidate.is_neutral and row.glance is not None]
        neutral.sort(key=lambda row: -row.rate)
        found = [self.reference, *neutral[:NEUTRAL_FINALISTS], *contestants(self.rows)]
        most = max(int(deadline.left / TURN_SECONDS), FEWEST_FINALISTS)
        return list({row.name: row for row in found}.values())[:most]

    def _measure_learning(self, steps: int, deadline: Deadline) -> None:
        self._watcher.begin("learning")
        others = contestants([row for row in self.rows if row.speeds])
        for row in self.rows:
            if row not in others:
                row.skipped = "slower" if row.glance is not None else "no time"
        if not others:
            self.notes.append("no candidate is as fast as the reference: nothing was trained")
            return

        def train(candidate: Candidate, seed: int, enough: float) -> Trial:
            agent = self._make(candidate, seed=seed)
            try:
                return run_trial(agent, steps, enough, self._signals.raise_received)
            finally:
                let_go(agent)

        seeds = self.plan.all_seeds
        self.goal, said = race(self.reference, others, train, seeds, self.plan.tolerance, deadline, self._watcher)
        if said:
            self.notes.append(said)
