"""Training of one agent by several ranks: start from the same state, agree on when to stop, save on rank 0.

Rank 0 has the callbacks, the run and the display. When it needs the state of all ranks (for a checkpoint), the other
ranks are waiting in `Company.meet` and send their parts. A saved agent therefore does not depend on the number of
processes that trained it (see `program.sharing`). Of a replay buffer, ranks send only the range of steps that rank 0
requests: a checkpoint needs only the new ones.
"""

from __future__ import annotations

import hashlib
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.replay import FILLED
from velocirl.engine.compiler.caching.fingerprint import fingerprint
from velocirl.engine.disk.files import parse_json
from velocirl.engine.disk.writing import strict_json
from velocirl.program.pace import GROUP
from velocirl.program.reducing import shares_of
from velocirl.program.saved import COUNTS
from velocirl.program.sharing import RowsOfAll, Sharing, one_after_the_other, pieces, sharing_of_memory
from velocirl.runs.memory_files import ROWS
from velocirl.runs.signals import StopSignals
from velocirl.runs.state_file import state_from, state_parts
from velocirl.scale.launching import LIMIT, LaunchError, launch_of, let_first_speak
from velocirl.scale.ranks import LostRankError
from velocirl.scale.watched import WatchedRanks, watched_ranks
from velocirl.training.persistence import Goal
from velocirl.training.settings.config import as_plain
from velocirl.version import __version__

if TYPE_CHECKING:
    from velocirl.training.deep_agent import DeepAgent

# Requests of rank 0 in place of a sync: all arrays except replay buffer rows,
# or a range of steps of these rows.
STATE, STRETCH = 1.0, 2.0
ASKED, FIRST, STOP, STOPPING, WORDS = range(5)  # indices into the vector that ranks sum
SIGNALS = StopSignals.SIGNALS
WAITING = "waiting/"  # prefix of arrays that are kept until training is prepared


def company_of(agent: DeepAgent) -> Company | None:
    """Return the ranks that train an agent together; None with a single process."""
    launch = launch_of(agent.config.runtime)
    if launch.size == 1:
        return None
    reason, advice = agent.one_rank_only(), ""
    if reason is not None:
        reason = f"{agent.label} learns on one rank only where {reason}"
    for name, count in agent.shared_out().items():
        if reason is None and len(shares_of(count, launch.size)) < launch.size:
            enough = -(-count // launch.size) * launch.size
            reason, advice = f"{name}={count} leaves a rank without a share", f"give {name}={enough}, "
    if reason is not None:
        let_first_speak()
        raise LaunchError(
            f"{reason}, and {launch.launcher} has started {launch.size} processes: {advice}start one, or give"
            ' runtime="local" to let each train by itself'
        )
    return Company(agent, watched_ranks(launch))


class Company:
    """Ranks that train one agent, seen from one of them."""

    def __init__(self, agent: DeepAgent, ranks: WatchedRanks) -> None:
        self.agent, self.ranks = agent, ranks
        self.begun = False  # whether all ranks have started from the same state
        self._meeting = False  # during training, the other ranks respond to requests
        self._agreed = False  # ranks agreed to stop before the goal
        self._together: dict[str, Any] | None = None  # merged state of all learners when training ended
        self._rows: Any = None  # this rank's replay buffer rows at the last gathering
        self._dealt: NDArray[Any] | None = None  # this rank's shard of loaded replay buffer rows

    @contextmanager
    def conducted(self, total_steps: int | None) -> Iterator[bool]:
        """Train in this context, on all ranks at once; yields whether this is rank 0, which leads.

        A failing rank ends the whole job: the others would wait for it forever.
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
        """Broadcast seed, progress and arrays from rank 0; settings must already match."""
        ranks = self.ranks
        ranks.assemble(LIMIT)
        own = parse_json(strict_json(self._settings(total_steps)))  # in the form it has after transfer
        rows = (self.agent._waiting or {}).get(ROWS)
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
        if ROWS in (self.agent._waiting or {}):
            self._dealt = self._deal(rows)
        self.begun = True

    def meet(self, signals: StopSignals) -> bool:
        """Sync before an iteration; returns whether all ranks stop, by rank 0's callback or a signal to any rank."""
        stopping, received = self._hear(self.agent.stopping is not None, signals.received)
        if stopping and self.agent.stopping is None:
            self.agent.stopping = "a callback stopped it"
        if received is not None:  # else a signal that arrived meanwhile is kept for the next sync
            signals.received = received
        self._agreed = stopping or received is not None
        self.ranks.work()
        return self._agreed

    def state(self) -> dict[str, Any]:
        """Return the state of all ranks' learners, merged as if one learner had all environments; on rank 0 only.

        Replay buffer rows are fetched when they are read, which must happen before training continues.
        """
        if not self._meeting and self._together is not None:
            return self._together
        if self.ranks.rank or not self._meeting:
            raise ValueError(
                f"rank {self.ranks.rank} has a part of the copies only: save on rank 0, during or after `learn`"
            )
        self._say(STATE)
        together = self._gather()
        if ROWS in together:
            together[ROWS] = RowsOfAll(self._fetch, self._copies, together[ROWS].dtype, int(together[COUNTS][FILLED]))
        return together

    def own_part(self, state: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Return this rank's shard of a merged state."""
        dealt = {name: array for name, array in state.items() if name != ROWS}
        own = self._sharing.own(dealt, self.ranks.rank)
        return own if self._dealt is None else {**own, ROWS: self._dealt}

    def _end(self) -> None:
        """Respond to rank 0 until it is done; rank 0 keeps the merged state, so that the agent can be saved later."""
        self._hear(False, None)
        self._meeting = False
        if self.agent._learner is not None:
            together = self._gather()
            if ROWS in together:
                steps = len(self._rows) // self._own_copies
                rows = RowsOfAll(self._give, self._copies, self._rows.dtype, steps * self._copies)
                together[ROWS] = rows[:]
            self._together = together if self.ranks.rank == 0 else None

    def _hear(self, stopping: bool, received: Any) -> tuple[bool, Any]:
        """Return whether any rank stops, and the signal received; serves rank 0's requests for arrays meanwhile."""
        while True:
            said = self._say(0, 0, 0, stopping, *(received == one for one in SIGNALS))
            if said[ASKED] == STATE:
                self._gather()
            elif said[ASKED] == STRETCH:
                self._give(int(said[FIRST]), int(said[STOP]))
            else:
                counts = zip(SIGNALS, said[WORDS:], strict=True)
                return said[STOPPING] > 0, next((one for one, count in counts if count), None)

    def _say(self, *words: float) -> NDArray[np.float64]:
        """Return the sum over all ranks of `words`, padded with zeros."""
        said = np.zeros(WORDS + len(SIGNALS))
        said[: len(words)] = words
        self.ranks.sum(said)
        return said

    def _gather(self) -> dict[str, Any]:
        """Return the merged learner arrays on rank 0, with no replay buffer rows; other ranks send theirs."""
        own, sharing = self.agent.learner.state(), self._sharing
        self._rows = own.pop(ROWS, None)
        shared = {name: array for name, array in own.items() if not sharing.is_shared_out(name)}
        digest = _digest({**shared, **self.agent.policy_arrays()})
        parts = {name: array for name, array in own.items() if sharing.is_shared_out(name)}
        told = [state_from(data) for data in self.ranks.gather(b"".join(state_parts(parts, {"digest": digest})))]
        for rank, one in enumerate(told):
            if one.document["digest"] != digest:
                raise RuntimeError(f"rank {rank} has other parameters than rank 0 after step {self.agent.steps}")
        rows = {} if self._rows is None else {ROWS: np.zeros(0, self._rows.dtype)}
        return {**shared, **(sharing.join([one.arrays for one in told]) if told else {}), **rows}

    @property
    def _sharing(self) -> Sharing:
        """Sharding of the learners' arrays."""
        return self.agent.learner.sharing

    @property
    def _copies(self) -> int:
        return self.agent.config.num_envs

    @property
    def _own_copies(self) -> int:
        first, stop = self._sharing.copies[self.ranks.rank]
        return stop - first

    def _fetch(self, first: int, stop: int) -> NDArray[Any]:
        """Return the rows of some steps of all environments, on rank 0 while the other ranks wait."""
        if not self._meeting:
            raise ValueError("the rows of a memory that ranks share are fetched before training goes on: save earlier")
        self._say(STRETCH, first, stop)
        return self._give(first, stop)

    def _give(self, first: int, stop: int) -> NDArray[Any]:
        """Send this rank's rows of some steps to rank 0, which returns the rows of all ranks in order."""
        own = np.ascontiguousarray(self._rows[first * self._own_copies : stop * self._own_copies])
        told = [np.frombuffer(data, own.dtype) for data in self.ranks.gather(own.tobytes())]
        return self._sharing.interleaved(told) if told else own[:0]

    def _deal(self, rows: Any) -> NDArray[Any]:
        """Distribute the replay buffer rows that rank 0 has loaded; returns this rank's shard."""
        config, ranks, waiting = self.agent.config, self.ranks, self.agent._waiting
        assert waiting is not None  # noqa: S101 - it is what a rank goes on from
        if GROUP in waiting or "memory.edges" in waiting:
            let_first_speak()
            raise LaunchError(
                "ranks cannot share out a memory that was filled by free collectors, or that has pictures frame by"
                " frame: go on in one process, or load it with memory=False"
            )
        sharing, copies = sharing_of_memory(config.num_envs, 1, ranks.size), config.num_envs
        dtype, steps = waiting[ROWS].dtype, int(waiting[COUNTS][FILLED]) // copies
        own = [np.zeros(0, dtype)]
        for first, stop in pieces(0, steps, copies * dtype.itemsize):
            data = None if ranks.rank else np.ascontiguousarray(rows[first * copies : stop * copies]).tobytes()
            own.append(sharing.of_ring(np.frombuffer(ranks.broadcast(data), dtype), ranks.rank))
        return one_after_the_other(own)

    def _settings(self, total_steps: int | None) -> dict[str, Any]:
        """Return everything that must be equal on all ranks before they start."""
        agent = self.agent
        config = {name: value for name, value in as_plain(agent.config).items() if name != "seed"}
        named = {"velocirl": __version__, "algorithm": agent.name, "environment": agent.source.id}
        task, native = agent.task(), agent.source.native
        functions = [task.act.function, *(call.function for call in task.program.calls)]
        if native is not None:
            functions += [native.reset, native.step, native.observe]
        code = fingerprint(*functions)[:16]  # includes the versions of the compiler
        return {**named, **agent.source.signature(), **config, "total_steps": total_steps, "code": code}

    def _progress(self) -> dict[str, Any]:
        agent = self.agent
        goal = None if agent.goal is None else [agent.goal.start, agent.goal.total]
        return {"seed": agent.seed, "steps": agent.steps, "iterations": agent.iterations, "goal": goal}

    def _arrays(self) -> dict[str, NDArray[Any]]:
        agent = self.agent
        waiting = {f"{WAITING}{name}": array for name, array in (agent._waiting or {}).items()}
        if (rows := waiting.get(WAITING + ROWS)) is not None:
            waiting[WAITING + ROWS] = rows[:0]  # rows are distributed separately
        return {**agent.policy_arrays(), **agent.own_arrays(), **waiting}

    def _adopt(self, arrays: Mapping[str, NDArray[Any]], said: Mapping[str, Any]) -> None:
        agent = self.agent
        agent.reseed(said["seed"])
        agent.steps, agent.iterations = said["steps"], said["iterations"]
        agent.goal = None if said["goal"] is None else Goal(*said["goal"])
        agent.load_policy_arrays({name: arrays[name] for name in agent.policy_arrays()})
        for name, array in agent.own_arrays().items():
            array[:] = arrays[name]
        waiting = {name.removeprefix(WAITING): array for name, array in arrays.items() if name.startswith(WAITING)}
        agent._waiting = waiting or None

    def _fail(self, error: BaseException) -> None:
        """Print the error that ended this rank, and end the other ranks."""
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


def _digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()
