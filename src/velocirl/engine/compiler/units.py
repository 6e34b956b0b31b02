"""Compilation units: small functions, cached by content and called by address, so that nothing is compiled twice.

Every unit has the same signature, `unit(frame, first, stop, place) -> number`. Its arguments are the address of its
frame (see `frames`), a range of indices, and one more number. Compiled drivers and Python can therefore call any unit.
A cached unit is only linked: the compiler processes neither its types nor its source again.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import llvmlite.binding as llvm
import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target
from numba.core.runtime.nrt import rtsys
from numba.extending import intrinsic
from numpy.typing import NDArray

from velocirl.engine.compiler.caching.cache import find_code, keep_code
from velocirl.engine.compiler.caching.claiming import claimed, wait_for
from velocirl.engine.compiler.caching.fingerprint import fingerprint, names_reached
from velocirl.engine.compiler.caching.forking import share_out
from velocirl.engine.compiler.compiling import (
    OPTIONS,
    UNCOUNTED,
    DisjointArguments,
    compiler_settings,
    cpu_translator,
    named,
)
from velocirl.engine.compiler.entering import unit_entry
from velocirl.engine.compiler.frames import Frame, reader, type_of
from velocirl.engine.compiler.translating import Translator
from velocirl.engine.errors import debugging
from velocirl.engine.targets.cores import available_cores

WORDS = (types.int64,) * 4  # frame, first, stop, place
MOST_PROCESSES = 8  # compiling at the same time; the largest unit is a fifth of all
_LOADED: dict[str, int] = {}  # the addresses of this process's units, by their keys
_WAITING: list[tuple[weakref.ref[BoundUnit], _Order]] = []  # bound units that must be compiled before any call
_lock = threading.RLock()


class _Order(NamedTuple):
    """Order to compile a unit."""

    key: str
    function: Any
    kind: Any  # of the tuple of arguments
    translator: Translator
    disjoint: bool
    explain: Callable[[Exception], Exception]


class BoundUnit:
    """Unit with its arguments: for drivers by the address of its frame, and callable from Python.

    The first call of any unit compiles all units bound so far, in parallel on all cores. The GIL is released while a
    unit runs.
    """

    def __init__(self, arguments: tuple[Any, ...]) -> None:
        self._frame, self._enter = Frame(arguments), unit_entry()
        self.frame = self._frame.address

    def enter(self, code: int) -> None:
        """Set the address of the compiled unit."""
        self._frame.enter(code)

    @contextmanager
    def redirected(self, array: NDArray[Any], into: NDArray[Any]) -> Iterator[None]:
        """Replace an argument by another array of the same type in this context."""
        self._frame.redirect(array, into)
        try:
            yield
        finally:
            self._frame.redirect(into, array)

    def __call__(self, first: int, stop: int, place: int = 0) -> int:
        """Run a range of indices; returns the unit's result."""
        if _WAITING:  # even if this unit is compiled: it may call others
            compile_waiting()
        return self._enter(self.frame, first, stop, place)


def bind_unit(
    function: Any,
    arguments: tuple[Any, ...],
    translator: Translator,
    before: Callable[[], None] = lambda: None,
    *,
    disjoint: bool = True,
    explain: Callable[[Exception], Exception] = lambda error: error,
) -> BoundUnit:
    """Bind the unit of `function(arguments, first, stop, place)` to its arguments; it returns an integer or nothing.

    With `disjoint`, its arrays must not overlap, except in the same element of the same step of a loop. `before` is
    called if compilation is needed. Exceptions of the compiler are passed through `explain`.
    """
    codegen: Any = cpu_target.target_context.codegen()  # pyright: ignore[reportAttributeAccessIssue]
    machine, kind = " ".join(map(str, codegen.magic_tuple())), type_of(arguments)
    key = fingerprint(function, translator.double, translator.manner, str(kind), disjoint, machine)
    unit = BoundUnit(arguments)
    with _lock:
        if key not in _LOADED:
            code = find_code(_file(key))
            if code is None:
                before()
                order = _Order(key, function, kind, translator, disjoint, explain)
                _WAITING.append((weakref.ref(unit), order))
                return unit
            _load(key, code)
        unit.enter(_LOADED[key])
    return unit


def compile_waiting() -> None:
    """Compile all bound units that are not compiled yet."""
    with _lock:
        waiting = [(unit, order) for held, order in _WAITING if (unit := held()) is not None]
        orders = list({order.key: order for _, order in waiting if order.key not in _LOADED}.values())
        orders.sort(key=lambda order: -len(names_reached(order.function)))  # longest compilation first
        failed: set[str] = set()

        def machine_code(k: int) -> bytes:
            try:
                return _compile(orders[k])
            except Exception as error:  # noqa: BLE001 - numba fails in many ways
                failed.add(orders[k].key)
                explained = orders[k].explain(error)
                raise explained from (error if debugging() and explained is not error else None)

        try:
            with global_compiler_lock:
                codes = _codes_of([_file(order.key) for order in orders], machine_code)
        except Exception:
            _refuse([unit for unit, order in waiting if order.key in failed])
            _WAITING[:] = [(held, order) for held, order in _WAITING if order.key not in failed]
            raise
        for order, code in zip(orders, codes, strict=True):
            _load(order.key, code)
        for unit, order in waiting:
            unit.enter(_LOADED[order.key])
        _WAITING.clear()


def _codes_of(names: list[str], machine_code: Callable[[int], bytes]) -> list[bytes]:
    """Return the code of each of these files: compiled and stored here, or by another process that has claimed it."""
    codes: dict[int, bytes] = {}

    def make(wanted: list[int]) -> None:
        for k in wanted:
            if (code := find_code(names[k])) is not None:  # another process was faster
                codes[k] = code
        missing = [k for k in wanted if k not in codes]
        made = share_out(lambda k: machine_code(missing[k]), len(missing), min(available_cores(), MOST_PROCESSES))
        for k, code in zip(missing, made, strict=True):
            keep_code(names[k], code)
            codes[k] = code

    with claimed(names) as ours:
        make([k for k, name in enumerate(names) if name in ours])
    if others := [k for k, name in enumerate(names) if name not in ours]:
        wait_for([names[k] for k in others])
        make(others)
    return [codes[k] for k in range(len(names))]


def not_compiled(arguments, first, stop, place):  # noqa: ARG001 - as every unit
    """Substitute for a unit that could not be compiled, for drivers that call it."""
    raise RuntimeError("a function that this calls could not be compiled: see the first error")


def _refuse(units: list[BoundUnit]) -> None:
    if units and not_compiled.__name__ not in _LOADED:
        translator = cpu_translator("units", double=True)
        order = _Order(not_compiled.__name__, not_compiled, type_of(()), translator, True, lambda error: error)
        _load(order.key, _compile(order))
    for unit in units:
        unit.enter(_LOADED[not_compiled.__name__])


def _load(key: str, code: bytes) -> None:
    """Link machine code; it is never unloaded, so each unit is linked once."""
    codegen: Any = cpu_target.target_context.codegen()  # pyright: ignore[reportAttributeAccessIssue]
    if b"NRT_" in code:  # it allocates, through functions that numba registers with the linker where it compiles
        rtsys.initialize(cpu_target.target_context)
    engine = codegen._engine._ee
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _LOADED[key] = engine.get_function_address(_symbol(key))


def _file(key: str) -> str:
    """Return the file name of a unit in the cache."""
    return f"{key[:40]}.unit"


def _symbol(key: str) -> str:
    return f"velocirl_{key}"


def _compile(order: _Order) -> bytes:
    """Return the machine code of a unit, as an object file with one symbol."""
    key, function, kind, translator, disjoint, _ = order
    options: dict[str, Any] = {**OPTIONS, **UNCOUNTED, "no_cpython_wrapper": True}
    manner: dict[str, Any] = {"pipeline_class": DisjointArguments} if disjoint else {}
    inner: Any = numba.njit(**options, **manner)(named(function, translator))
    read = reader(kind)

    def unit(frame, first, stop, place):
        return inner(read(frame), first, stop, place)

    with compiler_settings(translator.double):
        dispatcher: Any = numba.njit(**options)(unit)
        dispatcher.compile(WORDS)
        compiled = dispatcher.overloads[WORDS]
        library: Any = compiled.library
        module = library._final_module
        for one in (*module.functions, *module.global_variables):
            if not one.is_declaration:
                one.linkage = "internal"
        entry = module.get_function(compiled.fndesc.llvm_func_name)
        entry.linkage = "external"
        entry.name = _symbol(key)
        parent: Any = super(type(library), library)
        parent._optimize_final_module()
        return library.codegen._tm.emit_object(module)


def _call_unit(typing_context: Any, frame: Any, first: Any, stop: Any, place: Any) -> Any:  # noqa: ARG001
    """Call a unit from a compiled function, by its frame's address; its exceptions propagate to the caller."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        convention = context.call_conv
        kind = convention.get_function_type(types.int64, WORDS)
        result = cgutils.alloca_once(builder, kind.args[0].pointee)
        exception = cgutils.alloca_once(builder, kind.args[1].pointee)
        words = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        address = builder.load(builder.gep(words, [ir.Constant(ir.IntType(64), -1)]))
        function = builder.inttoptr(address, kind.as_pointer())
        code = builder.call(function, [result, exception, *arguments])
        status = convention._get_return_status(builder, code, builder.load(exception))
        with cgutils.if_unlikely(builder, status.is_error):
            convention.return_status_propagate(builder, status)
        return builder.load(result)

    return types.int64(*WORDS), generate


call_unit: Any = intrinsic(_call_unit)
