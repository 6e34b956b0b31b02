"""Command-line parsing: returns only the options given; mistakes are errors of one line."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from velocirl.engine.naming import nearest

LETTERS = {"k": 10**3, "M": 10**6, "B": 10**9}


class Parser(argparse.ArgumentParser):
    """Parser that raises one-line errors and suggests the nearest name for an unknown option.

    `command` is the command's name and its operands: "train ENV".
    """

    def __init__(self, command: str, description: str = "", *, add_help: bool = True) -> None:
        name, _, operand = command.partition(" ")
        super().__init__(
            prog=f"velocirl {name}",
            usage=f"velocirl {name} {operand} [OPTIONS]" if operand else f"velocirl {name} [OPTIONS]",
            description=description,
            argument_default=argparse.SUPPRESS,
            allow_abbrev=False,
            add_help=False,
            formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=36),
        )
        self.elsewhere: dict[str, str] = {}  # names of options in other programs, with the name here
        if add_help:
            self.add_argument("-h", "--help", action="help", help="Show this help and exit")

    def error(self, message: str) -> NoReturn:
        """Raise the error instead of exiting."""
        raise ValueError(message.removeprefix("argument "))

    def parse(self, arguments: Sequence[str]) -> dict[str, Any]:
        """Return the given options by name."""
        found, unknown = self.parse_known_args(arguments)
        for word in sorted(unknown, key=lambda word: not word.startswith("-")):
            if not word.startswith("-"):
                raise ValueError(f"{word!r} is one word too many")
            option = word.partition("=")[0]
            if option in self.elsewhere:
                raise ValueError(
                    f"there is no option {option}: here there is {self.elsewhere[option]} ({self.prog} --help)"
                )
            near = difflib.get_close_matches(option, list(self._option_string_actions), n=1, cutoff=0.6)
            hint = f"did you mean {near[0]}?" if near else f"{self.prog} --help shows those there are"
            raise ValueError(f"there is no option {option}: {hint}")
        return vars(found)


def whole_number(text: str) -> int:
    """Parse an integer as people write it: 1000000, 1_000_000, 1e6, 200k, 1M."""
    factor = LETTERS.get(text[-1:], 1)
    digits = text[:-1] if factor > 1 else text
    try:
        value = factor * (int(digits) if digits.lstrip("+-").replace("_", "").isdigit() else float(digits))
        if value == round(value):
            return round(value)
    except (ValueError, OverflowError):
        pass
    raise argparse.ArgumentTypeError(f"must be a whole number, got {text!r}")


def number(text: str) -> float:
    """Parse any number."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, got {text!r}") from None


def one_of(choices: list[str]) -> Callable[[str], str]:
    """Return a parser of one of these words, which suggests the nearest one to an unknown word."""

    def choose(text: str) -> str:
        if text not in choices:
            raise argparse.ArgumentTypeError(f"cannot be {text!r}{nearest(text, choices)}")
        return text

    return choose
