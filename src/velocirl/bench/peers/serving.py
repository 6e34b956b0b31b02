"""Server for a peer's program: `python serving.py 2 jax_ppo training 4096 32` runs it on two cores.

It runs as a script, so that nothing is imported besides the peer's own imports. Each line on standard input is a number
of calls; the seconds they took are printed.
"""

from __future__ import annotations

import importlib
import os
import sys
import time


def serve(cores: str, program: str, function: str, *arguments: str) -> None:
    """Build a call with a function of a program in this directory, and answer until standard input ends."""
    answers, sys.stdout = sys.stdout, sys.stderr  # output of libraries is no answer
    if hasattr(os, "sched_setaffinity"):  # before the imports: libraries count cores when loaded
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(cores)])
    call = getattr(importlib.import_module(program), function)(*map(int, arguments))
    call()  # the first call may compile
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        start = time.perf_counter()
        for _ in range(int(line)):
            call()
        print(time.perf_counter() - start, file=answers, flush=True)


if __name__ == "__main__":
    serve(*sys.argv[1:])
