"""The errors of the engine, and the switch that shows what lies behind them."""

import os
import sysconfig
import traceback
from pathlib import Path

PACKAGE = str(Path(__file__).parents[1])
STANDARD = sysconfig.get_path("stdlib")
SITE = ("site-packages", "dist-packages")  # packages of others, within the folder of the standard library


class DefinitionError(TypeError):
    """An environment is written in a way the engine cannot run; the message says where and what to write instead."""


def debugging() -> bool:
    """Whether VELOCIRL_DEBUG asks for the compiler's own traces behind our messages."""
    return os.environ.get("VELOCIRL_DEBUG", "") not in ("", "0")


def hides_a_trace(error: BaseException) -> bool:
    """Return whether a traceback shows more than the message: another error behind it, or code that is not ours."""
    if error.__cause__ is not None or (error.__context__ is not None and not error.__suppress_context__):
        return True
    files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    return any(map(_is_foreign, files))


def _is_foreign(file: str) -> bool:
    if file.startswith(("<", PACKAGE)):  # compiled from text, or frozen
        return False
    return not file.startswith(STANDARD) or any(folder in file for folder in SITE)
