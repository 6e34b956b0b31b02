"""Environments given to `velocirl.train_seeds` as objects, which are sent to the processes of the seeds.

A process reads its environment from standard input before it runs its command. The environment is never stored in a
file.
"""

from __future__ import annotations

import pickle
import sys

from velocirl.cli.named.environment_files import HANDED
from velocirl.engine.environment import Environment
from velocirl.tabular.runtimes.process_setup import pickle_native
from velocirl.training.source import Source
from velocirl.vector.given import GIVEN
from velocirl.vector.host.worker_handle import pickle_source

PROGRAM = [sys.executable, "-P", "-c", "from velocirl.cli.train.given import main; main()"]


def sent(source: Source) -> bytes:
    """Serialize an environment for `main`.

    Raises:
        ValueError: The environment cannot be sent; the message states what can.
    """
    given, name = source.given, source.id.removeprefix(GIVEN)
    advice = "give train_seeds its id, or a function that makes one environment"
    if source.ready is not None:
        raise ValueError(f"{name} is a vector environment that is made already, and each seed needs its own: {advice}")
    try:
        native = isinstance(given, Environment)
        pickled = pickle_native(given) if native else pickle_source(source.makers, {})  # pyright: ignore[reportArgumentType]
    except ValueError as error:
        reason = str(error.__cause__ or error)
        raise ValueError(
            f"train_seeds starts a process for each seed, to which {name} cannot be sent ({reason}): {advice}"
        ) from error
    return pickle.dumps((source.id, sys.path, pickled))


def main() -> None:
    """Run the command of a seed with the environment from standard input."""
    name, paths, pickled = pickle.load(sys.stdin.buffer)  # noqa: S301 - from the process that started this one
    sys.path.extend(path for path in paths if path not in sys.path)  # for the environment's own imports
    HANDED[name] = pickle.loads(pickled)[0]  # noqa: S301
    from velocirl.cli.main import main as run  # after the environment, as errors in it are the user's

    run()
