"""Environments of stacked frames whose pixels tell the episode and the step, and what was seen of them, whole.

A frame is (two bytes of a number that the episode drew, the step, 255 minus the step), so that every pixel of a stack
can be checked; an episode's first frame stands for those before it. An episode terminates after the steps that it drew,
or is cut off after `LIMIT`: those that drew just as many end in both ways at once.
"""

from typing import NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

from velocirl import DQN, Box, Discrete, Environment, int32, random, record
from velocirl.backends.batch.frames.frames import FrameMemory
from velocirl.buffers.frames import frame_of
from velocirl.buffers.records import GOES_ON, LOST, TERMINATED, Frames
from velocirl.buffers.replay import FILLED, PLACE
from velocirl.program.rows.frames import find_drawn
from velocirl.training.persistence import Goal
from velocirl.training.source import Source

STACK, SIZE, LIMIT = 3, 4, 6
SPACE = Box(0, 255, (STACK, 2, 2), np.uint8)
FRAMES = Frames(STACK, SIZE)

OFF = {
    "num_envs": 3, "buffer_size": 90, "learning_starts": 30, "batch_size": 32, "train_every": 3, "gradient_steps": 1,
    "target_every": 4, "seed": 5, "threads": 1, "device": "cpu", "learning_rate": 3e-3, "hidden": (8,),
    "learning_rate_schedule": "constant", "gamma": 0.9,
}  # fmt: skip
ON = {
    "num_envs": 3, "horizon": 16, "minibatch_size": 24, "epochs": 2, "seed": 5, "threads": 1, "device": "cpu",
    "hidden": (8,), "learning_rate": 3e-3,
}  # fmt: skip
DEVICES = {"python": {"device": "python"}, "torch": {"network": "mlp(8)"}}
HOW = {
    "plain": {"n_step": 1},
    "several steps": {"n_step": 3},
    "by priority": {"n_step": 2, "priority": "proportional"},
}


@record
class State:
    number: int32
    length: int32
    step: int32


@record
class Params:
    longest: int32 = 9


def reset(state, params, rng):
    state.number = random.integer(rng, 0, 2**16)
    state.length = random.integer(rng, 1, params.longest)
    state.step = 0


def step(state, params, action, rng):
    state.step += 1
    return float(action) + 0.1 * state.step, state.step >= state.length


def observe(state, params, frame):
    frame[0, 0] = state.number // 256
    frame[0, 1] = state.number % 256
    frame[1, 0] = state.step
    frame[1, 1] = 255 - state.step


filmed = Environment(
    "Filmed-v0", state=State, params=Params, observation=Box(0, 255, (2, 2), np.uint8), action=Discrete(2), stack=STACK,
    max_steps=LIMIT, reset=reset, step=step, observe=observe,
)  # fmt: skip


class HostFilmed(gymnasium.Env):
    """The same, in Python."""

    observation_space, action_space = SPACE, Discrete(2)

    def __init__(self, longest=9, limit=LIMIT):
        self._longest, self._limit = longest, limit

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._number, self._length = int(self.np_random.integers(2**16)), int(self.np_random.integers(1, self._longest))
        self._step = 0
        return self._see(), {}

    def step(self, action):
        self._step += 1
        terminated, truncated = self._step >= self._length, self._step >= self._limit
        return self._see(), float(action) + 0.1 * self._step, terminated, truncated, {}

    def _see(self):
        seen = [max(self._step - back, 0) for back in range(STACK - 1, -1, -1)]
        frames = [[[self._number // 256, self._number % 256], [one, 255 - one]] for one in seen]
        return np.array(frames, np.uint8)


def store(monkeypatch, frames):
    """Let agents made from now on store their observations so: frame by frame, or as networks read them (None)."""
    monkeypatch.setattr(Source, "stored", property(lambda self: frames))


class Step(NamedTuple):
    """What a step of all copies began with, and what came after it, whole."""

    observation: NDArray[np.uint8]  # (copies, STACK * SIZE)
    following: NDArray[np.uint8]  # the last of the episode where one ended
    ended: NDArray[np.int8]


def watch_memory(monkeypatch):
    """Record whole what memories store frame by frame from now on: `learner.ring.frames.log` has a Step for each."""
    bind, begin, keep = FrameMemory.bind, FrameMemory.begin, FrameMemory.keep

    def shown(self):
        return [np.array(one if isinstance(one, np.ndarray) else self.device.fetch(one)) for one in self._sources]

    def watched_bind(self, places, *given, **more):
        bind(self, places, *given, **more)
        self.places = places

    def watched_begin(self):
        begin(self)
        self.log, self.seen = getattr(self, "log", []), shown(self)[0]

    def watched_keep(self):
        keep(self)
        observation, final = shown(self)
        place = int(self.device.fetch(self.places.counts)[PLACE])
        ended = np.array(self.device.fetch(self.places.rows[place : place + len(final)])["ended"])
        self.log.append(Step(self.seen, np.where(ended[:, None] != GOES_ON, final, observation), ended))
        self.seen = observation

    monkeypatch.setattr(FrameMemory, "bind", watched_bind)
    monkeypatch.setattr(FrameMemory, "begin", watched_begin)
    monkeypatch.setattr(FrameMemory, "keep", watched_keep)


def remembering(source, steps, **config):
    """An agent that has taken so many steps of many."""
    agent = DQN(source, **{**OFF, **config})
    agent.goal = Goal(0, 10**6)
    agent.prepare()
    while agent.steps < steps:
        agent.begin_iteration(agent.pace(4), agent.steps + 4 * agent.config.num_envs)
        agent.drain()
    return agent


def read_back(agent):
    """What networks read of a batch: observations, and those after it, as bytes; with what was drawn."""
    learner, fetch = agent.learner, agent.learner.device.fetch
    with learner.device.at_work():
        learner.ring.draw()
        learner.updates.program.run(stepping=False)
    now, after = (
        np.rint(fetch(learner.updates.program._inputs[name]) * 255).astype(np.uint8)
        for name in ("values", "target_values")
    )
    drawn = learner.ring.drawn
    return now, after, fetch(drawn.places), fetch(drawn.lasts)


def number_of(steps, groups, place, copies=3):
    """The number of the newest step whose record is at a place."""
    newest = steps - 1
    return newest - (newest - place // copies) % groups


def check_what_is_drawn(agent, steps):
    """Let an agent go on until it has taken so many steps; what it draws then is what was seen. Gives what was met:
    how steps ended, whether after others, and how many different frames there were in a stack.
    """
    met, copies = set(), agent.config.num_envs
    while agent.steps < steps:
        agent.begin_iteration(agent.pace(4), agent.steps + 4 * copies)
        agent.drain()
    ring = agent.learner.ring
    log, groups = ring.frames.log, ring.capacity // copies
    assert len(log) * copies == steps
    for _ in range(12):
        now, after, places, lasts = read_back(agent)
        for b, (place, last) in enumerate(zip(places, lasts, strict=True)):
            copy, first = place % copies, log[number_of(len(log), groups, place)]
            end = log[number_of(len(log), groups, last)]
            np.testing.assert_array_equal(now[b], first.observation[copy])
            if end.ended[copy] != TERMINATED:  # what comes after a termination is worth nothing
                np.testing.assert_array_equal(after[b], end.following[copy])
            stack = first.observation[copy].reshape(STACK, SIZE)
            met.add((int(end.ended[copy]), bool(last != place), len(np.unique(stack, axis=0))))
    return met


def stacks_of(ring, places, lasts):
    """The stacks (rows, STACK, SIZE) before the steps at some places and after those at others."""
    frames, found = ring.frames, []
    stored = np.asarray(frames.now.frames)
    memory = ring.places._replace(rows=np.asarray(ring.places.rows).view(np.recarray))
    for place, last in zip(places, lasts, strict=True):
        np.asarray(ring.drawn.places)[0], np.asarray(ring.drawn.lasts)[0] = place, last
        find_drawn(0, 0, 0, memory, ring.drawn, frames.now, frames.after, frames.room)
        found.append([
            [stored[frame_of(int(one.newest[0]), int(one.before[0]), int(one.age[0]), back, one.copies, one.around)]
             for back in range(STACK - 1, -1, -1)]
            for one in (frames.now, frames.after)
        ])  # fmt: skip
    return np.array(found).reshape(-1, 2, STACK, SIZE).swapaxes(0, 1)


def check_stacks(ring, places, lasts):
    """The stacks at some places of a memory are what their records say."""
    rows = np.asarray(ring.rows)
    check_seen(*stacks_of(ring, places, lasts), rows[places], rows[lasts])


def check_seen(now, after, first, last):
    """Each stack is that of one step of one episode, and its record's: before the first ones, and after the last."""
    back = np.arange(STACK - 1, -1, -1)
    taken, end = (np.rint(10 * (one["reward"] - one["action"][:, 0])).astype(int) for one in (first, last))
    goes_on = last["ended"] != TERMINATED  # what comes after a termination is worth nothing
    for stacks, step, which in ((now, taken - 1, slice(None)), (after, end, goes_on)):
        np.testing.assert_array_equal(stacks[which, :, 2], np.maximum(step[:, None] - back, 0)[which])
        np.testing.assert_array_equal(stacks[which, :, :2], np.repeat(now[which, -1:, :2], STACK, 1))


def check_memory(ring):
    """So is each of all that can be drawn. Gives what ended, of all records."""
    ended = np.asarray(ring.rows["ended"])[: int(np.asarray(ring.counts)[FILLED])]
    places = np.flatnonzero(ended != LOST)
    check_stacks(ring, places, places)
    return ended
