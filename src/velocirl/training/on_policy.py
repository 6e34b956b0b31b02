"""Base classes of on-policy algorithms: their settings, iterations and learner."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.targets.device_names import kind_of
from velocirl.engine.warning import warn_caller
from velocirl.learners.learner import Learner
from velocirl.learners.reports import Report
from velocirl.networks.encoding import LIMIT
from velocirl.networks.heads import Head, head_for
from velocirl.networks.observations import bounded_by_design
from velocirl.program.normalizing import REWARD_LIMIT, RunningMoments
from velocirl.program.reducing import shares_of
from velocirl.program.schedule import Schedule
from velocirl.program.task import Task
from velocirl.program.update import Call
from velocirl.scale.launching import launch_of
from velocirl.training.agent import Row
from velocirl.training.deep_agent import DeepAgent, static
from velocirl.training.settings.collecting import CollectorsConfig, check_collectors
from velocirl.training.settings.config import DeepConfig, check_widths, require, require_whole
from velocirl.training.settings.device_choice import choose_device, require_device
from velocirl.training.settings.parallelism import cores_of, shares_for, threads_for
from velocirl.training.settings.words import Word, absent, normalized, renamed
from velocirl.training.source import Given
from velocirl.vector.given import GIVEN
from velocirl.vector.vec_env import Normalized


@dataclass(frozen=True)
class OnPolicyConfig(CollectorsConfig):
    """Settings of on-policy algorithms. The preset of an environment replaces these defaults."""

    words: ClassVar[Mapping[str, Word]] = {
        **DeepConfig.words,
        "n_steps": renamed("horizon", each_copy=True),
        "n_epochs": renamed("epochs"),
        "batch_size": renamed("minibatch_size"),
        "normalize": normalized("normalise_observations", "normalise_rewards"),
        "rollout_buffer_class": absent(None, instead="rollouts are kept in one way"),
        "rollout_buffer_kwargs": absent(None, {}, instead="rollouts are kept in one way"),
    }
    fixed: ClassVar[frozenset[str]] = frozenset({"log_deviation"})
    num_envs: int = 32
    horizon: int = 64
    """Number of steps each copy takes in a rollout."""
    epochs: int = 4
    """Number of passes over each rollout."""
    minibatch_size: int = 128
    """Samples in a minibatch. A rollout is split into equal minibatches of about this size."""
    minibatches: Literal["samples", "environments"] = "samples"
    """What minibatches are drawn from: single samples, or whole rollouts of single copies."""
    gradient_accumulation: int = 1
    """Number of minibatches whose gradients are averaged for one optimiser step."""
    learning_rate: float = 3e-3
    learning_rate_schedule: str = "linear(each_call=true)"
    gae_lambda: float = 0.95
    """Lambda of GAE: 0 looks one step ahead, 1 to the end of the episode."""
    max_grad_norm: float = 0.5
    activation: str = "tanh"
    critic_hidden: tuple[int, ...] | None = None
    """Widths of the hidden layers of the value function, where they differ from `hidden`."""
    shared: bool = False
    """Use one network for both policy and value instead of two."""
    log_deviation: float = 0.0
    """Initial log standard deviation of continuous actions, in units of half their range."""
    normalise_observations: bool = False
    """Normalise observations to mean 0 and standard deviation 1, by running statistics."""
    normalise_rewards: bool = False
    """Scale rewards so that returns have standard deviation 1, by running statistics."""
    overlap: bool = False
    """Collect the next rollout while learning from the last one; V-trace corrects for the lag."""
    collect_ahead: int | None = None
    """Number of rollouts that paced collectors are ahead of the learner: with 0 they act by the newest weights, as
    without collectors, and so take turns with it. Chosen automatically if not given: 0 for one collector, else 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole(self, 1, 2**24, "horizon", "gradient_accumulation")
        require_whole(self, 1, 2**31, "minibatch_size")
        require_whole(self, 1, 10_000, "epochs")
        if self.critic_hidden is not None:
            check_widths(self, "critic_hidden")
            require(not self.shared, "shared", True, "off with critic_hidden")
        require(0 <= self.gae_lambda <= 1, "gae_lambda", self.gae_lambda, "from 0 to 1")
        require(-5 <= self.log_deviation <= 2, "log_deviation", self.log_deviation, "from -5 to 2")

    @property
    def batch(self) -> int:
        """Number of samples of a rollout."""
        return self.num_envs * self.horizon

    @property
    def num_minibatches(self) -> int:
        """Number of minibatches of an epoch."""
        most = self.num_envs if self.minibatches == "environments" else self.batch
        return min(max(round(self.batch / self.minibatch_size), 1), most)


LEAST_HORIZON = 8  # minimum generic rollout length, for many environments


class OnPolicyAgent(DeepAgent):
    """On-policy agent: collects a rollout, estimates advantages and learns from it."""

    # Declarations of an on-policy algorithm, in addition to the common ones.
    value: ClassVar[Callable[..., Any]]  # scalar function that writes the values of an observation
    values: ClassVar[tuple[str, ...]]  # fields of the row that `value` writes
    estimate: ClassVar[tuple[Any, ...]]  # functions over per-environment columns after a rollout, then `once` stages
    before_epoch: ClassVar[tuple[Any, ...]] = ()  # stages for all rows before each epoch
    reestimate: ClassVar[tuple[Any, ...]] = ()  # functions over columns after these stages
    explained: ClassVar[tuple[str, str] | None] = None  # fields of a value and its target
    remembers = True
    config: Any

    def generic_settings(self) -> Mapping[str, Any]:
        """Return the generic defaults: normalized rewards, and normalized observations unless bounded by design."""
        wild = not bounded_by_design(self.source.observation_space)
        return {"normalise_observations": wild, "normalise_rewards": True, **super().generic_settings()}

    def fitted(self, settings: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """Adapt the generic rollout length to `num_envs`, so that a rollout always has as many samples."""
        settings = super().fitted(settings, given)
        generic = self.generic_settings() if self.is_generic else {}
        copies = settings.get("num_envs")
        if "horizon" not in generic or "horizon" in given or not isinstance(copies, int) or copies < 1:
            return settings
        return {**settings, "horizon": max(generic["num_envs"] * generic["horizon"] // copies, LEAST_HORIZON)}

    def __init__(self, env: Given, **config: Any) -> None:
        self.reward_moments = RunningMoments(1)
        super().__init__(env, **config)
        if self.source.normalized is not None:
            self._begin_normalizing(self.source.normalized)

    def _begin_normalizing(self, given: Normalized) -> None:
        """Start with the statistics of a VecNormalize, and warn where its behavior differs from velocirl's."""
        config = self.config
        if config.normalise_observations and given.seen is not None:
            self.observation_moments.state[:] = given.seen
        if config.normalise_rewards and given.seen_returns is not None:
            self.reward_moments.state[:] = given.seen_returns
        clips = [(given.observations, "clip_obs", given.clip_observations, LIMIT),
                 (given.rewards, "clip_reward", given.clip_rewards, REWARD_LIMIT)]  # fmt: skip
        for used, name, value, limit in clips:
            if used and value != limit:
                warn_caller(f"{name}={value:g} of VecNormalize: normalized numbers are clipped at {limit:g} here")
        if given.rewards and given.gamma != config.gamma:
            warn_caller(
                f"gamma={given.gamma:g} of VecNormalize is not the agent's gamma={config.gamma:g}, by which rewards are"
                " scaled here: give one of them"
            )
        if not given.training and (given.observations or given.rewards):
            warn_caller(
                "training=False of VecNormalize: here training updates the statistics of what is normalized, and"
                " evaluation never does"
            )

    def row_names(self) -> list[str]:
        """Return the fields of a rollout's row."""
        finals = [f"final_{name}" for name in self.values]
        return ["observation", "action", "reward", "ended", "mask", *finals]

    def make_head(self) -> Head:
        """Return the action distribution for the environment's action space."""
        return head_for(_from_zero(self.source.action_space), self.source.masked)

    def resolve(self) -> tuple[Any, str]:
        """Resolve threads, device and precision."""
        config = self.config
        self.check_workers()
        check_collectors(config, self.source)
        self._refuse_collectors()
        size = launch_of(config.runtime).size
        copies = -(-config.num_envs // size)  # per process
        rows = config.batch // size // config.num_minibatches
        shares = config.shares or shares_for(rows, self.num_parameters, cores_of(config.runtime))
        shares = len(shares_of(copies, shares))
        threads = min(config.threads or threads_for(config), copies)
        device, reason = choose_device(
            config.device, self.source, self.policy.parameters.size, config.batch, native=self.is_native
        )
        if config.overlap and kind_of(device) != "cuda" and self.source.native is not None:
            raise ValueError(
                f"overlap is for gym: environments and for GPUs; {self.source.id} is compiled, and on the CPU both"
                " collecting and learning already use every core"
            )
        precision = self.resolved_precision(device)
        return dataclasses.replace(config, shares=shares, threads=threads, device=device, precision=precision), reason

    def one_rank_only(self) -> str | None:
        """Return why several ranks cannot train this agent: each rank needs environments of its own."""
        config = self.config
        if config.overlap or config.collectors is not None:
            return "it collects and learns at the same time (overlap or collectors)"
        if self.source.id.startswith(GIVEN):
            return "its environments are objects that were given to it"
        return super().one_rank_only()

    def _refuse_collectors(self) -> None:
        """Raise if collectors are combined with overlap, or if the algorithm does not correct for their policy lag."""
        config = self.config
        if config.collectors is not None and config.overlap:
            raise ValueError("overlap and collectors both collect while the learner learns: leave overlap out")
        if config.collectors is not None and not getattr(config, "follows_policy", False):
            raise ValueError(
                'collectors act by earlier weights, which PPO and A2C with estimator="vtrace" correct for: give that,'
                " or leave collectors out"
            )

    def next_iteration(self) -> tuple[Schedule, int]:
        """Return a schedule of one rollout and its epochs of updates."""
        return self.schedule(self.learning_rate_at(self.steps)), self.steps + self.config.batch

    def schedule(self, learning_rate: float) -> Schedule:
        """Return the numbers of one iteration."""
        config = self.config
        return Schedule(
            learning_rate=learning_rate,
            epochs=config.epochs,
            minibatches=config.num_minibatches,
            accumulate=config.gradient_accumulation,
            unit=config.horizon if config.minibatches == "environments" else 1,
            max_grad_norm=self.value_of("max_grad_norm"),
            max_grad_value=self.value_of("max_grad_value"),
        )

    def task(self) -> Task:
        """Return the learner's input, with the parts for rollouts."""
        task, kind = super().task(), type(self)
        names = [one.name for one in task.fields]
        resolver = self.resolver(names)
        value = resolver.acting(static(kind, "state_value"), self.acting)
        columns = [*self.row_names(), *names]
        estimates, reestimates = (resolver.columns(one, columns) for one in (self.estimate, self.reestimate))
        decisions, before = resolver.once_after(self.estimate), resolver.program(self.before_epoch)
        functions = [Call(one, (), False) for one, _ in (*estimates, *reestimates)]
        calls = [task.act, value, *task.program.functions, *before.functions, *functions, *decisions]
        return dataclasses.replace(
            task,
            value=value,
            values=self.values,
            estimates=estimates,
            decisions=decisions,
            reestimates=reestimates,
            before_epoch=before if before.steps else None,
            explained=self.explained,
            reward_moments=self.reward_moments,
            settings=self.settings(calls, ["gamma", *task.program.shares]),
        )

    def make_learner(self, task: Task) -> Learner:
        """Return the learner: CPU threads for native networks, else whole batches in Python or with torch."""
        if not self.trains_natively:
            require_device(self.config.device)
        from velocirl.learners.making import make_rollout

        return make_rollout(task, self.num_parameters, native=self.trains_natively)

    def own_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the agent's own arrays, including the reward normalizer."""
        return {**super().own_arrays(), "reward.moments": self.reward_moments.state}

    def row(self, report: Report) -> Row:
        """Return the metrics of an iteration."""
        return {
            "train/explained_variance": report.explained_variance,
            "train/gradient_norm": report.gradient_norm,
            "train/learning_rate": report.learning_rate,
            "train/minibatches": report.minibatches,
            "train/n_updates": report.optimiser_steps,
            **super().row(report),
        }


def _from_zero(space: Any) -> Any:
    """Return an action space whose choices count from 0; a policy samples from it, and its actions are shifted back."""
    if np.any(getattr(space, "start", 0)):
        kind = type(space)
        return kind(space.n) if hasattr(space, "n") else kind(space.nvec)
    return space
