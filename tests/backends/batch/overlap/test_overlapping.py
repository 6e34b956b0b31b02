"""Learning from a memory while steps are taken: the same whoever is faster, by parameters of a known age."""

from types import SimpleNamespace

import numpy as np
import pytest
from filmed import FRAMES, OFF, filmed, store

import velocirl
from velocirl import DQN, SAC
from velocirl.backends.batch.overlap import lagging_ring
from velocirl.backends.batch.overlap.lagging_ring import draw_shown
from velocirl.backends.batch.ring import Extent
from velocirl.buffers.replay import FILLED, PLACE
from velocirl.buffers.sum_tree import total_of
from velocirl.engine import random
from velocirl.program.pace import ANY_PACE, stretches, updates_due
from velocirl.training.persistence import Goal

SMALL = {
    "num_envs": 4, "buffer_size": 48, "learning_starts": 16, "batch_size": 8, "train_every": 4, "gradient_steps": 1,
    "target_every": 3, "seed": 3, "threads": 1, "device": "python", "gamma": 0.9, "hidden": (8,), "overlap": True,
    "learning_rate": 3e-3, "learning_rate_schedule": "constant", "n_step": 1,
}  # fmt: skip
HOW = {
    "plain": {},
    "several steps": {"n_step": 3, "train_every": 12, "gradient_steps": 2},
    "by priority": {"n_step": 2, "priority": "proportional", "train_every": 8},
}

pytestmark = pytest.mark.usefixtures("one_torch_thread")


class Turns:
    """A background without one: steps are taken when they are begun, or when they are waited for."""

    def __init__(self, late):
        self.stream, self._late, self._waiting = None, late, None

    def start(self, collect):
        if self._late:
            self._waiting = collect
        else:
            collect()

    def join(self):
        collect, self._waiting = self._waiting, None
        if collect is not None:
            collect()

    def wait(self):
        self.join()


def prepared(source="Counter-v0", kind=DQN, background=None, **config):
    agent = kind(source, **{**SMALL, **config})
    agent.goal = Goal(0, 10**6)
    agent.prepare()
    if background is not None:
        agent.learner.rounds._background = background
    return agent


def gone(agent, rounds, times=1):
    """The agent after so many iterations of so many rounds."""
    for _ in range(times):
        agent.begin_iteration(agent.pace(rounds), agent.steps + rounds * agent.config.num_envs)
    return agent


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert np.asarray(found[name][:]).tobytes() == np.asarray(array[:]).tobytes(), name


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("frames", [None, FRAMES], ids=["whole", "frames"])
def test_nothing_depends_on_who_is_faster(how, frames, monkeypatch):
    """Before the ring is full and long after: all steps before the updates beside them, after them, and in a thread."""
    store(monkeypatch, frames)
    agents = [
        gone(prepared(filmed, background=one, **{"buffer_size": OFF["buffer_size"], **HOW[how]}), 13, 5)
        for one in (Turns(late=False), Turns(late=True), None)
    ]
    first, *others = (agent.learner.state() for agent in agents)
    assert agents[0].learner.updates.done > 10
    for other in others:
        assert_same(other, first)
    for agent in agents[1:]:
        assert agent.parameters.tobytes() == agents[0].parameters.tobytes()


def test_torch_does_the_same_in_a_thread_and_in_turn():
    settings = {"device": "cpu", "network": "mlp(8)", "hidden": (64, 64), **HOW["by priority"]}
    agents = [gone(prepared(background=one, **settings), 13, 4) for one in (Turns(late=False), Turns(late=True), None)]
    first, *others = (agent.learner.state() for agent in agents)
    for other in others:
        assert_same(other, first)


@pytest.mark.parametrize("how", HOW)
def test_steps_are_taken_by_the_parameters_from_before_the_updates_beside_them(how):
    agent = prepared(background=Turns(late=True), learning_starts=0, **HOW[how])
    learner = agent.learner
    began, learnt = [], []  # parameters of each stretch of steps, and after each round of updates
    rounds, updates = learner.rounds, learner.updates
    start, learn = rounds._start, updates.run

    def watch_start(*given):
        began.append(rounds._acting.parameters.copy())
        start(*given)

    def watch_learn(count, step):
        learn(count, step)
        learnt.append(learner.networks.networks[agent.acting].parameters.copy())

    rounds._start, updates.run = watch_start, watch_learn
    before = agent.parameters.copy()
    gone(agent, 12)
    assert len(began) == len(learnt) == 12 * 4 // agent.config.train_every
    known = [before, before, *learnt]
    for found, expected in zip(began, known, strict=False):
        np.testing.assert_array_equal(found, expected)
    assert len({one.tobytes() for one in began}) == len(began) - 1


@pytest.mark.parametrize("rounds", [1, 7, 16])
def test_as_many_updates_come_to_as_many_steps_as_without(rounds):
    settings = {"train_every": 6, "gradient_steps": 3}
    both = [gone(prepared(overlap=one, **settings), rounds, 3) for one in (False, True)]
    assert (
        both[1].learner.updates.done
        == both[0].learner.updates.done
        == sum(updates_due(step, 4, both[0].pace(1)) for step in range(4, 12 * rounds + 1, 4))
    )


def test_what_is_remembered_is_what_is_remembered_without():
    """While actions are random, and long after the ring was full."""
    both = [gone(prepared(overlap=one, learning_starts=10**6), 13, 5) for one in (False, True)]
    expected, found = (agent.learner.state() for agent in both)
    for name in ("memory.rows", "memory.counts", "fleet.state", "policy.rng"):
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)


def test_stretches_end_where_updates_are_due():
    pace = ANY_PACE._replace(rounds=10, learning_starts=8, train_every=6, gradient_steps=2)
    due = [updates_due(4 * t, 4, pace) for t in range(1, 11)]
    cut = list(stretches(0, 4, pace, 2))
    assert sum(rounds for rounds, _ in cut) == 10
    assert sum(updates for _, updates in cut) == sum(due)
    assert all(1 <= rounds <= 2 for rounds, _ in cut)
    ends = np.cumsum([rounds for rounds, _ in cut])
    assert [updates for _, updates in cut] == [due[end - 1] for end in ends]
    assert [t + 1 for t in range(10) if due[t]] == [
        int(end) for end, (_, updates) in zip(ends, cut, strict=True) if updates
    ]


@pytest.mark.parametrize(("place", "filled", "expected"), [
    (8, 8, range(8)), (0, 20, range(8, 20)), (12, 20, range(12)), (4, 20, [*range(12, 20), *range(4)]),
])  # fmt: skip
def test_what_is_about_to_be_overwritten_is_not_drawn(place, filled, expected, monkeypatch):
    monkeypatch.setattr(lagging_ring, "note", lambda b, where, ring, drawn, extent: drawn.places.append(int(where)))
    counts = np.zeros(3, np.int64)
    counts[[PLACE, FILLED]] = place, filled
    drawn = SimpleNamespace(rows=[SimpleNamespace(weight=0.0)], places=[])
    rng = random.streams(1, 1)
    for _ in range(2000):
        draw_shown(0, 0, 0, SimpleNamespace(counts=counts), drawn, rng, Extent(4, 1, 20, 1, 0.9, 0.6, 4), 8)
    times = np.bincount(drawn.places, minlength=20)
    assert set(np.flatnonzero(times)) == set(expected)
    share = 2000 / len(expected)
    assert np.abs(times[list(expected)] - share).max() < 5 * np.sqrt(share)
    assert drawn.rows[0].weight == 1.0


def test_the_priorities_of_what_is_about_to_be_overwritten_are_nothing():
    agent = gone(prepared(**HOW["by priority"]), 13, 4)
    ring = agent.learner.ring
    leaves = ring.tree.reshape(-1)[: ring.capacity]
    hidden = (ring.counts[PLACE] + np.arange(8)) % ring.capacity
    assert set(np.flatnonzero(leaves == 0)) == set(hidden)
    assert total_of(ring.tree) == pytest.approx(leaves.sum(), rel=1e-6)
    np.testing.assert_array_equal(ring.seen.counts, ring.counts)


@pytest.mark.parametrize("how", HOW)
def test_training_goes_on_bit_for_bit(how, tmp_path):
    settings = {"buffer_size": 200, **HOW[how]}
    agent = gone(prepared(**settings), 13, 4)
    resumed = DQN.load(agent.save(tmp_path / "half"))
    assert resumed.config.overlap
    for one in (agent, resumed):
        one.goal = Goal(0, 10**6)
        one.prepare()
        gone(one, 13, 2)
    assert_same(resumed.learner.state(), agent.learner.state())


@pytest.mark.parametrize("overlap", [False, True])
def test_a_run_goes_on_with_overlapping_or_without(overlap, tmp_path):
    agent = gone(prepared(overlap=not overlap, **HOW["by priority"]), 13, 4)
    other = DQN.load(agent.save(tmp_path / "half"), overlap=overlap)
    other.goal = Goal(0, 10**6)
    other.prepare()
    gone(other, 13)
    ring = other.learner.ring
    assert total_of(ring.tree) == pytest.approx(ring.tree.reshape(-1)[: ring.capacity].sum(), rel=1e-6)
    assert other.learner.updates.done == agent.learner.updates.done + 13 // 2


def test_an_actor_and_critics_overlap_too():
    settings = {**SMALL, "target_every": 1, "batch_size": 16, "actor_every": 2}
    agents = [gone(prepared("Pendulum-v1", SAC, background=one, **settings), 10, 2) for one in (Turns(late=True), None)]
    assert_same(agents[1].learner.state(), agents[0].learner.state())


def test_what_a_step_raises_is_raised_where_it_is_waited_for():
    agent = prepared()
    fault = OSError("the simulator is gone")

    def fail():
        raise fault

    agent.learner.rounds._warm_up = fail
    with pytest.raises(OSError, match="the simulator is gone"):
        gone(agent, 4)


def test_who_waits_for_whom_is_told():
    agent = gone(prepared(learning_starts=0, train_every=4, gradient_steps=4), 8, 2)
    gauges, phases = agent.learner.gauges(), agent.learner.phases
    assert gauges["learner/waiting_seconds"] == pytest.approx(phases["rollout"])
    assert 0 < gauges["collector/waiting_seconds"] <= phases["rollout"] + phases["update"]


@pytest.mark.parametrize(("source", "settings", "said"), [
    ("gym:CartPole-v1", {}, "overlap is for compiled environments, and gym:CartPole-v1 steps in Python: leave it out"),
    ("CartPole-v1", {"device": "cpu"}, "overlap is for GPUs and torch networks: on CPU threads steps take"),
    ("CartPole-v1", {"train_every": 45}, "buffer_size must be at least 52 with overlap, since steps under way"),
])  # fmt: skip
def test_overlap_is_refused_where_it_gains_nothing_or_has_no_room(source, settings, said):
    with pytest.raises(ValueError, match=said):
        prepared(source, **settings)


@pytest.mark.slow
def test_it_learns():
    """Identity-v0: perfect 16, random 4; seed 0, 20000 steps."""
    agent = DQN(
        "Identity-v0", network="mlp(32, 32)", device="cpu", overlap=True, num_envs=16, batch_size=64, train_every=16,
        gradient_steps=2, learning_rate=5e-3, gamma=0.5, seed=0,
    ).learn(20_000)  # fmt: skip
    assert velocirl.evaluate(agent, episodes=100, seed=1).mean_return >= 15
