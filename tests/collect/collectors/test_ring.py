"""Rings, cells and weights in shared memory: what one side gives is what the other takes, whole and in order."""

import mmap
import os
import signal
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from velocirl.buffers.records import GOES_ON, TERMINATED, TRUNCATED, Act, transition_type
from velocirl.collect.collectors.cell import Cell
from velocirl.collect.collectors.consolidating import LEAST, Consolidator, gather, rounds_of_batch
from velocirl.collect.collectors.ring import DROPPED, GIVEN, STEPPED, Ring, Shape
from velocirl.collect.collectors.weights import Weights
from velocirl.vector.host.copies import Carver

KIND = transition_type(2, Act(1, "int32", 0))


def shared(make):
    """What `make(carve)` carves, in memory that a fork shares."""
    counter = Carver()
    make(counter)
    return make(Carver(mmap.mmap(-1, counter.size)))


def ring_of(slots, copies=2):
    return shared(lambda carve: Ring(carve, Shape(KIND, copies, slots, 1, 0)))


def write(ring, number, ended=GOES_ON):
    rows = ring.rows[ring.round(ring.slot)]
    rows["reward"], rows["ended"], rows["observation"] = number, ended, number
    ring.log.ends[0, ring.slot] = -1 if ended == GOES_ON else 0
    return ring.give()


@settings(max_examples=200, deadline=None)
@given(slots=st.integers(2, 6), moves=st.lists(st.tuples(st.booleans(), st.integers(1, 4)), max_size=60))
def test_a_ring_is_a_bounded_queue_that_counts_what_it_drops(slots, moves):
    ring, queue, number, dropped = ring_of(slots), [], 0, 0
    after_drop = True  # what is given first follows nothing
    for gives, count in moves:
        for _ in range(count):
            if gives:
                kept = write(ring, number)
                assert kept == (len(queue) < slots - 1)
                if kept:
                    queue.append((number, after_drop))
                after_drop, dropped, number = not kept, dropped + (not kept), number + 1
            elif queue:
                (slot,) = ring.waiting(1)
                wanted, follows_nothing = queue.pop(0)
                assert (ring.rows["reward"][ring.round(slot)] == wanted).all()
                assert ring.breaks[slot] == follows_nothing
                ring.take(1)
        assert len(ring) == len(queue)
        assert ring.counts[[GIVEN, DROPPED, STEPPED]].tolist() == [number - dropped, dropped, number]


def test_a_ring_of_one_slot_is_refused():
    with pytest.raises(ValueError, match="at least 2 slots, got 1"):
        Shape(KIND, 1, 1, 1, 0)


def in_child(work):
    """Run work in a fork, whose end is awaited by whoever asks for its number."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    return child


@pytest.mark.parametrize("kills", [3, pytest.param(10, marks=pytest.mark.slow)])
def test_a_killed_producer_leaves_only_whole_rounds_behind(kills):
    ring, wanted = ring_of(64, copies=8), 0

    def produce():
        while True:
            write(ring, int(ring.counts[GIVEN])) if not ring.full else os.sched_yield()

    for _ in range(kills):
        child = in_child(produce)
        target = wanted + 500
        try:
            while wanted < target:
                for slot in ring.waiting(16):
                    rows = ring.rows[ring.round(slot)]
                    assert (rows["reward"] == wanted).all()
                    assert (rows["observation"] == wanted).all()
                    ring.take(1)
                    wanted += 1
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        assert ring.counts[GIVEN] - ring.taken == len(ring) <= ring.slots - 1


def test_a_cell_is_never_read_torn():
    kind = np.dtype([("numbers", np.int64, (4096,))])
    cell = shared(lambda carve: Cell(carve, kind))
    over = time.monotonic() + 0.5

    def keep_writing():
        record, number = np.zeros(1, kind), 0
        while time.monotonic() < over:
            number += 1
            record["numbers"] = number
            cell.write(record[0])

    child, seen = in_child(keep_writing), [0]
    while time.monotonic() < over:
        numbers = cell.read()["numbers"]
        assert (numbers == numbers[0]).all()
        seen.append(int(numbers[0]))
    os.waitpid(child, 0)
    assert seen == sorted(seen)
    assert len(set(seen)) > 1
    assert cell.writes >= seen[-1]


def test_weights_are_whole_and_their_numbers_only_grow():
    size = 1 << 14
    weights = shared(lambda carve: Weights(carve, size, 2))
    over = time.monotonic() + 0.5

    def keep_publishing():
        while time.monotonic() < over:
            weights.publish(np.full(size, (weights.newest + 1) % 251, np.uint8), 3 * (weights.newest + 1))

    child, numbers = in_child(keep_publishing), [0]
    while time.monotonic() < over:
        if weights.newest:
            found = weights.read()
            assert (found["bytes"] == found["number"] % 251).all()
            assert found["updates"] == 3 * found["number"]
            numbers.append(int(found["number"]))
    os.waitpid(child, 0)
    assert numbers == sorted(numbers)
    assert len(set(numbers)) > 1


def test_the_last_publications_can_be_had_by_their_numbers():
    weights = shared(lambda carve: Weights(carve, 4, 2))
    for number in range(1, 8):
        assert weights.publish(np.full(4, number, np.uint8), 10 * number) == number
        for past in range(max(number - 1, 1), number + 1):
            assert weights.read(past)["bytes"].tolist() == [past] * 4
    with pytest.raises(LookupError, match="publication 3 was replaced"):
        weights.read(3)


def test_a_batch_is_cut_off_at_its_end_and_where_rounds_are_missing():
    ring = ring_of(8)
    for number in range(3):
        write(ring, number, TERMINATED if number == 1 else GOES_ON)
    ring.interrupt()
    for number in range(3, 6):
        write(ring, number)
    batch = gather(ring, 6, 4)
    assert batch.rows["reward"].tolist() == [number for number in range(6) for _ in range(2)]
    assert batch.rows["ended"][::2].tolist() == [GOES_ON, TERMINATED, TRUNCATED, GOES_ON, GOES_ON, TRUNCATED]
    assert batch.ended[::2].tolist() == [False, True, False, False, False, False]
    assert len(ring) == 0
    first, rest = batch.parted(4)
    assert first.rows["reward"].tolist() + rest.rows["reward"].tolist() == batch.rows["reward"].tolist()


def test_the_consolidator_gathers_batches_of_a_thousand_and_loses_nothing():
    rings, rounds = [ring_of(1200), ring_of(1200)], rounds_of_batch(2)
    consolidator, sizes, seen = Consolidator(rings), [], {0: [], 1: []}

    def produce(which):
        for number in range(3 * rounds):
            while rings[which].full:
                time.sleep(1e-4)
            write(rings[which], number + which * 1_000_000)

    threads = [threading.Thread(target=produce, args=(which,)) for which in range(2)]
    for thread in threads:
        thread.start()
    over = time.monotonic() + 30
    while sum(map(len, seen.values())) < 12 * rounds and time.monotonic() < over:
        batch = consolidator.next()
        if batch is not None:
            sizes.append(len(batch.rows))
            rewards = batch.rows["reward"].astype(int).tolist()
            seen[rewards[0] >= 1_000_000] += rewards
    consolidator.close()
    for which in range(2):
        threads[which].join()
        assert seen[which] == [number + which * 1_000_000 for number in range(3 * rounds) for _ in range(2)]
    assert max(sizes) >= LEAST


def test_what_the_consolidator_raises_reaches_the_learner():
    ring = ring_of(4)
    write(ring, 0)
    ring.rows = None
    consolidator = Consolidator([ring])
    time.sleep(0.5)
    with pytest.raises(TypeError):
        consolidator.next()
    consolidator.close()
