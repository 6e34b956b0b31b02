"""Common advice for small and large machines, compared with measurements on this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from velocirl.bench.machine.facts import Machine
from velocirl.bench.tuning.evidence import Measured
from velocirl.runs.processor import output_of

GIGABYTE = 2**30
SMALL_GPU, LARGE_GPU, FEW_CORES = 8 * GIGABYTE, 24 * GIGABYTE, 8


class Rig(NamedTuple):
    """Properties of this machine that the advice depends on."""

    cores: int
    gpu_bytes: int | None  # None: no GPU

    @property
    def gpu(self) -> str:
        """GPU memory as text."""
        return "no GPU" if self.gpu_bytes is None else f"{self.gpu_bytes / GIGABYTE:.0f} GiB"


class Case(NamedTuple):
    """Kind of machine, with a test whether this machine is one."""

    name: str
    figure: Callable[[Rig], str]
    applies: Callable[[Rig], bool]


class Advice(NamedTuple):
    """Advice for a kind of machine.

    Candidates follow it if they decrease (-1), increase (1) or change (0) `setting`.
    """

    case: Case
    says: str
    setting: str
    direction: int = 0
    here: str = "not tried"  # shown if no candidate follows it

    def is_followed_by(self, changes: Mapping[str, Any], reference: Mapping[str, Any]) -> bool:
        """Return whether changes of the reference's settings follow this advice."""
        if self.setting not in changes:
            return False
        return self.direction == 0 or (changes[self.setting] - reference[self.setting]) * self.direction > 0


SMALL_MEMORY = Case("limited GPU memory", lambda rig: rig.gpu, lambda rig: 0 < (rig.gpu_bytes or 0) < SMALL_GPU)
FEW = Case("limited CPU cores", lambda rig: f"{rig.cores} cores", lambda rig: rig.cores < FEW_CORES)
LARGE = Case("high-end GPU", lambda rig: rig.gpu, lambda rig: (rig.gpu_bytes or 0) >= LARGE_GPU)
ADVICE = (
    Advice(SMALL_MEMORY, "smaller batches", "batch_size", -1),
    Advice(SMALL_MEMORY, "a smaller buffer", "buffer_size", -1),
    Advice(SMALL_MEMORY, "no mixed precision if issues occur", "precision"),
    Advice(FEW, "two collectors", "collectors"),
    Advice(FEW, "batches of 2,000 experiences", "", here="always 1,000 or more"),
    Advice(LARGE, "larger batches", "batch_size", 1),
    Advice(LARGE, "data parallel on several", "", here="one is used"),
    Advice(LARGE, "steps while updates run", "overlap"),
)
HEADINGS = ("hardware", "this machine", "advised there", "applies", "tried here", "times as fast")


def rig_of(machine: Machine) -> Rig:
    """Return the relevant properties of this machine."""
    said = output_of("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits").split("\n")[0].strip()
    return Rig(machine.cores, int(said) * 2**20 if machine.gpu and said.isdigit() else None)


def advice_rows(rig: Rig, rows: Sequence[Measured], reference: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return a table row per advice: the fastest candidate that follows it, and its speedup over the reference."""
    first = next((row for row in rows if row.candidate.is_reference), None)
    table = []
    for one in ADVICE:
        tested = [row for row in rows if row.rate and one.is_followed_by(row.candidate.learning, reference)]
        best = max(tested, key=lambda row: row.rate, default=None)
        faster = "-" if best is None or first is None or not first.rate else f"{best.rate / first.rate:.2f}"
        applies = "yes" if one.case.applies(rig) else "no"
        tried = best.name if best else one.here
        table.append((one.case.name, one.case.figure(rig), one.says, applies, tried, faster))
    return table
