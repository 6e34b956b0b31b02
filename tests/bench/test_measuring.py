import pytest

from velocirl.bench import measuring
from velocirl.bench.measuring import Counted, Settings, Timed, measure

SETTINGS = Settings(
    warm_up_seconds=0.3, sample_seconds=0.1, fewest_rounds=3, most_rounds=8, budget_seconds=1000.0
)  # fmt: skip


class Clock:
    """A clock that only moves when a call says so."""

    def __init__(self):
        self.now = 0.0

        self.busy = 1.0  # the share of that time that this process is on a processor

    def perf_counter(self):
        return self.now

    def process_time(self):
        return self.busy * self.now

    def call_of(self, *seconds):
        """A call that takes these times, the last one ever after."""
        times = list(seconds)

        def call():
            self.now += times.pop(0) if len(times) > 1 else times[0]

        return call


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(measuring, "time", clock)
    return clock


def test_calls_of_a_sample_fill_its_time(clock):
    timed = Timed(clock.call_of(0.001), amount=64)
    timed.prepare(SETTINGS)
    assert timed.iterations == 100
    assert timed.sample() == pytest.approx(64 / 0.001)


def test_neither_a_slow_first_call_nor_an_interruption_spoils_the_calibration(clock):
    timed = Timed(clock.call_of(5.0, 0.001, 0.06, 0.001))
    timed.prepare(SETTINGS)
    assert 70 <= timed.iterations <= 100
    assert timed.sample() == pytest.approx(0.001)


def test_a_call_longer_than_a_sample_is_a_sample(clock):
    timed = Timed(clock.call_of(3.0))
    timed.prepare(SETTINGS)
    assert timed.iterations == 1
    assert timed.sample() == pytest.approx(3.0)
    assert clock.now == pytest.approx(9.0)  # the first, one to warm up, one sample


def recording(names, clock, seconds=1.0):
    order = []

    def sampler(name):
        def count():
            order.append(name)
            clock.now += seconds
            return float(len(order))

        return Counted(count)

    return {name: sampler(name) for name in names}, order


def test_contestants_take_turns_in_every_round_and_in_changing_order(clock):
    samplers, order = recording("abc", clock)
    samples = measure(samplers, SETTINGS, lambda share: None)
    rounds = [order[start : start + 3] for start in range(0, len(order), 3)]
    assert len(rounds) == SETTINGS.most_rounds
    assert all(sorted(turn) == ["a", "b", "c"] for turn in rounds)
    assert len({tuple(turn) for turn in rounds}) > 1
    for index, turn in enumerate(rounds):  # sample i of each was taken in round i
        for name in turn:
            assert samples[name][index] == 3 * index + turn.index(name) + 1


def test_rounds_stop_at_the_budget_but_not_before_the_fewest(clock):
    slow, order = recording("ab", clock, seconds=100.0)
    measure(slow, Settings(fewest_rounds=3, most_rounds=50, budget_seconds=1.0), lambda share: None)
    assert len(order) == 2 * 3
    steady, order = recording("ab", clock, seconds=1.0)
    measure(steady, Settings(fewest_rounds=3, most_rounds=50, budget_seconds=10.0), lambda share: None)
    assert len(order) == 2 * 5


def test_progress_goes_from_nothing_to_all(clock):
    samplers, _ = recording("ab", clock)
    shares = []
    measure(samplers, SETTINGS, shares.append)
    assert shares[0] == 0.0
    assert shares[-1] == 1.0
    assert shares == sorted(shares)


def test_a_sample_is_also_taken_by_the_time_of_the_processor(clock):
    timed = Timed(clock.call_of(0.1), amount=50)
    timed.prepare(SETTINGS)
    clock.busy = 0.5
    assert timed.sample() == pytest.approx(500)
    assert timed.by_processor == pytest.approx(1000)
    clock.busy = 0.01  # something else does the work
    assert timed.sample() == pytest.approx(500)
    assert timed.by_processor is None


def test_what_was_taken_before_an_interrupt_is_there(clock):
    calls = []

    def call():
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return 7.0

    taken = {}
    with pytest.raises(KeyboardInterrupt):
        measure({"a": Counted(call)}, SETTINGS, lambda _: None, taken)
    assert taken == {"a": [7.0, 7.0]}


@pytest.mark.parametrize(
    ("seconds", "rounds"), [(0.5, 7), (1.9, 7), (2.1, 5)], ids=["short", "just short enough", "long"]
)
def test_long_rounds_are_fewer(clock, seconds, rounds):
    settings = Settings(budget_seconds=3.0, sample_seconds=0.1, warm_up_seconds=0.3, fewest_rounds=7, most_rounds=21)
    samples = measure({"one": Timed(clock.call_of(seconds))}, settings, lambda share: None)
    assert len(samples["one"]) == rounds
