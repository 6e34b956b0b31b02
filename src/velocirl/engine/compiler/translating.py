"""From plain Python functions to functions that a compiler takes: each one, and every one it calls, in a new guise.

The source stays as it is. Constants go to the precision of the environment, helpers and modules are replaced by
compiled ones wherever a function refers to them, in globals, closures, defaults and attributes of modules alike.
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
    """Functions that this process has compiled before, by content, for all translators that are made alike.

    Many units call the same helpers, and typing these anew for each takes longer than all else.
    """

    def __init__(self) -> None:
        self._compiled: OrderedDict[str, Any] = OrderedDict()

    def find(self, key: str) -> Any:
        """What was compiled, or None."""
        if key in self._compiled:
            self._compiled.move_to_end(key)
        return self._compiled.get(key)

    def keep(self, key: str, compiled: Any) -> None:
        """Remember it until there are too many that were used later."""
        self._compiled[key] = compiled
        if len(self._compiled) > MOST_SHARED:
            self._compiled.popitem(last=False)


class Translator:
    """Translates the functions of one environment for one target, each once."""

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
        self.manner = manner  # what distinguishes its results from those of another translator, for the cache
        self._compiled = compiled  # the target's decorator for scalar functions
        self.known = dict(substitutes)  # the compiled forms of functions
        self._shared = shared
        self._adopted: set[Any] = set()  # what only this translator knows in this form, and nobody else may share
        self._namespaces: dict[Any, ModuleType] = {}
        self._open: list[ModuleType] = []  # modules being translated, which may refer to each other

    def substitute(self, called: Any, function: FunctionType) -> None:
        """Let a compiled function that calls `called` call the compiled form of `function` instead."""
        self.known[called] = self.scalar(function)

    def adopt(self, function: Any, compiled: Any) -> None:
        """Let a compiled function that calls `function` call this compiled form of it."""
        self.known[function] = compiled
        self._adopted.add(function)

    def scalar(self, function: FunctionType) -> Any:
        """The compiled form of a scalar function."""
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
        """With whom a function is shared and under what; with nobody where it may call what was adopted here."""
        if self._shared is None or not self._adopted.isdisjoint(functions_reached(function)):
            return Shared(), ""
        code = function.__code__  # the place, since messages name it
        return self._shared, f"{fingerprint(function)} {code.co_filename}:{code.co_firstlineno}"

    def loop(self, function: FunctionType) -> FunctionType:
        """A function that calls compiled functions, itself still to be compiled by the target."""
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
        """A constant or callable that a function refers to, as the compiled function should see it."""
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
        """A named tuple of functions and constants as compilers take it: a module of them."""
        if value not in self._namespaces:
            twin = self._namespaces[value] = ModuleType(type(value).__name__)
            for name, one in zip(value._fields, value, strict=True):
                setattr(twin, name, self._value(one, set()))
        return self._namespaces[value]

    def _module(self, module: ModuleType, used: set[str]) -> ModuleType:
        """A module with what the function may use of it translated too: `random.uniform`, `math.pi`."""
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
    """Whether a global is Python's or NumPy's random module, or a function of one."""
    if value is np:
        return "random" in attributes_used(code, name)
    if isinstance(value, ModuleType):
        return value.__name__ in ("random", "numpy.random")
    return isinstance(getattr(value, "__self__", None), (random.Random, np.random.RandomState))
