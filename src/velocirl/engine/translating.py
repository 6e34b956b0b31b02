"""From plain Python functions to functions that a compiler takes: each one, and every one it calls, in a new guise.

The source stays as it is. Constants go to the precision of the environment, helpers and modules are replaced by
compiled ones wherever a function refers to them, in globals, closures, defaults and attributes of modules alike.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from velocirl.engine.errors import DefinitionError
from velocirl.engine.fingerprint import attributes_used, names_used
from velocirl.engine.precision import single
from velocirl.engine.records import FieldType


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
    ) -> None:
        self.name = name  # of the environment, for messages
        self.double = double
        self.manner = manner  # what distinguishes its results from those of another translator, for the cache
        self._compiled = compiled  # the target's decorator for scalar functions
        self._done = dict(substitutes)
        self._namespaces: dict[Any, ModuleType] = {}
        self._open: list[ModuleType] = []  # modules being translated, which may refer to each other

    def substitute(self, called: Any, function: FunctionType) -> None:
        """Let a compiled function that calls `called` call the compiled form of `function` instead."""
        self._done[called] = self.scalar(function)

    def adopt(self, function: Any, compiled: Any) -> None:
        """Let a compiled function that calls `function` call this compiled form of it."""
        self._done[function] = compiled

    def scalar(self, function: FunctionType) -> Any:
        """The compiled form of a scalar function."""
        if function not in self._done:
            namespace: dict[str, Any] = {}
            # The compiled function is known before its globals are translated, so that it may call itself.
            self._done[function] = self._compiled(self._shell(function, namespace))
            self._fill(namespace, function)
        return self._done[function]

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
        if callable(value) and value in self._done:
            return self._done[value]
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
