"""Compiling on another core: what does not need the environment is compiled by a second process meanwhile.

Numba compiles one function at a time in a process. The largest loop of a learner depends on sizes and settings only, so
a child process can build and compile it from a few numbers; this one then finds it in the disk cache. If the child
fails, this process compiles the loop itself.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from velocirl.engine.cpu import available_cores


@contextmanager
def compiled_ahead(function: str, arguments: Mapping[str, Any], needed: bool) -> Iterator[None]:
    """While the body runs, a child process calls `function` (module:name) with these arguments of plain values."""
    if not needed or available_cores() < 2:
        yield
        return
    module, _, name = function.partition(":")
    script = f"import json, sys; from {module} import {name}; {name}(**json.load(sys.stdin))"
    child = subprocess.Popen(  # noqa: S603 - this interpreter, and a script of our own
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # a Ctrl-C is this process's to handle
    )
    try:
        if child.stdin is not None:
            child.stdin.write(json.dumps(arguments).encode())
            child.stdin.close()
        yield
        child.wait()
    except BrokenPipeError:
        child.wait()
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
