import pytest

from velocirl import DQN, PPO
from velocirl.algorithms.tabular.q_learning import QLearning
from velocirl.bench.tuning import speed
from velocirl.bench.tuning.candidates import Candidate
from velocirl.bench.tuning.evidence import Measured
from velocirl.bench.tuning.speed import for_speed, glance, in_turns, worth_another_look
from velocirl.bench.tuning.watching import Deadline

STEPS = 50_000


class Shares:
    """Remembers the shares that it was told."""

    def __init__(self):
        self.told = []

    def begin(self, stage):
        pass

    def advance(self, share, detail=""):
        self.told.append(share)


def make(candidate):
    return QLearning("GridWorld-v0", seed=0, **candidate.settings)


@pytest.fixture
def rows():
    return [Measured(Candidate({"num_envs": count} if count != 64 else {})) for count in (64, 32, 128)]


def test_a_look_and_then_turns(rows):
    make(rows[0].candidate).prepare()  # compiling is not counted
    for _ in range(3):
        glance(rows, make, STEPS, Deadline(1.0), Shares())  # noise only ever slows, and the best look counts
    watcher, deadline = Shares(), Deadline(2.0)
    glance(rows, make, STEPS, deadline, watcher)
    assert all(row.rate > 1e4 for row in rows)
    in_turns(rows[:2], make, STEPS, deadline, watcher)
    assert len(rows[0].speeds) == len(rows[1].speeds) >= 5
    assert rows[2].speeds == []
    assert rows[0].rate == pytest.approx(rows[0].glance, rel=0.9)
    assert watcher.told == sorted(watcher.told)
    assert watcher.told[-1] == 1.0


def test_every_shape_is_looked_at_first_where_the_reference_ran_best(monkeypatch):
    def row(count, threads):
        return Measured(Candidate({"num_envs": count} if count else {}, {"threads": threads} if threads else {}))

    rows = [row(count, threads) for count in (0, 2, 4) for threads in (0, 1, 3)]
    speeds = {"reference": 2.0, "threads=1": 1.0, "threads=3": 3.0}
    seen = []

    def look(candidate, steps):
        seen.append(candidate.name)
        return speeds.get(candidate.name, 0.5)

    monkeypatch.setattr(speed, "_once", look)
    glance(rows, lambda candidate: candidate, STEPS, Deadline(60.0), Shares())
    assert seen[:3] == ["reference", "threads=1", "threads=3"]
    assert seen[3:9] == [
        "num_envs=2 threads=3", "num_envs=4 threads=3", "num_envs=2", "num_envs=4",
        "num_envs=2 threads=1", "num_envs=4 threads=1",
    ]  # fmt: skip


def test_where_time_is_short_only_the_first_are_looked_at(rows, monkeypatch):
    seen = []
    monkeypatch.setattr(speed, "_once", lambda agent, steps: seen.append(agent.config.num_envs) or 5.0)
    deadline = Deadline(1.0)
    deadline._began -= 0.6  # so much is used already
    glance(rows, make, STEPS, deadline, Shares())
    assert seen[0] == 64  # the reference always
    assert set(seen) == {64}
    assert [row.glance for row in rows] == [5.0, None, None]


def test_the_better_of_two_looks_counts(rows, monkeypatch):
    looks = iter([5.0, 6.0, 7.0, 4.0, 9.0, 3.0])
    monkeypatch.setattr(speed, "_once", lambda agent, steps: next(looks))
    glance(rows, make, STEPS, Deadline(60.0), Shares())
    assert [row.glance for row in rows] == [5.0, 9.0, 7.0]  # looked at again: 128, 32, 64


def test_the_faster_half_the_fastest_of_each_shape_and_the_reference_are_looked_at_again():
    def row(shape, threads, found):
        return Measured(Candidate({"num_envs": shape} if shape else {}, {"threads": threads} if threads else {}), found)

    reference, best, slower, slowest, other = (
        row(0, 0, 1.0), row(2, 1, 9.0), row(2, 2, 5.0), row(2, 4, 4.0), row(4, 1, 3.0)
    )  # fmt: skip
    unseen = row(8, 1, None)
    chosen = worth_another_look([reference, slowest, slower, best, other, unseen])
    assert chosen == [best, slower, other, reference]


def test_a_memory_is_kept_small_and_filled_soon_while_only_speed_counts():
    large = DQN("CartPole-v1", seed=0, buffer_size=10**7, learning_starts=50_000, batch_size=64)
    assert for_speed(large.config) == {"buffer_size": 100_000, "learning_starts": 1000}
    small = DQN("CartPole-v1", seed=0, buffer_size=500, learning_starts=10)
    assert for_speed(small.config) == {"buffer_size": 500, "learning_starts": 10}
    assert for_speed(PPO("CartPole-v1", seed=0).config) == {}


@pytest.mark.parametrize("num_envs", [1, 5, 64])
def test_a_call_takes_the_steps_that_it_is_said_to_take(num_envs):
    agent = QLearning("GridWorld-v0", seed=0, num_envs=num_envs)
    call, amount = speed._warmed(agent, STEPS)
    before = agent.steps
    call()
    call()
    assert agent.steps - before == 2 * amount
