"""Translation of plain Python functions, and all functions they call, into forms that a compiler accepts.

The source stays unchanged. Constants are converted to the environment's precision. Helpers and modules are replaced by
compiled ones wherever a function refers to them: in globals, closures, defaults and attributes of modules.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable, Mapping
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from velocirl.engine.compiler.arithmetic.precision import single
from velocirl.engine.compiler.caching.fingerprint import attributes_used, fingerprint, functions_reached, names_used
from velocirl.engine.errors import DefinitionError
from velocirl.engine.records import FieldType

MOST_SHARED = 4096  # functions that stay compiled in memory


class Shared:
    """Functions compiled by this process, keyed by content, shared by all translators of the same kind.

    Many units call the same helpers, and typing these again for each unit takes longer than everything else.
    """

    def __init__(self) -> None:
        self._compiled: OrderedDict[str, Any] = OrderedDict()

    def find(self, key: str) -> Any:
        """Return the compiled function, or None."""
        if key in self._compiled:
            self._compiled.move_to_end(key)
        return self._compiled.get(key)

    def keep(self, key: str, compiled: Any) -> None:
        """Store a compiled function; beyond the maximum, the least recently used one is removed."""
        self._compiled[key] = compiled
        if len(self._compiled) > MOST_SHARED:
            self._compiled.popitem(last=False)


class Translator:
    """Translator of the functions of one environment for one target, each once."""

    def __init__(
        self,
        name: str,
        *,
        double: bool,
        compiled: Callable[[FunctionType], Any],
        substitutes: Mapping[Any, Any],
        manner: str = "",
        shared: Shared | None = None,
    ) -> None:
        self.name = name  # of the environment, for messages
        self.double = double
        self.manner = manner  # distinguishes its results from another translator's in the cache
        self._compiled = compiled  # the target's decorator for scalar functions
        self.known = dict(substitutes)  # the compiled forms of functions
        self._shared = shared
        self._adopted: set[Any] = set()  # forms that only this translator has, and that are not shared
        self._namespaces: dict[Any, ModuleType] = {}
        self._open: list[ModuleType] = []  # modules being translated, which may refer to each other

    def substitute(self, called: Any, function: FunctionType) -> None:
        """Replace calls of `called` in compiled functions by the compiled form of `function`."""
        self.known[called] = self.scalar(function)

    def adopt(self, function: Any, compiled: Any) -> None:
        """Replace calls of `function` in compiled functions by this compiled form."""
        self.known[function] = compiled
        self._adopted.add(function)

    def scalar(self, function: FunctionType) -> Any:
        """Return the compiled form of a scalar function."""
        if function in self.known:
            return self.known[function]
        shared, key = self._shared_by(function)
        compiled = shared.find(key)
        if compiled is None:
            namespace: dict[str, Any] = {}
            compiled = self._compiled(self._shell(function, namespace))
            self.known[function] = compiled  # before its globals are translated, so that it may call itself
            self._fill(namespace, function)
            shared.keep(key, compiled)
        self.known[function] = compiled
        return compiled

    def _shared_by(self, function: FunctionType) -> tuple[Shared, str]:
        """Return the shared store and key of a function; an empty store if it may call adopted functions."""
        if self._shared is None or not self._adopted.isdisjoint(functions_reached(function)):
            return Shared(), ""
        code = function.__code__  # the location, since messages name it
        return self._shared, f"{fingerprint(function)} {code.co_filename}:{code.co_firstlineno}"

    def loop(self, function: FunctionType) -> FunctionType:
        """Return a function that calls compiled functions, and is itself still to be compiled by the target."""
        namespace: dict[str, Any] = {}
        shell = self._shell(function, namespace)
        self._fill(namespace, function)
        return shell

    def _shell(self, function: FunctionType, namespace: dict[str, Any]) -> FunctionType:
        code = function.__code__ if self.double else single(function.__code__)
        used = names_used(code)
        defaults = tuple(self._value(value, used) for value in function.__defaults__ or ()) or None
        cells = tuple(CellType(self._value(cell.cell_contents, used)) for cell in function.__closure__ or ())
        shell = FunctionType(code, namespace, function.__name__, defaults, cells)
        # A cached function names its module, and the same function may come from another file tomorrow.
        shell.__module__, shell.__qualname__ = __name__, function.__qualname__
        return shell

    def _fill(self, namespace: dict[str, Any], function: FunctionType) -> None:
        used = names_used(function.__code__)
        namespace.update(function.__globals__)
        for name in used & function.__globals__.keys():
            value = function.__globals__[name]
            code = function.__code__
            if _draws_from_elsewhere(value, code, name):
                raise DefinitionError(
                    f"{self.name}: {function.__name__} uses {name}, whose numbers no seed of a copy decides; use"
                    f" velocirl.random with rng\n  at {code.co_filename}:{code.co_firstlineno}"
                )
            namespace[name] = self._value(value, used)

    def _value(self, value: Any, used: set[str]) -> Any:
        """Return a constant or callable in the form that the compiled function refers to."""
        if isinstance(value, FieldType):
            return value.scalar
        if callable(value) and value in self.known:
            return self.known[value]
        if isinstance(value, FunctionType):
            return self.scalar(value)
        if isinstance(value, ModuleType):
            return self._module(value, used)
        if isinstance(value, tuple) and hasattr(value, "_fields") and FunctionType in map(type, value):
            return self._namespace(value)
        return value if self.double else single(value)

    def _namespace(self, value: Any) -> ModuleType:
        """Return a named tuple of functions and constants as a module, which compilers accept."""
        if value not in self._namespaces:
            twin = self._namespaces[value] = ModuleType(type(value).__name__)
            for name, one in zip(value._fields, value, strict=True):
                setattr(twin, name, self._value(one, set()))
        return self._namespaces[value]

    def _module(self, module: ModuleType, used: set[str]) -> ModuleType:
        """Return a module with the attributes that the function may use translated: `random.uniform`, `math.pi`."""
        if module in self._open:
            return module
        self._open.append(module)
        attributes = {name: vars(module)[name] for name in used & vars(module).keys()}
        translated = {name: self._value(value, used) for name, value in attributes.items()}
        self._open.pop()
        if all(translated[name] is attributes[name] for name in attributes):
            return module
        twin = ModuleType(module.__name__)
        vars(twin).update({**vars(module), **translated})
        return twin


def _draws_from_elsewhere(value: Any, code: CodeType, name: str) -> bool:
    """Return whether a global is Python's or NumPy's random module, or a function of one."""
    if value is np:
        return "random" in attributes_used(code, name)
    if isinstance(value, ModuleType):
        return value.__name__ in ("random", "numpy.random")
    return isinstance(getattr(value, "__self__", None), (random.Random, np.random.RandomState))
