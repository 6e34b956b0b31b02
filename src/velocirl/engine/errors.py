"""The errors of the engine, and the switch that shows what lies behind them."""

import os


class DefinitionError(TypeError):
    """An environment is written in a way the engine cannot run; the message says where and what to write instead."""


def debugging() -> bool:
    """Whether VELOCIRL_DEBUG asks for the compiler's own traces behind our messages."""
    return os.environ.get("VELOCIRL_DEBUG", "") not in ("", "0")
