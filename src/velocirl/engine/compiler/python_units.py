"""Units that are Python: what compiled drivers call by address, in the middle of a loop, to reach the outside world."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from velocirl.engine.compiler.frames import Frame

# As `units` declares them: where the result goes, where an exception would, and the four words of every unit.
_SIGNATURE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(ctypes.c_int64), ctypes.c_void_p, *(ctypes.c_int64,) * 4)


class PythonUnit:
    """`function(first, stop, place)` as a unit. It gives 0, or 1 where the function raised; see `raise_fault`.

    A call takes some two microseconds more than the function, and the GIL.
    """

    def __init__(self, function: Callable[[int, int, int], Any]) -> None:
        self._function = function
        self._called = _SIGNATURE(self._call)
        self._frame = Frame(())
        address = ctypes.cast(self._called, ctypes.c_void_p).value
        assert address is not None  # noqa: S101 - a function that was just made
        self._frame.enter(address)
        self.frame = self._frame.address
        self._fault: BaseException | None = None

    def raise_fault(self) -> None:
        """Raise what the function raised, now that no compiled code is in between."""
        fault, self._fault = self._fault, None
        if fault is not None:
            raise fault

    def _call(self, result: Any, exception: Any, frame: int, first: int, stop: int, place: int) -> int:  # noqa: ARG002
        try:
            self._function(first, stop, place)
            result[0] = 0
        except BaseException as fault:  # noqa: BLE001 - told by `raise_fault`
            self._fault = fault
            result[0] = 1
        return 0
