"""Units of samples: the better direction, and their formatting."""

from __future__ import annotations

import re
from dataclasses import dataclass

from velocirl.bench.statistics import Estimate

MEMORY = ("bytes", "MB")
PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))


@dataclass(frozen=True)
class Unit:
    """Unit: whether more of it is better, and its format; without `{prefix}`, numbers are not abbreviated."""

    name: str
    more_is_better: bool
    template: str

    def __post_init__(self) -> None:
        # It may come from a file: only these two fields may be filled in, whatever the template requests.
        if len(self.template) > 40 or not re.fullmatch(r"\{number\}[^{}]*(\{prefix\}[^{}]*)?", self.template):
            raise ValueError(f"a unit is written as {{number}} and, behind it, {{prefix}}; got {self.template!r}")

    @property
    def is_memory(self) -> bool:
        """True for memory, False for time or speed."""
        return self.name in MEMORY

    @property
    def is_speed(self) -> bool:
        """True for a time or a rate: a quantity that a slower machine changes."""
        return self.name == "s" or self.name.endswith("/s")

    def say(self, value: float) -> str:
        """Format a value for a table: 35.6M steps/s, 115 µs, 138 bytes."""
        factor, prefix = self._prefix(value)
        return self.template.format(number=significant(value / factor), prefix=prefix)

    def say_interval(self, estimate: Estimate) -> str:
        """Format the interval of an estimate, with the prefix of its median: 35.1 to 36.0."""
        factor, _ = self._prefix(estimate.median)
        return f"{significant(estimate.low / factor)} to {significant(estimate.high / factor)}"

    def _prefix(self, value: float) -> tuple[float, str]:
        if "{prefix}" in self.template:
            for factor, prefix in PREFIXES:
                if abs(value) >= factor * 0.9995:  # rounds to 1 of the larger unit, not to 1000 of the smaller
                    return factor, prefix
        return 1.0, ""


def significant(value: float) -> str:
    """Format with three significant digits, without an exponent; integers from 100 on."""
    size = abs(value)
    decimals = 0 if size >= 99.95 or size == 0.0 else 1 if size >= 9.995 else 2
    return f"{value:,.{decimals}f}"


STEPS = Unit("steps/s", True, "{number}{prefix} steps/s")
ROWS = Unit("rows/s", True, "{number}{prefix} rows/s")
SECONDS = Unit("s", False, "{number} {prefix}s")
RATE = Unit("/s", True, "{number}{prefix}/s")
FLOPS = Unit("FLOP/s", True, "{number} {prefix}FLOP/s")
BYTES_PER_SECOND = Unit("B/s", True, "{number} {prefix}B/s")
UPDATES = Unit("updates/s", True, "{number}{prefix} updates/s")
RETURN = Unit("return", True, "{number}")
NUMBER = Unit("", True, "{number}")
MEGABYTES = Unit("MB", False, "{number} MB")
BYTES = Unit("bytes", False, "{number} bytes")
PERCENT = Unit("%", False, "{number}%")
TIMES = Unit("x", True, "{number}x")
