"""What algorithms have in common that learn from a memory: the pace of their iterations."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from functools import cached_property
from typing import Any

from velocirl.engine.cpu import available_cores
from velocirl.training.agent import Row
from velocirl.training.deep_agent import DeepAgent
from velocirl.training.device_choice import choose_device
from velocirl.learners.learner import Report
from velocirl.training.off_policy_config import OffPolicyConfig
from velocirl.learners.pace import Pace

# An iteration has so many steps: often enough for callbacks, rarely enough to cost nothing. Where updates are large it
# has fewer, so that nobody waits for seconds; multiplications, of all passes of an update.
STEPS, WORK = {"cpu": 1024, "cuda": 65_536}, {"cpu": 5.0e9, "cuda": 1.0e12}
PASSES = 5  # over the parameters in an update, about
# Multiplications of an update from which a second thread saves more than the threads' meetings cost.
WORK_FOR_THREADS = 2.0e6


class OffPolicyAgent(DeepAgent):
    """Step all copies, remember, and learn from what is remembered."""

    config: OffPolicyConfig

    @property
    @abstractmethod
    def exploration(self) -> tuple[float, float, float, float]:
        """How much is explored at first, after a share of training, that share, and at the end."""

    @property
    @abstractmethod
    def targets(self) -> tuple[int, int, float]:
        """Updates from one of the actor to the next, from one move of the target networks to the next, and how far."""

    @cached_property
    def num_parameters(self) -> int:
        """Of all networks that learn."""
        return self.policy.parameters.size

    @abstractmethod
    def loss_row(self, report: Report) -> Row:
        """The metrics of an iteration in which something was learnt."""

    def resolve(self) -> tuple[Any, str]:
        """Threads, device and precision."""
        config = self.config
        self.check_workers()
        if self.source.native is not None:
            self.source.refuse_workers(config.workers)
        work = float(self.num_parameters) * config.batch_size
        threads = config.threads or (available_cores() if work >= WORK_FOR_THREADS else 1)
        device, reason = choose_device(
            config.device, self.source, self.num_parameters, config.batch_size, native=self.is_native
        )
        precision = self.resolved_precision(device)
        return dataclasses.replace(config, threads=threads, device=device, precision=precision), reason

    def iterate(self) -> Row | None:
        """Step, remember and learn, for about a tenth of a second."""
        assert self.goal is not None  # noqa: S101 - learning
        copies = self.config.num_envs
        left = -(-(self.goal.stop - self.steps) // copies)
        pace = self.pace(min(self.steps_of_iteration, left))
        return self.begin_iteration(pace, self.steps + pace.rounds * copies)

    @property
    def steps_of_iteration(self) -> int:
        """The steps that each copy takes in an iteration."""
        config = self.config
        work = PASSES * float(self.num_parameters) * config.batch_size * config.gradient_steps / config.train_every
        return max(int(min(STEPS[config.device], WORK[config.device] / work)) // config.num_envs, 1)

    def pace(self, rounds: int) -> Pace:
        """When what is done in the iteration that comes next."""
        config, goal = self.config, self.goal
        assert goal is not None  # noqa: S101 - learning
        initial, final, fraction, last = self.exploration
        actor_every, target_every, tau = self.targets
        return Pace(
            rounds=rounds,
            learning_rate=self.learning_rate_at(self.steps),
            max_grad_norm=config.max_grad_norm,
            max_grad_value=config.max_grad_value,
            learning_starts=config.learning_starts,
            train_every=config.train_every,
            gradient_steps=config.gradient_steps,
            actor_every=actor_every,
            target_every=target_every,
            tau=tau,
            start=goal.start,
            total=goal.total,
            initial=initial,
            final=final,
            fraction=fraction,
            last=last,
            beta=config.priority_beta,
            beta_final=config.priority_beta_final,
        )

    def row(self, report: Report) -> Row:
        """The metrics of an iteration; those of the loss are None while nothing is learnt yet."""
        learnt = report.minibatches > 0
        losses = {name: value if learnt else None for name, value in self.loss_row(report).items()}
        return {
            "train/gradient_norm": report.gradient_norm if learnt else None,
            "train/learning_rate": report.learning_rate,
            "train/n_updates": report.optimiser_steps,
            **losses,
        }
