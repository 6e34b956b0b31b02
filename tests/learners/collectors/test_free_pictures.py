"""Free collectors of pictures that are stored frame by frame: every stack is that of its own episode, without a gap."""

import time
from functools import partial

import numpy as np
import pytest
from busy import Numbered

import velocirl
from velocirl.buffers.frames import frame_of
from velocirl.buffers.records import GOES_ON, LOST, TERMINATED
from velocirl.buffers.replay import FILLED
from velocirl.learners.frames import find_drawn

STACK = 3
SMALL = {
    "seed": 3, "num_envs": 4, "hidden": (8,), "batch_size": 8, "learning_starts": 16, "train_every": 4,
    "gradient_steps": 1, "threads": 1, "buffer_size": 1200, "collect_mode": "free", "ring_size": 4096,
    "device": "python", "preprocess": f"atari(skip=1, stack={STACK}, size=0, gray=false, life_loss=false, clip_rewards=false, noops=0)",
}  # fmt: skip


def agent_for(environment=Numbered, **settings):
    return velocirl.DQN(environment, **{**SMALL, **settings})


def stacks_of(ring, places):
    """The pictures (rows, stack, bytes) before and after the steps at some places, as a network reads them."""
    frames, batch, found = ring.frames, len(np.asarray(ring.drawn.places)), []
    stored = np.asarray(frames._store.frames)
    memory = ring.places._replace(rows=np.asarray(ring.places.rows).view(np.recarray))
    for first in range(0, len(places), batch):
        some = places[first : first + batch]
        for drawn in (ring.drawn.places, ring.drawn.lasts):
            np.asarray(drawn)[: len(some)] = some
        for b in range(len(some)):
            find_drawn(b, b, 0, memory, ring.drawn, frames.now, frames.after, frames.room)
            found.append([
                [stored[frame_of(int(s.newest[b]), int(s.before[b]), int(s.age[b]), back, s.copies, s.around)]
                 for back in range(STACK - 1, -1, -1)]
                for s in (frames.now, frames.after)
            ])  # fmt: skip
    return np.array(found).swapaxes(0, 1)


def check_pictures(agent):
    """Each record that can be drawn has the stacks that its environment showed; gives what ended, of all records."""
    ring = agent.learner.ring
    rows = np.asarray(ring.rows)[: int(ring.counts[FILLED])]
    places = np.flatnonzero(rows["ended"] != LOST)
    ended, index = rows["ended"][places], rows["reward"][places].astype(int)  # which is that of the step
    now, after = stacks_of(ring, places)
    back = np.arange(STACK - 1, -1, -1)
    assert (now[..., 0] == np.maximum(index[:, None] - back, 0)).all()
    assert (now[..., 3] == now[:, -1:, 3]).all()  # of one episode
    open_end = ended != TERMINATED  # nobody reads what follows the others
    assert (after[open_end, :, 0] == np.maximum(index[open_end, None] + 1 - back, 0)).all()
    assert (after[open_end, :, 3] == now[open_end, -1:, 3]).all()
    assert (ended == TERMINATED).sum() == (index == 9).sum()
    return rows["ended"]


@pytest.mark.parametrize("priority", ["none", "proportional"])
def test_x(priority):
    agent = agent_for(collectors=2, n_step=3, priority=priority).learn(4000, progress=False)
    ended = check_pictures(agent)
    print(agent.learner.steps.collected.gauges(), (ended == LOST).mean(), len(ended))
