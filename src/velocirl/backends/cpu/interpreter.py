"""Interpreter: a compiled loop over instructions that call units by address.

It is compiled once for all iterations. An iteration's counters are registers, so that it can leave the interpreter
where Python has to step the environments, and resume there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.compiler.counters import TIMING, WHOLE, glance, lap, start, turn
from velocirl.engine.compiler.units import call_unit

# CALL calls `unit` with the registers `first`, `stop` and `place`; its result goes to the register `into`.
# REPEAT begins a loop of register `stop` turns, counted by `first`; AGAIN takes the next turn unless `place` is set.
# BLOCK sets `first` and `stop` to the rows of block `place` of the item; CHUNK to the next rows of a list of `place`.
CALL, CLEAR, REPEAT, AGAIN, BLOCK, CHUNK, UNLESS, JUMP, LEAVE, TURN, RESTART, LAP, BEGIN_PHASE, END_PHASE = range(14)
INSTRUCTION = np.dtype(
    [
        ("kind", np.int64),
        ("unit", np.int64),  # the frame that CALL calls; for TURN: one in `unit` turns is timed
        ("first", np.int64),
        ("stop", np.int64),
        ("place", np.int64),  # also the counter of time
        ("into", np.int64),
        ("jump", np.int64),  # the next instruction where the loop or condition does not hold
    ]
)
# Registers of every machine, before the registers of its counters.
NOTHING, ZERO, FIRST, STOP, ITEM, BLOCK_NUMBER, NEXT, TIMED, SINCE, BEGAN, OWN = range(11)


class Machine(NamedTuple):
    """The instructions of an iteration, for one worker."""

    code: NDArray[Any]  # (instructions,) INSTRUCTION
    registers: NDArray[np.int64]
    blocks: NDArray[np.int64]  # (blocks, 2) rows: first and stop
    items: NDArray[np.int64]  # (items + 1,) the first block of each item that workers claim
    list_rows: int  # maximum rows of a list per chunk
    counters: NDArray[np.int64]  # times, see `engine.compiler.counters`


def execute(arguments, first, stop, place):  # noqa: ARG001 - as every unit
    """Run an iteration for the blocks of item number `first`; returns 1 where Python has to step environments."""
    machine = arguments[0]
    registers = machine.registers
    registers[ITEM], registers[NEXT], registers[TIMED] = first, 0, 0
    registers[BEGAN] = glance(True)
    return go_on(machine)


def resume(arguments, first, stop, place):  # noqa: ARG001
    """Resume after Python has stepped the environments."""
    return go_on(arguments[0])


def go_on(machine):
    """Execute instructions to the end, or until Python has to step the environments."""
    code, registers, counters = machine.code, machine.registers, machine.counters
    timed, since, at = registers[TIMED] != 0, registers[SINCE], registers[NEXT]
    while at < len(code):
        one = code[at]
        kind = one.kind
        at += 1
        if kind == CALL:
            found = call_unit(one.unit, registers[one.first], registers[one.stop], registers[one.place])
            registers[one.into] = found
        elif kind == LAP:
            since = lap(counters, one.place, since, timed)
        elif kind == UNLESS:
            if registers[one.first] == 0:
                at = one.jump
        elif kind == JUMP:
            at = one.jump
        elif kind == REPEAT:
            registers[one.first] = 0
            if registers[one.stop] <= 0:
                at = one.jump
        elif kind == AGAIN:
            registers[one.first] += 1
            if registers[one.first] < registers[one.stop] and registers[one.place] == 0:
                at = one.jump
        elif kind == BLOCK:
            block = machine.items[registers[ITEM]] + registers[one.place]
            registers[one.place] += 1
            if block < machine.items[registers[ITEM] + 1]:
                registers[one.first], registers[one.stop] = machine.blocks[block, 0], machine.blocks[block, 1]
            else:
                at = one.jump
        elif kind == CHUNK:
            low = registers[one.stop]
            if low < registers[one.place]:
                registers[one.first] = low
                registers[one.stop] = min(low + machine.list_rows, registers[one.place])
            else:
                at = one.jump
        elif kind == TURN:
            timed = turn(counters, one.place, one.unit)
            counters[TIMING] = timed
            since = start(counters, one.place, timed)
        elif kind == CLEAR:
            registers[one.first] = 0
        elif kind == RESTART:
            since = glance(timed)
        elif kind == BEGIN_PHASE:
            registers[one.first] = glance(True)
        elif kind == END_PHASE:
            lap(counters, one.place, registers[one.first], True)
        else:  # LEAVE
            registers[TIMED], registers[SINCE], registers[NEXT] = timed, since, at
            return 1
    registers[NEXT] = 0
    lap(counters, WHOLE, registers[BEGAN], True)
    return 0
