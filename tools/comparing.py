"""Run many trainings, each in a process of its own on one thread, into a file that a later call goes on with."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from velocirl.bench.files import with_section, write_whole

Job = dict[str, Any]
OURS, PEER = "velocirl", "Stable-Baselines3"


def key(result: Job) -> tuple[Any, ...]:
    """What makes a run another run."""
    names = ("library", "settings", "environment", "level", "algorithm", "seed", "steps")
    return tuple(result[name] for name in names if name in result)


def read(path: Path) -> list[Job]:
    """The results of a file; none where there is no file yet."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run_all(jobs: Iterable[Job], path: Path, parallel: int) -> None:
    """Run what the file does not have yet, as `python SCRIPT one JOB`."""
    done = {key(one) for one in read(path)}
    left = [one for one in jobs if key(one) not in done]
    print(f"{len(done)} runs are done, {len(left)} are left", flush=True)
    started = time.perf_counter()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

    def run(job: Job) -> tuple[Job, str]:
        command = [sys.executable, sys.argv[0], "one", json.dumps(job)]
        outcome = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)  # noqa: S603
        return job, outcome.stdout if outcome.returncode == 0 else "!" + outcome.stderr

    with ThreadPoolExecutor(parallel) as pool, path.open("a", encoding="utf-8") as file:
        waiting = [pool.submit(run, job) for job in left]
        for number, one in enumerate(as_completed(waiting), 1):
            job, text = one.result()
            minutes = (time.perf_counter() - started) / number * (len(left) - number) / 60
            if text.startswith("!"):
                print(f"{job} failed: {text[-2000:]}", flush=True)
                continue
            result = json.loads(text.splitlines()[-1])
            file.write(json.dumps(result) + "\n")
            file.flush()
            line = " ".join(str(part) for part in key(result))
            outcome = f"{result['return']:.2f} in {result['seconds']:.1f} s"
            print(f"{number}/{len(left)} {line}: {outcome}, {minutes:.1f} min left", flush=True)


def command_line(
    description: str,
    jobs: Callable[[], Iterable[Job]],
    run_one: Callable[[Job], Job],
    page: Callable[[list[Job]], str],
    section: str,
) -> None:
    """`run RESULTS`, `write RESULTS DOCUMENT` and, for the processes, `one JOB`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="train what the file of results does not have yet")
    run.add_argument("results", type=Path)
    run.add_argument("--jobs", type=int, default=2, help="processes at a time")
    run.add_argument("--only", nargs="*", default=[], help="environments, algorithms, libraries or settings")
    write = commands.add_parser("write", help="write the page between the markers of a file")
    write.add_argument("results", type=Path)
    write.add_argument("document", type=Path)
    one = commands.add_parser("one", help="a single run, as JSON")
    one.add_argument("job", type=json.loads)
    arguments = parser.parse_args()
    if arguments.command == "run":
        chosen = [one for one in jobs() if set(arguments.only) <= {str(value) for value in one.values()}]
        run_all(chosen, arguments.results, arguments.jobs)
    elif arguments.command == "one":
        print(json.dumps(run_one(arguments.job)))
    else:
        document = arguments.document.read_text(encoding="utf-8")
        begin, end = f"<!-- {section}:begin -->", f"<!-- {section}:end -->"
        write_whole(arguments.document, with_section(document, begin, end, page(read(arguments.results))))
