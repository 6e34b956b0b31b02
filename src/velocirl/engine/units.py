"""Units: what is compiled is small, cached by its own content and called by address, so that nothing is compiled twice.

Every unit has the same signature, `unit(frame, first, stop, place) -> number`: where its arguments lie (see `frames`),
the range of indices that it goes through, and one more number. So a compiled driver can call any of them, and Python
too. A unit that lies in the cache is only linked: the compiler looks neither at its types nor at its source again.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numba
from numba import types
from numba.core import cgutils, serialize
from numba.core.registry import cpu_target
from numba.core.runtime import rtsys
from numba.extending import intrinsic

from velocirl.engine.cache import find_code, keep_code
from velocirl.engine.compiling import OPTIONS, UNCOUNTED, DisjointArguments, compiler_settings, named
from velocirl.engine.fingerprint import fingerprint
from velocirl.engine.frames import Frame, reader, type_of
from velocirl.engine.translating import Translator

WORDS = (types.int64,) * 4  # frame, first, stop, place
_LOADED: dict[str, int] = {}  # the addresses of this process's units, by their keys


def unit_address(
    function: Any,
    kind: Any,
    translator: Translator,
    before: Callable[[], None] = lambda: None,
    *,
    disjoint: bool = True,
) -> int:
    """The address of the unit of `function(arguments, first, stop, place)` for a tuple of arguments of this type.

    It gives a whole number or nothing. With `disjoint`, its arrays must not overlap, other than in the same element of
    the same step of a loop. `before` is called if there is really something to compile.
    """
    codegen: Any = cpu_target.target_context.codegen()  # pyright: ignore[reportAttributeAccessIssue]
    machine = " ".join(map(str, codegen.magic_tuple()))
    key = fingerprint(function, translator.double, translator.manner, str(kind), disjoint, machine)
    if key not in _LOADED:  # machine code is never unloaded, so each unit is linked once
        code = find_code(f"{key[:40]}.unit")
        if code is None:
            before()
            code = _compile(function, kind, translator, key, disjoint)
            keep_code(f"{key[:40]}.unit", code)
        if b"NRT_" in code:  # it allocates, by functions that numba tells the linker of where it compiles
            rtsys.initialize(cpu_target.target_context)
        engine = codegen._engine._ee
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        engine.finalize_object()
        _LOADED[key] = engine.get_function_address(_symbol(key))
    return _LOADED[key]


def _symbol(key: str) -> str:
    return f"velocirl_{key}"


def _compile(function: Any, kind: Any, translator: Translator, key: str, disjoint: bool) -> bytes:
    """The machine code of a unit, as an object file with one symbol."""
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


def _call_unit(typing_context: Any, address: Any, frame: Any, first: Any, stop: Any, place: Any) -> Any:  # noqa: ARG001
    """Call a unit by its address from a compiled function; what it raises goes on to whoever called that."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        convention = context.call_conv
        kind = convention.get_function_type(types.int64, WORDS)
        result = cgutils.alloca_once(builder, kind.args[0].pointee)
        exception = cgutils.alloca_once(builder, kind.args[1].pointee)
        function = builder.inttoptr(arguments[0], kind.as_pointer())
        code = builder.call(function, [result, exception, *arguments[1:]])
        status = convention._get_return_status(builder, code, builder.load(exception))
        with cgutils.if_unlikely(builder, status.is_error):
            convention.return_status_propagate(builder, status)
        return builder.load(result)

    return types.int64(*(types.int64,) * 5), generate


call_unit: Any = intrinsic(_call_unit)


class _Exception(ctypes.Structure):
    """How numba tells of an exception: where it lies, pickled by the compiler, and how long it is."""

    _fields_ = (("data", ctypes.c_void_p), ("size", ctypes.c_int32))


_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32, *(ctypes.c_int64,) * 6)  # result, exception, and the words of a unit


class BoundUnit:
    """A unit with its arguments, for drivers by its addresses and for Python to call; it holds no GIL while it runs."""

    def __init__(self, address: int, arguments: tuple[Any, ...]) -> None:
        self.address = address
        self.frame = Frame(arguments)
        self._entry = _ENTRY(address)

    def __call__(self, first: int, stop: int, place: int = 0) -> int:
        """Go through a range of indices; gives back what the unit does."""
        frame = self.frame
        if self._entry(frame.result, frame.exception, frame.address, first, stop, place) > 0:
            raise _told(ctypes.POINTER(_Exception).from_address(frame.exception).contents)
        return frame.given_back


def _told(found: _Exception) -> BaseException:
    data = ctypes.string_at(found.data or 0, found.size)
    kind, arguments, _ = serialize._numba_unpickle(found.data, data, data)
    return kind(*(arguments or ()))


def bind_unit(
    function: Any,
    arguments: tuple[Any, ...],
    translator: Translator,
    before: Callable[[], None] = lambda: None,
    *,
    disjoint: bool = True,
) -> BoundUnit:
    """The unit of `function(arguments, first, stop, place)` with its arguments."""
    return BoundUnit(unit_address(function, type_of(arguments), translator, before, disjoint=disjoint), arguments)
