"""Runs a peer's program as often as it is asked to: `python serving.py 2 jax_ppo training 4096 32`, on two cores.

Run as a script, so that nothing is imported beside what the peer asks for. For each line on standard input, which is a
number of calls, the seconds that they took are printed.
"""

from __future__ import annotations

import importlib
import os
import sys
import time


def serve(cores: str, program: str, function: str, *arguments: str) -> None:
    """Let the function of a program beside this file make a call, and answer until standard input ends."""
    answers, sys.stdout = sys.stdout, sys.stderr  # what libraries print is no answer
    if hasattr(os, "sched_setaffinity"):  # before the imports: libraries count cores when they are loaded
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(cores)])
    call = getattr(importlib.import_module(program), function)(*map(int, arguments))
    call()  # the first may compile
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        start = time.perf_counter()
        for _ in range(int(line)):
            call()
        print(time.perf_counter() - start, file=answers, flush=True)


if __name__ == "__main__":
    serve(*sys.argv[1:])
