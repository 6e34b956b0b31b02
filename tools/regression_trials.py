"""Whether `velocirl bench --compare` can be trusted on this machine: planted changes that it calls, and false alarms.

Every trial is five runs of `velocirl bench` in processes of their own. Two are saved as baselines, of the code as it is
and of the same code made slower. The code is compared with both, and the slower code with the first. A planted change
counts as called where a figure is said to be worse, or improved; whatever is said of the same code is a false alarm.

    python tools/regression_trials.py --trials 20 --slowdown 15
    python tools/regression_trials.py --trials 20 --neighbours 1    # beside a busy process that comes and goes
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SUBJECTS = Path(__file__).with_name("regression_subjects.py")
BENCH = "from velocirl.cli.main import main; main()"
WORSE, IMPROVED = ("warning", "failure"), ("improved",)
# Works for a while and rests for a while; its parent ends at once, so that it is no child of the benchmarks.
NEIGHBOUR = """
import os, time
if not os.fork():
    while True:
        until = time.perf_counter() + {seconds}
        while time.perf_counter() < until: pass
        time.sleep({seconds})
"""
PERIOD = 20.0  # seconds of work, and of rest


def run(home: Path, planted: float, *options: str) -> dict[str, str]:
    """Run the benchmarks; how severe the change of each is, where it was compared."""
    figures = home / "figures.json"
    environment = {**os.environ, "VELOCIRL_PLANTED": str(planted), "VELOCIRL_HOME": str(home)}
    command = [sys.executable, "-c", BENCH, "bench", str(SUBJECTS), "--no-history", "--json", str(figures), *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode != 0:
        sys.exit(f"velocirl bench ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    compared = json.loads(figures.read_text()).get("compared", {"changes": []})
    return {change["benchmark"]: change["severity"] for change in compared["changes"]}


@contextmanager
def neighbours(count: int) -> Iterator[None]:
    """Let so many processes of somebody else work now and then, while this context lasts."""
    command = [sys.executable, "-c", NEIGHBOUR.format(seconds=PERIOD)]
    groups = [subprocess.Popen(command, start_new_session=True) for _ in range(count)]  # noqa: S603
    for group in groups:
        group.wait()
    try:
        yield
    finally:
        for group in groups:
            os.killpg(group.pid, 9)


def main() -> None:
    """Run the trials and say what came of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--slowdown", type=float, default=15.0, metavar="PERCENT")
    parser.add_argument("--neighbours", type=int, default=0, metavar="N", help="busy processes that come and go")
    given = parser.parse_args()
    planted = given.slowdown / 100.0
    found = {kind: Counter[tuple[str, str]]() for kind in ("same", "slower", "faster")}
    alarmed, began = 0, time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="velocirl-trials-") as directory, neighbours(given.neighbours):
        home = Path(directory)
        for trial in range(given.trials):
            run(home, 0.0, "--save", "trial")
            run(home, planted, "--save", "slower")
            outcomes = {
                "same": run(home, 0.0, "--compare", "trial"),
                "slower": run(home, planted, "--compare", "trial"),
                "faster": run(home, 0.0, "--compare", "slower"),
            }
            for kind, outcome in outcomes.items():
                found[kind].update(outcome.items())
            alarmed += any(severity in (*WORSE, *IMPROVED) for severity in outcomes["same"].values())
            left = (time.perf_counter() - began) / (trial + 1) * (given.trials - trial - 1)
            print(f"trial {trial + 1} of {given.trials}, {left / 60:.0f} min left: {outcomes}", flush=True)
    print(f"\nplanted: {given.slowdown:g}% longer; {given.trials} comparisons of each kind and benchmark")
    names = sorted({name for counts in found.values() for name, _ in counts})
    for name in names:
        print(f"{name:<16} {line(found, [name], given.trials)}")
    print(f"{'all':<16} {line(found, names, given.trials * len(names))}")
    print(f"runs of the same code with any alarm: {alarmed} of {given.trials}")


def line(found: dict[str, Counter[tuple[str, str]]], names: list[str], trials: int) -> str:
    """What was called of some benchmarks, in both directions, and the false alarms."""

    def count(kind: str, severities: tuple[str, ...]) -> int:
        return sum(found[kind][name, severity] for name in names for severity in severities)

    false = f"{count('same', WORSE)} worse and {count('same', IMPROVED)} improved"
    wrong = count("slower", IMPROVED) + count("faster", WORSE)
    return (
        f"slowdown called {count('slower', WORSE):>2} of {trials} ({count('slower', ('failure',))} as failures),"
        f" speed-up {count('faster', IMPROVED):>2} of {trials}, the wrong way round {wrong},"
        f" false alarms {false} of {trials}"
    )


if __name__ == "__main__":
    main()
