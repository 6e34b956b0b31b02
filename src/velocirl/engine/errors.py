"""Errors of the engine, and the switch that shows their causes."""

import os
import sysconfig
import traceback
from pathlib import Path

PACKAGE = str(Path(__file__).parents[1])
STANDARD = sysconfig.get_path("stdlib")
SITE = ("site-packages", "dist-packages")  # packages of others, within the folder of the standard library


class DefinitionError(TypeError):
    """Invalid definition of an environment; the message names the location and the correction."""


def debugging() -> bool:
    """Return whether VELOCIRL_DEBUG requests the compiler's own tracebacks in addition to our messages."""
    return os.environ.get("VELOCIRL_DEBUG", "") not in ("", "0")


def hides_a_trace(error: BaseException) -> bool:
    """Return whether a traceback shows more than the message: another error as its cause, or foreign code."""
    if error.__cause__ is not None or (error.__context__ is not None and not error.__suppress_context__):
        return True
    files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    return any(map(_is_foreign, files))


def _is_foreign(file: str) -> bool:
    if file.startswith(("<", PACKAGE)):  # compiled from text, or frozen
        return False
    return not file.startswith(STANDARD) or any(folder in file for folder in SITE)
