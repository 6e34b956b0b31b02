"""Several ranks that train one agent: they begin alike, agree on when to stop, and the first one speaks for all.

The first rank has the callbacks, the run and the display. Whenever it needs what all ranks have (for a checkpoint), the
others are waiting in `Company.meet` and give their parts, so that a saved agent is the same thing however many
processes trained it: the copies of all ranks, one after the other.
"""

from __future__ import annotations

import hashlib
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.compiler.fingerprint import fingerprint
from velocirl.engine.files import parse_json
from velocirl.engine.writing import strict_json
from velocirl.learners.reducing import Part, part_of
from velocirl.learners.saved import BY_COPY, TRAINED
from velocirl.learners.seeding import spread_seed
from velocirl.runs.signals import StopSignals
from velocirl.runs.state_file import state_from, state_parts
from velocirl.scale.launching import LIMIT, LaunchError, launch_of, let_first_speak
from velocirl.scale.ranks import LostRankError
from velocirl.scale.watched import WatchedRanks, watched_ranks
from velocirl.training.agent import Goal
from velocirl.training.settings.config import as_plain

if TYPE_CHECKING:
    from velocirl.training.deep_agent import DeepAgent

STATE = 1.0  # what the first rank says where it wants the others' parts instead of meeting them
SIGNALS = StopSignals.SIGNALS
WAITING = "waiting/"  # before the names of arrays that wait until training begins


def company_of(agent: DeepAgent) -> Company | None:
    """The ranks that train an agent together; None where there is one process."""
    launch = launch_of(agent.config.runtime)
    if launch.size == 1:
        return None
    reason = agent.one_rank_only()
    if reason is None and -(-agent.config.num_envs // launch.size) * (launch.size - 1) >= agent.config.num_envs:
        reason = f"num_envs={agent.config.num_envs} leaves a rank without a copy"
    elif reason is not None:
        reason = f"{agent.label} learns on one rank only where {reason}"
    if reason is not None:
        let_first_speak()
        raise LaunchError(
            f"{reason}, and {launch.launcher} has started {launch.size} processes: start one, or give"
            ' runtime="local" to let each train by itself'
        )
    return Company(agent, watched_ranks(launch))


class Company:
    """The ranks of one agent, as one of them."""

    def __init__(self, agent: DeepAgent, ranks: WatchedRanks) -> None:
        self.agent, self.ranks = agent, ranks
        self.begun = False  # alike
        self._meeting = False  # while training lasts, the others answer
        self._agreed = False  # to stop before the goal
        self._together: dict[str, NDArray[Any]] | None = None  # what all learners had when training ended

    @property
    def part(self) -> Part:
        """The copies and threads of this rank."""
        config = self.agent.config
        return part_of(config.num_envs, config.threads, self.ranks)

    @contextmanager
    def conducted(self, total_steps: int | None) -> Iterator[bool]:
        """Train while this context lasts, all ranks at once; says whether this is the first one, which leads.

        A rank that fails ends the whole job: the others would wait for it.
        """
        try:
            self.begin(total_steps)
            self._meeting, self._agreed = True, False
            with self.ranks.watched():
                yield self.ranks.rank == 0
                self._end()
        except BaseException as error:
            by_signal = isinstance(error, (KeyboardInterrupt, SystemExit))
            if not (by_signal and (self._agreed or self.agent.finished)):
                self._fail(error)
            self._end()
            raise
        finally:
            self._meeting = False

    def begin(self, total_steps: int | None = None) -> None:
        """The seed, progress and arrays of the first rank become those of all; settings must be the same already."""
        ranks = self.ranks
        ranks.assemble(LIMIT)
        own = parse_json(strict_json(self._settings(total_steps)))  # as it is when it has travelled
        data = None if ranks.rank else b"".join(state_parts(self._arrays(), {**self._progress(), "settings": own}))
        said = state_from(ranks.broadcast(data))
        for name, value in said.document["settings"].items():
            if own.get(name) != value:
                raise LaunchError(
                    f"rank {ranks.rank} has {name}={own.get(name)!r} and rank 0 {value!r}: all ranks train the same"
                    " agent, with the same version of everything"
                )
        if ranks.rank:
            self._adopt(said.arrays, said.document)
        self.begun = True

    def meet(self, signals: StopSignals) -> bool:
        """Before an iteration: whether all ranks stop here, as a callback of the first or a signal to any asks."""
        stopping, received = self._hear(self.agent.stopping is not None, signals.received)
        if stopping and self.agent.stopping is None:
            self.agent.stopping = "a callback stopped it"
        if received is not None:  # else one may have come to this rank meanwhile, of which all hear next time
            signals.received = received
        self._agreed = stopping or received is not None
        self.ranks.work()
        return self._agreed

    def state(self) -> dict[str, NDArray[Any]]:
        """What the learners of all ranks have, as one learner of all copies would have it; for the first rank."""
        if not self._meeting and self._together is not None:
            return self._together
        if self.ranks.rank or not self._meeting:
            raise ValueError(
                f"rank {self.ranks.rank} has a part of the copies only: save on rank 0, during or after `learn`"
            )
        said = self._said()
        said[0] = STATE
        self.ranks.sum(said)
        return self._gather()

    def own_part(self, state: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """What of such a state belongs to this rank."""
        part, own = self.part, dict(state)
        for name, array in state.items():
            if name.startswith(BY_COPY):
                own[name] = array[part.first : part.first + part.copies]
        # Minibatches are drawn by each thread; where there were others, their streams are of no use.
        streams, first = state[TRAINED], part.first_thread
        fits = len(streams) == len(part.all_copies)
        own[TRAINED] = streams[first : first + len(part.shares)] if fits else streams[:0]
        return own

    def _end(self) -> None:
        """Answer the first rank until it is done; it keeps what all have, so that the agent can be saved later."""
        self._hear(False, None)
        self._meeting = False
        if self.agent._learner is not None:
            together = self._gather()
            self._together = together if self.ranks.rank == 0 else None

    def _hear(self, stopping: bool, received: Any) -> tuple[bool, Any]:
        """Say whether this rank would stop; what all have said. Meanwhile the first rank may ask for parts."""
        while True:
            said = self._said()
            said[1] = stopping
            said[2:] = [received == one for one in SIGNALS]
            self.ranks.sum(said)
            if said[0] != STATE:
                return said[1] > 0, next((one for one, count in zip(SIGNALS, said[2:], strict=True) if count), None)
            self._gather()

    def _said(self) -> NDArray[np.float64]:
        return np.zeros(2 + len(SIGNALS))

    def _gather(self) -> dict[str, NDArray[Any]]:
        """The learners' arrays of all ranks put together, for the first one."""
        own = self.agent.learner.state()
        shared = {name: array for name, array in own.items() if not _is_shared_out(name)}
        digest = _digest({**shared, **self.agent.policy_arrays()})
        parts = {name: array for name, array in own.items() if _is_shared_out(name)}
        told = [state_from(data) for data in self.ranks.gather(b"".join(state_parts(parts, {"digest": digest})))]
        for rank, one in enumerate(told):
            if one.document["digest"] != digest:
                raise RuntimeError(f"rank {rank} has other parameters than rank 0 after step {self.agent.steps}")
        return {**shared, **{name: _joined([one.arrays[name] for one in told]) for name in (parts if told else ())}}

    def _settings(self, total_steps: int | None) -> dict[str, Any]:
        """What has to be the same on all ranks before they begin."""
        agent = self.agent
        config = {name: value for name, value in as_plain(agent.config).items() if name != "seed"}
        named = {"velocirl": version("velocirl"), "algorithm": agent.name, "environment": agent.source.id}
        task, native = agent.task(), agent.source.native
        functions = [task.act.function, *(call.function for call in task.program.calls)]
        if native is not None:
            functions += [native.reset, native.step, native.observe]
        code = fingerprint(*functions)[:16]  # with the versions of what compiles it
        return {**named, **agent.source.signature(), **config, "total_steps": total_steps, "code": code}

    def _progress(self) -> dict[str, Any]:
        agent = self.agent
        goal = None if agent.goal is None else [agent.goal.start, agent.goal.total]
        return {"seed": agent.seed, "steps": agent.steps, "iterations": agent.iterations, "goal": goal}

    def _arrays(self) -> dict[str, NDArray[Any]]:
        agent = self.agent
        waiting = {f"{WAITING}{name}": array for name, array in (agent._waiting or {}).items()}
        return {**agent.policy_arrays(), **agent.own_arrays(), **waiting}

    def _adopt(self, arrays: Mapping[str, NDArray[Any]], said: Mapping[str, Any]) -> None:
        agent = self.agent
        agent.config = replace(agent.config, seed=said["seed"])
        agent.seeds = spread_seed(said["seed"])
        agent.steps, agent.iterations = said["steps"], said["iterations"]
        agent.goal = None if said["goal"] is None else Goal(*said["goal"])
        agent.load_policy_arrays({name: arrays[name] for name in agent.policy_arrays()})
        for name, array in agent.own_arrays().items():
            array[:] = arrays[name]
        waiting = {name.removeprefix(WAITING): array for name, array in arrays.items() if name.startswith(WAITING)}
        agent._waiting = waiting or None

    def _fail(self, error: BaseException) -> None:
        """Say what ended this rank, and end the others."""
        who = f"rank {self.ranks.rank} of {self.ranks.size}"
        if isinstance(error, (LaunchError, LostRankError)):
            text, code = str(error), 2 if isinstance(error, LaunchError) else 1
        elif isinstance(error, (KeyboardInterrupt, SystemExit)):
            code = 130 if isinstance(error, KeyboardInterrupt) else error.code if isinstance(error.code, int) else 1
            text = f"{who} was interrupted, which ends the others"
        else:
            text, code = f"{who} failed, which ends the others:\n{''.join(traceback.format_exception(error))}", 1
        print(text, file=sys.stderr, flush=True)
        self.ranks.abort(code)
        raise SystemExit(code) from error


def _is_shared_out(name: str) -> bool:
    """Whether each rank has an own part of an array."""
    return name == TRAINED or name.startswith(BY_COPY)


def _digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    """Arrays one after the other; of records too, whose type `np.concatenate` would pack."""
    whole = np.empty((sum(map(len, parts)), *parts[0].shape[1:]), parts[0].dtype)
    first = 0
    for part in parts:
        whole[first : first + len(part)] = part
        first += len(part)
    return whole
