"""Conversion of structured observations to rows, and back."""

from __future__ import annotations

from itertools import islice

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, iterate

from velocirl.bench.comparison import Comparison, ratio
from velocirl.bench.machine.cost import Cost
from velocirl.bench.measuring import Timed
from velocirl.bench.registry import benchmark
from velocirl.bench.units import ROWS
from velocirl.vector.structured import RowLayout

ROWS_PER_BATCH = 4096
PEER_ROWS = 512  # the peer converts one value at a time: its rate does not depend on the batch size
SPACE = spaces.Dict(
    {
        "joints": spaces.Box(-1.0, 1.0, (12,), np.float32),
        "camera": spaces.Box(0, 255, (8, 8), np.uint8),
        "task": spaces.Tuple((spaces.Discrete(5), spaces.MultiBinary(6))),
    }
)


@benchmark(category="vector")
def flatten() -> Comparison:
    """Structured observations into rows, batches of 4096.

    A Dict of joints, a small image and a Tuple. Gymnasium flattens one value at a time; it converts all to one dtype
    and writes Discrete parts as one-hot, where velocirl keeps their bytes.
    """
    layout = RowLayout(SPACE)
    batch = _batch()
    values = _values(batch)
    rows = layout.empty(ROWS_PER_BATCH)
    peer_rows = np.empty((PEER_ROWS, spaces.flatdim(SPACE)), spaces.flatten_space(SPACE).dtype)

    def one_by_one() -> None:
        for row, value in zip(peer_rows, values, strict=True):
            row[:] = spaces.flatten(SPACE, value)

    return _comparison(
        Timed(
            lambda: layout.flatten_batch(batch, out=rows),
            amount=ROWS_PER_BATCH,
            cost=Cost(bytes=2 * rows.nbytes / ROWS_PER_BATCH),
        ),
        Timed(one_by_one, amount=PEER_ROWS),
    )


@benchmark(category="vector")
def unflatten() -> Comparison:
    """Rows back into structured observations, batches of 4096.

    velocirl gives views into the rows, so its time does not depend on their number; Gymnasium makes one value at a
    time.
    """
    layout = RowLayout(SPACE)
    batch = _batch()
    rows = layout.flatten_batch(batch)
    peer_rows = [spaces.flatten(SPACE, value) for value in _values(batch)]
    return _comparison(
        Timed(lambda: layout.unflatten_batch(rows), amount=ROWS_PER_BATCH),
        Timed(lambda: [spaces.unflatten(SPACE, row) for row in peer_rows], amount=PEER_ROWS),
    )


def _batch() -> dict[str, object]:
    space = batch_space(SPACE, ROWS_PER_BATCH)
    space.seed(0)
    return space.sample()


def _values(batch: dict[str, object]) -> list[dict[str, object]]:
    return list(islice(iterate(batch_space(SPACE, ROWS_PER_BATCH), batch), PEER_ROWS))


def _comparison(ours: Timed, theirs: Timed) -> Comparison:
    return Comparison(
        unit=ROWS,
        contestants={"velocirl": lambda: ours, "Gymnasium": lambda: theirs},
        claims=(ratio("velocirl", "Gymnasium"),),
        peers=("Gymnasium",),
    )
