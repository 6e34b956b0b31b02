"""Lowering of an iteration to instructions for CPU threads.

Adjacent row operations are turned inside out: a block of rows passes through all of them, and through all time steps
of a loop around them, before the next block, which stays in its core's cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from velocirl.backends.cpu.interpreter import (
    AGAIN,
    BEGIN_PHASE,
    BLOCK,
    BLOCK_NUMBER,
    CALL,
    CHUNK,
    CLEAR,
    END_PHASE,
    FIRST,
    INSTRUCTION,
    JUMP,
    LAP,
    LEAVE,
    NEXT,
    NOTHING,
    OWN,
    REPEAT,
    RESTART,
    STOP,
    TURN,
    UNLESS,
    Machine,
    execute,
    resume,
)  # fmt: skip
from velocirl.backends.cpu.interpreter import ZERO as ZERO_REGISTER
from velocirl.engine.compiler.compiling import learning_translator
from velocirl.engine.compiler.units import bind_unit
from velocirl.networks.mlp import ROWS
from velocirl.program.counting.phases import Places
from velocirl.program.iteration import (
    ZERO,
    Advance,
    Choose,
    Listed,
    Loop,
    Once,
    Operation,
    Operations,
    Phase,
    Rows,
    Timed,
    walk,
)  # fmt: skip


def blocks_of_rows(rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Cut rows into blocks; returns the blocks, and one item with all of them."""
    blocks = [(first, min(first + ROWS, rows)) for first in range(0, rows, ROWS)]
    return np.array(blocks, np.int64).reshape(-1, 2), np.array([0, len(blocks)])


class Unit(Protocol):
    """Callee of an instruction, called by address: a compiled unit or a Python call."""

    frame: int


class Iteration:
    """Compiled iteration of one worker, from units by operation name."""

    def __init__(
        self,
        operations: Operations,
        units: Mapping[str, Unit],
        places: Places,
        counters: NDArray[np.int64],
        blocks: NDArray[np.int64],
        items: NDArray[np.int64],
        **known: int,
    ) -> None:
        """`blocks` are ranges of rows, grouped into `items`; `known` counters never change."""
        lowering = Lowering(operations, units, places)
        self._names, self._held = lowering.registers, units
        self._registers = np.zeros(OWN + len(self._names), np.int64)
        for name, value in known.items():
            if name in self._names:
                self[name] = value
        arguments = (Machine(lowering.code, self._registers, blocks, items, ROWS, counters),)
        self.start, self.resume = (
            bind_unit(one, arguments, learning_translator("interpreter"), disjoint=False) for one in (execute, resume)
        )

    def __getitem__(self, name: str) -> int:
        return int(self._registers[self._names[name]])

    def __setitem__(self, name: str, value: int) -> None:
        self._registers[self._names[name]] = value

    @property
    def waits(self) -> bool:
        """True if Python has to step the environments before `resume` continues."""
        return self._registers[NEXT] != 0


class Lowering:
    """Lowering of operations to instructions; an `Advance` without a unit leaves the interpreter."""

    def __init__(self, operations: Operations, units: Mapping[str, Unit], places: Places) -> None:
        self._frames, self._places = {name: unit.frame for name, unit in units.items()}, places
        self._registers = {ZERO: ZERO_REGISTER}
        self._rows: list[tuple[int, ...]] = []
        self._range: tuple[int, int] | None = None  # registers of the current range of rows
        self._timed = False
        for one in walk(operations):
            self._declare(one)
        self._add_all(operations)
        self.code = np.array(self._rows, INSTRUCTION)

    @property
    def registers(self) -> Mapping[str, int]:
        """Registers of the counters, by name."""
        return self._registers

    def _declare(self, one: Operation) -> None:
        names: Sequence[str | None] = ()
        if isinstance(one, Rows):
            names = (one.at,)
        elif isinstance(one, Once):
            names = (*one.reads, one.into)
        elif isinstance(one, Loop):
            names = one.counter, one.count, one.until
        elif isinstance(one, Choose):
            names = (one.counter,)
        for name in names:
            if name is not None and name not in self._registers:
                self._registers[name] = OWN + len(self._registers)

    def _new_register(self) -> int:
        name = f"register {len(self._registers)}"
        self._registers[name] = OWN + len(self._registers)
        return self._registers[name]

    def _by_row(self, one: Operation) -> bool:
        """Return whether an operation treats rows independently of each other."""
        if isinstance(one, Rows | Listed):
            return True
        if isinstance(one, Advance):
            return one.name in self._frames
        if isinstance(one, Once):
            return False
        bodies = one.body + one.otherwise if isinstance(one, Choose) else one.body
        return all(self._by_row(inner) for inner in bodies)

    def _emit(self, kind: int, **fields: int) -> int:
        values = {"unit": 0, "first": NOTHING, "stop": NOTHING, "place": NOTHING, "into": NOTHING, "jump": 0} | fields
        self._rows.append((kind, *values.values()))
        return len(self._rows) - 1

    def _land(self, instruction: int) -> None:
        """Set an instruction's jump to the next instruction."""
        self._rows[instruction] = (*self._rows[instruction][:-1], len(self._rows))

    def _add_all(self, operations: Operations) -> None:
        for by_row, group in groupby(operations, self._by_row):
            if by_row and self._range is None:
                self._add_blocks(tuple(group))
            else:
                for one in group:
                    self._add(one)

    def _add_blocks(self, operations: Operations) -> None:
        self._range = FIRST, STOP
        self._emit(CLEAR, first=BLOCK_NUMBER)
        top = self._emit(BLOCK, first=FIRST, stop=STOP, place=BLOCK_NUMBER)
        for one in operations:
            self._add(one)
        self._emit(JUMP, jump=top)
        self._land(top)
        self._range = None

    def _add(self, one: Operation) -> None:
        adds: dict[type, Any] = {
            Rows: self._add_rows, Advance: self._add_advance, Once: self._add_once, Loop: self._add_loop,
            Choose: self._add_choice, Listed: self._add_list, Timed: self._add_timed, Phase: self._add_phase,
        }  # fmt: skip
        adds[type(one)](one)

    def _add_rows(self, one: Rows) -> None:
        assert self._range is not None  # noqa: S101 - see `_add_all`
        first, stop = self._range
        self._emit(CALL, unit=self._frames[one.name], first=first, stop=stop, place=self._registers[one.at])

    def _add_advance(self, one: Advance) -> None:
        if one.name in self._frames:
            self._add_rows(Rows(one.name))
        else:
            self._emit(LEAVE)

    def _add_once(self, one: Once) -> None:
        read = [self._registers[name] for name in (*one.reads, ZERO, ZERO, ZERO)][:3]
        into = NOTHING if one.into is None else self._registers[one.into]
        self._emit(CALL, unit=self._frames[one.name], first=read[0], stop=read[1], place=read[2], into=into)

    def _add_loop(self, one: Loop) -> None:
        counter, count = self._registers[one.counter], self._registers[one.count]
        until = ZERO_REGISTER if one.until is None else self._registers[one.until]
        top = self._emit(REPEAT, first=counter, stop=count)
        self._add_all(one.body)
        self._emit(AGAIN, first=counter, stop=count, place=until, jump=top + 1)
        self._land(top)

    def _add_choice(self, one: Choose) -> None:
        unless = self._emit(UNLESS, first=self._registers[one.counter])
        self._add_all(one.body)
        if one.otherwise:
            done = self._emit(JUMP)
            self._land(unless)
            self._add_all(one.otherwise)
            self._land(done)
        else:
            self._land(unless)

    def _add_list(self, one: Listed) -> None:
        assert self._range is not None  # noqa: S101
        (first, stop), count = self._range, self._new_register()
        self._emit(CALL, unit=self._frames[one.find], first=first, stop=stop, place=ZERO_REGISTER, into=count)
        self._range = self._new_register(), self._new_register()
        self._emit(CLEAR, first=self._range[1])
        top = self._emit(CHUNK, first=self._range[0], stop=self._range[1], place=count)
        self._add_all(one.body)
        self._emit(JUMP, jump=top)
        self._land(top)
        self._range = first, stop

    def _add_timed(self, one: Timed) -> None:
        kind, every = self._places.turns[one.turn]
        self._emit(TURN, place=kind, unit=every)
        self._timed = True
        for by_row, group in groupby(one.body, self._by_row):
            if by_row:
                self._add_all(tuple(group))
                continue
            for inner in group:
                self._add(inner)
                if not isinstance(inner, Phase):  # its time does not count for the next phase
                    self._emit(RESTART)
        self._timed = False

    def _add_phase(self, one: Phase) -> None:
        place = self._places.phases[one.name]
        if self._timed:
            self._add_all(one.body)
            self._emit(LAP, place=place)
            return
        since = self._new_register()
        self._emit(BEGIN_PHASE, first=since)
        self._add_all(one.body)
        self._emit(END_PHASE, first=since, place=place)
