"""Steps are learnt from when their rewards are known: windows of several steps, ends, cuts and unknown masks.

The functions are plain Python here; tests/algorithms/test_tabular_updates.py has the compiled loops.
"""

from types import SimpleNamespace

import numpy as np
import pytest

from velocirl.tabular.memory import UNKNOWN, memory_of
from velocirl.tabular.tables.rules import Rule, counted, learn_single, single_value
from velocirl.tabular.tables.table import row_type
from velocirl.tabular.traces import FAINTEST, LONGEST, memory_of_traces, window_length

RULE = Rule(1, single_value, None, learn_single)


class Copy:
    """One copy, its table of three states and two actions, and its memory."""

    def __init__(self, memory, visits=False):
        self.rows = np.zeros(3, row_type(2, visits=visits, dtype="float64")).view(np.recarray)
        self.memory = memory
        self.current = SimpleNamespace(
            place=np.zeros(1, np.uint64), next_place=np.zeros(1, np.uint64), next_action=np.zeros(1, np.int32),
            ahead=np.zeros(1), coin=np.zeros(1, np.int8), window=np.zeros(1, memory.window).view(np.recarray),
        )  # fmt: skip

    def step(self, place, action, reward, ahead=0.0, over=False, unknown=False, greedy=True):
        """What the loop does of a round: learning rate 0.5, gamma 0.5."""
        current = self.current
        current.place[0], current.ahead[0] = place, ahead if greedy else ahead + 1e9
        current.coin[0] = UNKNOWN if unknown else 0
        self.rows[0].values[1] = max(self.rows[0].values[1], ahead)  # what is next has the value that is ahead
        current.next_place[0], current.next_action[0] = 0, 1
        return self.memory.remember(self.rows, current, 0, action, reward, ahead, over, 0.5, 0.5)

    @property
    def values(self):
        return self.rows["values"].tolist()


def test_one_step_is_learnt_from_at_once():
    copy = Copy(memory_of(learn_single, 1))
    assert copy.step(1, 0, reward=1.0, ahead=4.0) == 3.0
    assert copy.values[1] == [1.5, 0.0]
    copy.step(1, 0, reward=0.0, over=True)
    assert copy.values[1] == [0.75, 0.0]


def test_three_steps_wait_for_their_rewards():
    copy = Copy(memory_of(learn_single, 3))
    assert copy.step(1, 0, reward=1.0, ahead=9.0) == 0
    assert copy.step(1, 1, reward=2.0, ahead=9.0) == 0
    assert copy.values[1:] == [[0.0, 0.0], [0.0, 0.0]]
    assert copy.step(2, 0, reward=4.0, ahead=8.0) == 1 + 1 + 1 + 1
    assert copy.values[1:] == [[2.0, 0.0], [0.0, 0.0]]
    assert copy.step(2, 1, reward=8.0, ahead=16.0) == 2 + 2 + 2 + 2
    assert copy.values[1:] == [[2.0, 4.0], [0.0, 0.0]]
    assert copy.current.window[0].count == 2


@pytest.mark.parametrize("ahead", [0.0, 8.0], ids=["an end", "a cut"])
def test_the_end_of_an_episode_empties_the_window(ahead):
    """A cut adds what the last state is worth, an end nothing; nothing crosses into the next episode."""
    copy = Copy(memory_of(learn_single, 3))
    copy.step(1, 0, reward=1.0, ahead=9.0)
    copy.step(1, 1, reward=2.0, ahead=ahead, over=True)
    last = 2.0 + 0.5 * ahead
    assert copy.values[1] == [0.5 * (1.0 + 0.5 * last), 0.5 * last]
    assert copy.current.window[0].count == 0
    for _ in range(2):
        copy.step(2, 0, reward=64.0, ahead=9.0)
    assert copy.values[2] == [0.0, 0.0]


def test_a_full_window_at_the_end_is_learnt_from_once():
    copy = Copy(memory_of(counted(learn_single), 2), visits=True)
    for place in (1, 1, 2):
        copy.step(place, 0, reward=1.0)
    copy.step(2, 1, reward=1.0, over=True)
    assert copy.rows["visits"].tolist() == [[0, 0], [2, 0], [1, 1]]


@pytest.mark.parametrize("n_step", [1, 2, 3])
def test_what_is_not_known_is_not_learnt_from(n_step):
    """Neither is it counted; what is of no number there does no harm, and the next episode is as any other."""
    copy = Copy(memory_of(counted(learn_single), n_step), visits=True)
    assert copy.step(1, 0, reward=5.0, ahead=np.nan, over=True, unknown=True) == 0
    assert copy.values[1] == [0.0, 0.0]
    assert copy.rows["visits"].sum() == 0
    copy.step(1, 1, reward=5.0, over=True)
    assert copy.values[1] == [0.0, 2.5]
    assert copy.rows["visits"].sum() == 1


def test_steps_before_an_unknown_end_are_dropped():
    copy = Copy(memory_of(learn_single, 3))
    copy.step(1, 0, reward=5.0)
    copy.step(1, 1, reward=5.0, ahead=-3e38, over=True, unknown=True)
    assert copy.values[1] == [0.0, 0.0]
    assert copy.current.window[0].count == 0


def traces(trace_decay=1.0, accumulating=False):
    return Copy(memory_of_traces(RULE, 0.5, trace_decay, accumulating=accumulating))


def test_an_error_reaches_those_that_led_to_it():
    copy = traces()
    copy.step(1, 0, reward=0.0)
    copy.step(1, 1, reward=0.0)
    assert copy.step(2, 0, reward=8.0) == 8.0
    assert copy.values[1:] == [[1.0, 2.0], [4.0, 0.0]]


def test_an_action_that_is_not_greedy_cuts_after_it_was_learnt_from():
    copy = traces()
    copy.step(1, 0, reward=0.0)
    copy.step(1, 1, reward=4.0, greedy=False)
    assert copy.values[1] == [1.0, 2.0]
    copy.step(2, 0, reward=8.0)
    assert copy.values[1:] == [[1.0, 2.0], [4.0, 0.0]]


@pytest.mark.parametrize("unknown", [False, True])
def test_the_end_of_an_episode_clears_traces(unknown):
    copy = traces()
    copy.step(1, 0, reward=0.0)
    assert copy.step(1, 1, reward=4.0, over=True, unknown=unknown) == (0.0 if unknown else 4.0)
    before = [0.0, 0.0] if unknown else [1.0, 2.0]
    assert copy.values[1] == before
    copy.step(2, 0, reward=8.0)
    assert copy.values[1:] == [before, [4.0, 0.0]]


def test_a_pair_that_is_met_again_counts_once_or_as_often():
    for accumulating, trace in ((False, 1.0), (True, 1.0 + 0.25)):
        copy = traces(accumulating=accumulating)
        copy.step(1, 0, reward=0.0)
        copy.step(1, 1, reward=0.0)
        copy.step(1, 0, reward=8.0)
        assert copy.values[1] == [4.0 * trace, 2.0]


@pytest.mark.parametrize("accumulating", [False, True])
def test_windows_of_traces_go_round(accumulating):
    """Against traces in a whole table that forget what is older than the window, over many steps."""
    copy, numbers = traces(0.2, accumulating), np.random.default_rng(0)
    length = window_length(0.5 * 0.2)
    assert length == 3
    values, ages = np.zeros((3, 2)), []
    for _ in range(300):
        place, action, reward = int(numbers.integers(1, 3)), int(numbers.integers(2)), float(numbers.normal())
        copy.step(place, action, reward)
        ages = ages if accumulating else [pair if pair != (place, action) else None for pair in ages]
        ages = [(place, action), *ages][: length + 1]
        error = reward - values[place, action]
        for age, pair in enumerate(ages):
            if pair is not None:
                values[pair] += 0.5 * error * 0.1**age
        np.testing.assert_allclose(copy.values, values, rtol=1e-12, atol=1e-15)


def test_windows_are_as_long_as_traces_matter():
    for fading in (0.1, 0.5, 0.81, 0.98):
        length = window_length(fading)
        assert fading**length <= FAINTEST * 1.0001 < fading ** (length - 1) * 1.001
    assert window_length(0.0) == 1
    assert window_length(0.999) == window_length(1.0) == LONGEST
