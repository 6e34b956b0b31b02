"""Returns over n steps from a ring of single steps: against their definition, around the seam, and by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from velocirl.buffers.n_step import cut_off, follow, follow_costs
from velocirl.buffers.records import GOES_ON, TERMINATED, TRUNCATED, Act, Field, transition_type
from velocirl.buffers.replay import FILLED, PLACE, written
from velocirl.engine.compiler.compiling import compile_loop, cpu_translator, learning_translator
from velocirl.engine.records import with_attributes

TYPE = transition_type(1, Act(1, "int32", 2))


def follow_all(rows, counts, copies, n, gamma, rewards, discounts, lasts):
    for place in range(counts[FILLED]):
        reward, discount, last = follow(rows, counts, copies, place, n, gamma)
        rewards[place] = reward
        discounts[place] = discount
        lasts[place] = last


def followed(rows, counts, copies, n, gamma, translator=None):
    found = np.zeros(len(rows), np.float32), np.zeros(len(rows), np.float32), np.zeros(len(rows), np.int64)
    if translator is None:
        follow_all(with_attributes(rows), counts, copies, n, gamma, *found)
    else:
        arguments = rows, counts, copies, n, gamma, *found
        compile_loop(follow_all, arguments, translator, before=lambda: None)(*arguments)
    return found


def ring(groups, copies, steps):
    """A ring of so many groups after these steps, each a list of (ended, reward) for all copies; and the whole life."""
    rows, counts = np.zeros(groups * copies, TYPE), np.zeros(3, np.int64)
    for number, step in enumerate(steps):
        for i, (ended, reward) in enumerate(step):
            one = rows[counts[PLACE] + i]
            one["observation"], one["ended"], one["reward"] = number, ended, reward
        written(counts, len(rows), copies)
    return rows, counts


def expected(steps, copy, first, n, gamma):
    """Reward, discount and last step of copy's return from step `first` on, by the definition."""
    total, discount, last = 0.0, 1.0, first
    for k in range(first, min(first + n, len(steps))):
        ended, reward = steps[k][copy]
        total, discount, last = total + discount * reward, discount * gamma, k
        if ended != GOES_ON:
            break
    return total, 0.0 if steps[last][copy][0] == TERMINATED else discount, last


@some.composite
def some_lives(draw):
    copies = draw(some.integers(1, 3))
    one = some.tuples(some.sampled_from([GOES_ON] * 4 + [TERMINATED, TRUNCATED]), some.integers(-5, 5))
    return copies, draw(some.lists(some.lists(one, min_size=copies, max_size=copies), min_size=1, max_size=25))


@settings(max_examples=200, deadline=None)
@given(life=some_lives(), groups=some.integers(1, 9), n=some.integers(1, 5), gamma=some.sampled_from([0.0, 0.5, 1.0]))
def test_by_definition(life, groups, n, gamma):
    """Whatever was overwritten since, however the ring lies around its seam: no return is of two lives."""
    copies, steps = life
    rows, counts = ring(groups, copies, steps)
    rewards, discounts, lasts = followed(rows, counts, copies, n, gamma)
    for place in range(counts[FILLED]):
        first = int(rows["observation"][place, 0])
        total, discount, last = expected(steps, place % copies, first, n, gamma)
        assert (rewards[place], discounts[place]) == pytest.approx((total, discount))
        assert lasts[place] % copies == place % copies
        assert rows["observation"][lasts[place], 0] == last


@pytest.mark.parametrize("translator", [learning_translator("replay"), cpu_translator("replay", double=False)])
def test_compiled_is_the_same(translator):
    generator = np.random.default_rng(0)
    steps = [[(generator.choice([0, 0, 0, 1, 2]), generator.normal()) for _ in range(3)] for _ in range(40)]
    rows, counts = ring(12, 3, steps)
    for n in (1, 3, 50):
        for found, wanted in zip(
            followed(rows, counts, 3, n, 0.9, translator), followed(rows, counts, 3, n, 0.9), strict=True
        ):
            np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("end", "discounts"), [(TERMINATED, [0.25, 0, 0]), (TRUNCATED, [0.25, 0.25, 0.5])])
def test_by_hand(end, discounts):
    """Rewards 1, 2, 4; gamma 0.5; n is 2; the third step ends the episode, and a fourth begins the next."""
    steps = [[(GOES_ON, 1)], [(GOES_ON, 2)], [(end, 4)], [(GOES_ON, 8)]]
    rewards, found, lasts = followed(*ring(8, 1, steps), 1, 2, 0.5)
    assert rewards[:4].tolist() == [2, 4, 4, 8]
    assert found[:4].tolist() == [*discounts, 0.5]
    assert lasts[:4].tolist() == [1, 2, 2, 3]


def test_new_episodes_cut_the_newest_steps_off():
    steps = [[(GOES_ON, 1), (GOES_ON, 1)], [(TERMINATED, 1), (GOES_ON, 1)]]
    rows, counts = ring(2, 2, steps)
    cut_off(rows, counts, 2)
    assert rows["ended"].tolist() == [GOES_ON, GOES_ON, TERMINATED, TRUNCATED]
    empty, none = ring(2, 2, [])
    cut_off(empty, none, 2)
    assert not empty["ended"].any()


@settings(max_examples=50, deadline=None)
@given(life=some_lives(), groups=some.integers(1, 9), n=some.integers(1, 5), gamma=some.sampled_from([0.0, 0.5, 1.0]))
def test_costs_over_n_steps_are_those_of_the_same_steps(life, groups, n, gamma):
    """Each of two constraints costs as many times the reward as its number says."""
    copies, steps = life
    plain, counts = ring(groups, copies, steps)
    kind = transition_type(1, Act(1, "int32", 2), [Field("costs", np.float32, (2,))])
    rows = np.zeros(len(plain), kind)
    rows["ended"], rows["reward"] = plain["ended"], plain["reward"]
    rows["costs"] = plain["reward"][:, None] * [1, 2]
    records, costs = with_attributes(rows), np.zeros(2, np.float32)
    for place in range(counts[FILLED]):
        reward, _, last = follow(records, counts, copies, place, n, gamma)
        follow_costs(records, copies, place, last, gamma, costs)
        assert costs.tolist() == pytest.approx([reward, 2 * reward], rel=1e-6)
