"""Pictures that several collectors bring in turns: through their rings into one memory, every stack is whole."""

import mmap
from functools import cache

import numpy as np
import pytest
from filmed import FRAMES, OFF, SIZE, STACK, HostFilmed, check_memory, check_stacks, store
from hypothesis import given, settings
from hypothesis import strategies as st

from velocirl import DQN
from velocirl.backends.batch.device import PythonDevice
from velocirl.backends.batch.entries import Entering
from velocirl.backends.batch.ring import BatchRing
from velocirl.buffers.records import GOES_ON, LOST, TERMINATED, TRUNCATED
from velocirl.buffers.replay import PLACE
from velocirl.collect.collectors.acting_in_batches import SlotWriter
from velocirl.collect.collectors.consolidating import gather
from velocirl.collect.collectors.ring import Ring, Shape
from velocirl.program.clock import COUNTS, NUMBERS, Clock
from velocirl.program.pace import ANY_PACE
from velocirl.vector.host.copies import Carver

COPIES, GROUPS = 2, 40


@pytest.fixture(autouse=True, scope="module")
def _stored():
    with pytest.MonkeyPatch.context() as patch:
        store(patch, FRAMES)
        yield


@cache
def task_of(priority):
    collecting = {"num_envs": 2 * COPIES, "collectors": 2, "collect_mode": "free", "ring_size": 1100}
    learning = {"device": "python", "buffer_size": GROUPS * COPIES, "n_step": 3, "gamma": 0.5, "priority": priority}
    return DQN(HostFilmed, **{**OFF, **collecting, **learning}).task()


def ring_of(task):
    """A ring that this process has alone."""
    device, clock = PythonDevice(), Clock(np.zeros((1, COUNTS), np.int64), np.zeros((1, NUMBERS)))
    return BatchRing(device, task, clock, (0, task.config.batch_size))


class Collector:
    """What a collector's process does, but for acting: it steps its copies and writes to its ring."""

    def __init__(self, task, ring, seed, limit):
        self.ring, self.envs = ring, [HostFilmed(limit=limit) for _ in range(COPIES)]
        self.writer = SlotWriter(PythonDevice(), task, ring)
        self.seen, self.final = (np.zeros((COPIES, STACK * SIZE), np.uint8) for _ in range(2))
        self.writer.bind_frames(self.seen, self.final, on_host=True)
        self.begin(seed)

    def begin(self, seed=None):
        for copy, env in enumerate(self.envs):
            self.seen[copy] = env.reset(seed=None if seed is None else 100 * seed + copy)[0].reshape(-1)
        self.writer.begin_episodes()
        self.ring.interrupt()

    def step(self):
        self.writer.see()
        group = np.zeros(COPIES, self.ring.rows.dtype)
        for copy, env in enumerate(self.envs):
            picture, reward, terminated, truncated, _ = env.step(0)
            group[copy]["reward"] = reward
            group[copy]["ended"] = TERMINATED if terminated else TRUNCATED if truncated else GOES_ON
            if terminated or truncated:
                self.final[copy] = picture.reshape(-1)
                picture, _ = env.reset()
            self.seen[copy] = picture.reshape(-1)
        self.writer.receive(group)
        return self.ring.give()


class Pipeline:
    """Two collectors with rings of a few slots, and a memory."""

    def __init__(self, slots, priority="none", limit=6):
        self.task, self.limit = task_of(priority), limit
        self.ring = ring_of(self.task)
        self.ring.begin(ANY_PACE._replace(gamma=0.5))
        self.entering = Entering(self.ring)
        shape, counter = Shape(self.ring.rows.dtype, COPIES, slots, 1, 0, frames=FRAMES), Carver()
        Ring(counter, shape)
        self.rings = [Ring(Carver(mmap.mmap(-1, counter.size)), shape) for _ in range(2)]
        self.started, self.saved = 0, None
        self.collectors = [self.start(number) for number in range(2)]

    def start(self, number):
        self.started += 1
        return Collector(self.task, self.rings[number], self.started, self.limit)

    def step(self, number, rounds):
        for _ in range(rounds):
            self.collectors[number].step()

    def take(self, number, most=10**6, part=10**6):
        """Remember what waits in a ring, in one piece or in two; gives how many transitions could not be."""
        if not len(ring := self.rings[number]):
            return 0
        batch, count = gather(ring, most, number * COPIES), part * COPIES
        pieces = batch.parted(count) if count < len(batch.rows) else (batch,)
        return sum(self.ring.frames.enter(piece, self.entering) for piece in pieces)

    def replace(self, number):
        """A collector fails; another takes its place once the ring is empty."""
        self.take(number)
        self.collectors[number] = self.start(number)

    def save(self):
        self.saved = {name: np.array(array[:]) for name, array in self.ring.state().items()}

    def load(self):
        """Go on from what was saved last, with new episodes; what waits in the rings is still taken."""
        if self.saved is not None:
            self.ring.load_state(self.saved, episodes_begin=True)
            for collector in self.collectors:
                collector.begin()

    def check(self):
        ring = self.ring
        ended = check_memory(ring)
        if len(ended) == 0:
            return
        newest = (int(ring.counts[PLACE]) - 1 - np.arange(COPIES)) % ring.capacity
        assert (ring.rows["ended"][newest] != LOST).any()  # so that drawing comes to an end
        ring.draw()
        places, lasts, rows = (one.copy() for one in (ring.drawn.places, ring.drawn.lasts, ring.drawn.rows))
        check_stacks(ring, places, lasts)
        first, last = (np.rint(10 * ring.rows["reward"][one]) for one in (places, lasts))
        for row, begin, end, stop in zip(rows, first, last, ring.rows["ended"][lasts], strict=True):
            steps = int(end - begin) + 1
            assert 1 <= steps <= 3
            assert row["reward"] == pytest.approx(sum(0.5**k * 0.1 * (begin + k) for k in range(steps)))
            assert row["discount"] == (0.0 if stop == TERMINATED else 0.5**steps)
        if ring.prioritised:
            leaves = ring.tree.reshape(-1)[: len(ended)]
            assert ((leaves == 0) == (ended == LOST)).all()
            assert ring.tree[-1].sum() == leaves.sum()


NUMBER = st.integers(0, 1)
MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("step"), NUMBER, st.integers(1, 9)),
        st.tuples(st.just("take"), NUMBER, st.integers(1, 30), st.integers(1, 10)),
        st.tuples(st.just("replace"), NUMBER),
        st.tuples(st.sampled_from(["save", "load"])),
    ),
    min_size=10,
    max_size=60,
)


@settings(max_examples=25, deadline=None)
@given(
    slots=st.integers(2, 30), priority=st.sampled_from(["none", "proportional"]), limit=st.integers(1, 6), moves=MOVES
)
def test_every_stack_is_whole_however_rounds_are_brought_and_dropped(slots, priority, limit, moves):
    pipeline = Pipeline(slots, priority, limit)
    for name, *arguments in moves:
        getattr(pipeline, name)(*arguments)
        if name in ("take", "load"):
            pipeline.check()


def test_a_memory_that_is_loaded_elsewhere_knows_its_ends():
    pipeline, other = (Pipeline(slots=30, limit=1) for _ in range(2))
    pipeline.step(0, 25)
    pipeline.take(0)
    pipeline.save()
    other.saved = pipeline.saved
    other.load()
    assert (check_memory(other.ring) == check_memory(pipeline.ring)).all()
    for _ in range(3):
        other.step(1, 9)
        other.take(1)
        other.check()


def test_one_collector_that_drops_nothing_leaves_no_gap():
    pipeline = Pipeline(slots=20)
    for _ in range(5):
        pipeline.step(0, 17)
        assert pipeline.take(0, part=6) == 0
    assert (check_memory(pipeline.ring) != LOST).all()


def test_a_change_of_collectors_takes_a_group_for_each_frame_that_stacks_need():
    pipeline = Pipeline(slots=20)
    for number in (0, 1):  # each begins with an episode: nothing lies before it
        pipeline.step(number, 7)
        assert pipeline.take(number) == 0
    ended = check_memory(pipeline.ring)
    assert np.flatnonzero((ended == LOST).reshape(-1, COPIES).all(1)).tolist() == [7]
    pipeline.step(0, 7)
    assert pipeline.take(0) == 0
    assert len(check_memory(pipeline.ring)) <= COPIES * (7 + 1 + 7 + STACK + 7)
    assert (check_memory(pipeline.ring) != LOST).sum() == COPIES * 21


def endless(slots):
    """A pipeline whose episodes go on."""
    pipeline = Pipeline(slots, limit=100)
    for collector in pipeline.collectors:
        for env in collector.envs:
            env._length = 100
    return pipeline


def test_what_waited_while_another_memory_was_loaded_does_not_follow_it():
    pipeline = endless(slots=20)
    pipeline.step(0, 5)
    pipeline.take(0)
    pipeline.save()
    pipeline.step(0, 9)
    pipeline.take(0, most=4)
    pipeline.load()
    assert pipeline.take(0) == 0
    pipeline.check()
    pipeline.step(0, 3)
    assert pipeline.take(0) == 0  # of new episodes, nothing lies before them
    pipeline.check()


def test_no_frame_before_a_drop_leads_to_what_comes_after_it():
    pipeline = endless(slots=5)
    pipeline.step(0, 6)
    pipeline.take(0, most=3)
    pipeline.step(0, 1)  # behind a round from before the drop
    pipeline.take(0)
    pipeline.step(1, 2)
    pipeline.take(1)
    pipeline.step(0, 2)
    assert pipeline.take(0) == COPIES  # the first of them needs a frame that was dropped
    pipeline.check()


@pytest.mark.parametrize("part", [1, 2, 3, 10])
def test_after_a_drop_as_many_are_lost_in_one_piece_as_in_two(part):
    pipeline = endless(slots=6)
    pipeline.step(0, 8)
    pipeline.take(0)
    pipeline.step(0, 5)
    assert pipeline.take(0, part=part) == (STACK - 1) * COPIES
    pipeline.check()


def test_after_a_drop_steps_are_lost_until_their_stacks_are_whole():
    pipeline = endless(slots=5)
    pipeline.step(0, 7)  # of which the last three find no room
    assert pipeline.take(0) == 0
    pipeline.step(0, 4)
    assert pipeline.take(0) == (STACK - 1) * COPIES
    ended = check_memory(pipeline.ring).reshape(-1, COPIES)
    assert ended[:, 0].tolist() == [GOES_ON] * 4 + [LOST] + [LOST] * (STACK - 1) + [GOES_ON] * 2
    pipeline.step(0, 6)  # two of them are dropped again
    pipeline.take(0)
    pipeline.step(0, 1)
    assert pipeline.take(0) == COPIES  # a single round after a drop is of no use, and not remembered
    assert check_memory(pipeline.ring).reshape(-1, COPIES)[-1].tolist() == [GOES_ON] * COPIES


def test_ends_for_which_there_is_no_room_are_lost():
    pipeline = Pipeline(slots=30, priority="proportional", limit=1)
    for _ in range(4):
        pipeline.step(0, 25)
        pipeline.take(0)
        pipeline.check()
    ended = check_memory(pipeline.ring)
    finals = pipeline.ring.frames.room.finals
    assert finals == GROUPS // 8 + 1
    assert (ended == TRUNCATED).sum() <= COPIES * finals
    assert (ended == LOST).sum() > COPIES * (GROUPS // 2 - finals)
