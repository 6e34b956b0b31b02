"""C names, numbers and comments, safe against injection."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np

LONGEST_NAME = 48
WIDTH = 118  # of a line
LARGEST = "3.40282347e+38f"  # largest finite number in single precision


def identifier(text: str) -> str:
    """Convert any text to a valid C name: CartPole-v1 becomes cartpole_v1."""
    words = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:LONGEST_NAME].strip("_")
    return words if words and words[0].isalpha() else f"controller_{words}".rstrip("_")


def comment(text: str) -> str:
    """Convert any text for use within a comment: on one line, without anything that would end the comment."""
    plain = "".join(letter if letter.isprintable() and letter not in "\\?" else "_" for letter in text)
    return plain.replace("*", "_") if "*/" in plain or "/*" in plain else plain


def real(value: Any) -> str:
    """Return an exact literal of a single-precision number."""
    number = float(np.float32(value))
    if not np.isfinite(number):
        return LARGEST if number > 0 else f"-{LARGEST}"
    text = f"{number:.9g}"
    return f"{text if '.' in text or 'e' in text else f'{text}.0'}f"


def array(kind: str, name: str, values: Iterable[Any]) -> str:
    """Return a constant array, in lines of limited width."""
    words = [real(value) if kind == "float" else str(int(value)) for value in values]
    lines, line = [], "   "
    for word in words:
        if len(line) + len(word) + 2 > WIDTH:
            lines.append(line)
            line = "   "
        line += f" {word},"
    body = "\n".join([*lines, line]).rstrip(",")
    return f"static const {kind} {name}[{len(words)}] = {{\n{body}\n}};"
