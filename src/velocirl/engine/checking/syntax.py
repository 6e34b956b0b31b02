"""Source analysis of environment functions: finds the wrong part of a line and the correction for messages.

It serves messages only, apart from one rule that compiled code would break silently: numbers are not formatted as text.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import numpy as np

# Python without a compiled form, or with a partial one, and its replacement.
INSTEAD: dict[type[ast.AST], tuple[str, str]] = {
    ast.Try: ("try/except", "test with `if` before what may fail"),
    ast.With: ("`with`", "leave it out"),
    ast.JoinedStr: ("an f-string", 'print("name", value) prints text and numbers'),
    ast.GeneratorExp: ("a generator", "write a `for` loop"),
    ast.ListComp: ("a list comprehension", "write a `for` loop that fills an array field, such as float32[3]"),
    ast.SetComp: ("a set comprehension", "write a `for` loop"),
    ast.DictComp: ("a dict comprehension", "write a `for` loop"),
    ast.List: ("a list", "use a tuple of numbers, or an array field of the state, such as float32[3]"),
    ast.Dict: ("a dict", "use fields of the state, or if/elif"),
    ast.Set: ("a set", "compare with each, x == 1 or x == 2"),
    ast.Yield: ("yield", "`return reward, terminated`"),
    ast.Import: ("an import", "write it at the top of the file"),
    ast.ImportFrom: ("an import", "write it at the top of the file"),
    ast.Delete: ("del", "leave it out"),
    ast.Starred: ("a starred name", "name the elements, x[0] and x[1]"),
    ast.NamedExpr: ("`:=`", "assign in a line before"),
    ast.ClassDef: ("a class", "use fields of the state"),
}
TEXT = ("text made of numbers", 'print("name", value) prints text and numbers')
STATE = "what changes from step to step is kept in the state: add a field to its record"
WHOLE = {"len", "sum", "min", "max", "sorted", "enumerate", "zip", "any", "all"}  # functions of all elements at once


class Finding(NamedTuple):
    """Problem of a line; `what` follows the name of the function."""

    line: int
    what: str


def without_form(function: FunctionType, line: int | None = None) -> Finding | None:
    """Find Python code without a compiled form: at a line, or the function's first."""
    tree = _tree(function)
    found: list[tuple[Any, str]] = [
        (node, _without(*INSTEAD[type(node)])) for node in ast.walk(tree) if type(node) in INSTEAD
    ]
    found += _globals_written(tree, function)
    here = [(node.lineno, what) for node, what in found if line is None or _spans(node, line)]
    return Finding(*(max if line else min)(here)) if here else None  # the innermost at a line, or the first of all


def formatted_text(function: FunctionType) -> Finding | None:
    """Find the formatting of numbers as text: compiled code yields other text than Python, if any."""
    tree = _tree(function)
    told = {id(part) for node in ast.walk(tree) if isinstance(node, (ast.Raise, ast.Assert)) for part in ast.walk(node)}
    node: Any
    for node in ast.walk(tree):
        called = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
        if id(node) not in told and isinstance(node, ast.FormattedValue):
            return Finding(node.lineno, _without(*INSTEAD[ast.JoinedStr]))
        if id(node) not in told and called in ("str", "repr", "format"):
            return Finding(node.lineno, _without(*TEXT))
    return None


def bound_anew(function: FunctionType, name: str) -> int | None:
    """Return the first line at which a function rebinds a name, or None."""
    stores = (node for node in ast.walk(_tree(function)) if isinstance(node, ast.Name) and node.id == name)
    return min((node.lineno for node in stores if isinstance(node.ctx, ast.Store)), default=None)


def array_as_number(function: FunctionType | CodeType, line: int, names: Mapping[str, Any]) -> str | None:
    """Describe an array used as a number at a line, or return None; `names` maps the function's variables to values."""
    for node, parents in _with_parents(_tree(function), line):
        value = _value(node, names)
        whole = any(isinstance(one, ast.Call) and getattr(one.func, "id", "") in WHOLE for one in parents[:1])
        inside = isinstance(parents[0], (ast.Subscript, ast.Attribute)) and parents[0].value is node
        stored = isinstance(getattr(node, "ctx", None), ast.Store)
        if isinstance(value, np.ndarray) and value.ndim and not (whole or inside or stored):
            text, count = ast.unparse(node), "1 number" if value.size == 1 else f"{value.size} numbers"
            index = ", ".join("0" * value.ndim)
            return f"uses {text}, an array of {count}, as a number; write {text}[{index}]"
    return None


def number_as_array(function: FunctionType | CodeType, line: int, names: Mapping[str, Any]) -> str | None:
    """Describe a number used with an index at a line, or return None."""
    for node, parents in _with_parents(_tree(function), line):
        indexed = isinstance(parents[0], ast.Subscript) and parents[0].value is node
        if indexed and isinstance(_value(node, names), (int, float, np.number, np.bool_)):
            text = ast.unparse(node)
            return f"uses {ast.unparse(parents[0])}, and {text} is one number; write {text}"
    return None


def returns(function: FunctionType) -> list[int]:
    """Return the lines at which a function returns a value."""
    return [node.lineno for node in ast.walk(_tree(function)) if isinstance(node, ast.Return) and node.value]


def _globals_written(tree: ast.AST, function: FunctionType) -> list[tuple[Any, str]]:
    """Find writes to variables of the module, and mutable ones that are read: in compiled code they are constants."""
    declared = {name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names}
    module = {name: one for name, one in function.__globals__.items() if name not in function.__code__.co_varnames}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in declared:
            found.append((node, f"changes {node.id}, a variable of the module; {STATE}"))
        elif isinstance(node, ast.Name) and isinstance(module.get(node.id), (list, set)):
            kind = f"{node.id}, a {type(module[node.id]).__name__} of the module"
            found.append((node, _without(kind, "use a tuple of numbers, or a field of the state")))
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            name = getattr(node.value, "id", "")
            if isinstance(module.get(name), np.ndarray):
                found.append((node, f"writes into {name}, an array of the module; {STATE}"))
    return found


def _without(what: str, instead: str) -> str:
    return f"uses {what}, which has no compiled form; {instead}"


def _spans(node: Any, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _tree(function: FunctionType | CodeType) -> Any:
    """Parse a function's source, with the lines of its file; an empty module if there is no source."""
    try:
        lines, first = inspect.getsourcelines(function)
        return ast.increment_lineno(ast.parse(textwrap.dedent("".join(lines))), first - 1)
    except (OSError, TypeError, SyntaxError):
        return ast.Module([], [])


def _with_parents(tree: ast.AST, line: int) -> Iterator[tuple[ast.expr, list[ast.AST]]]:
    """Yield names and attributes of the statement at a line, each with its parent nodes, innermost first."""
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.stmt) and _spans(node, line)]
    if not statements:
        return
    innermost = max(statements, key=lambda node: (node.lineno, -(node.end_lineno or 0)))
    waiting: list[tuple[ast.AST, list[ast.AST]]] = [(innermost, [])]
    while waiting:
        node, parents = waiting.pop(0)
        if isinstance(node, (ast.Name, ast.Attribute)):
            yield node, parents
        if not (isinstance(node, ast.stmt) and parents):  # statements in the body of an `if` have lines of their own
            waiting += [(child, [node, *parents]) for child in ast.iter_child_nodes(node)]


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """Return the value of a name, or of an attribute of a name."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return getattr(names.get(node.value.id), node.attr, None)
    return names.get(node.id) if isinstance(node, ast.Name) else None
