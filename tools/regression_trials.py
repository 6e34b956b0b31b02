"""Whether `velocirl bench --compare` can be trusted on this machine: planted slowdowns that it calls, and false alarms.

Every trial is three runs of `velocirl bench` in processes of their own: one is saved as a baseline, the same code is
compared with it, and the same code made slower is compared with it. A slowdown counts as called, and the same code as a
false alarm, where a figure is said to be worse; so does a failure, which is what ends a build.

    python tools/regression_trials.py --trials 20 --slowdown 15
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
from pathlib import Path

SUBJECTS = Path(__file__).with_name("regression_subjects.py")
BENCH = "from velocirl.cli.main import main; main()"
WORSE = ("warning", "failure")


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


def main() -> None:
    """Run the trials and say what came of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--slowdown", type=float, default=15.0, metavar="PERCENT")
    given = parser.parse_args()
    same, slower = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    alarmed = 0
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="velocirl-trials-") as directory:
        home = Path(directory)
        for trial in range(given.trials):
            run(home, 0.0, "--save", "trial")
            clean = run(home, 0.0, "--compare", "trial")
            planted = run(home, given.slowdown / 100.0, "--compare", "trial")
            same.update(clean.items())
            slower.update(planted.items())
            alarmed += any(severity in WORSE for severity in clean.values())
            left = (time.perf_counter() - began) / (trial + 1) * (given.trials - trial - 1)
            print(
                f"trial {trial + 1} of {given.trials}, {left / 60:.0f} min left: same {clean}, slower {planted}",
                flush=True,
            )
    print(f"\nplanted: {given.slowdown:g}% longer; {given.trials} comparisons of each kind and benchmark")
    names = sorted({name for name, _ in slower})
    for name in names:
        called = sum(slower[name, severity] for severity in WORSE)
        false = sum(same[name, severity] for severity in WORSE)
        print(f"{name:<16} slowdown called {called:>2} of {given.trials} ({slower[name, 'failure']} as failures),"
              f" false alarms {false:>2} of {given.trials}")  # fmt: skip
    every = given.trials * len(names)
    called = sum(count for (_, severity), count in slower.items() if severity in WORSE)
    false = sum(count for (_, severity), count in same.items() if severity in WORSE)
    print(f"{'all':<16} slowdown called {called} of {every}, false alarms {false} of {every}")
    print(f"runs of the same code with any alarm: {alarmed} of {given.trials}")


if __name__ == "__main__":
    main()
