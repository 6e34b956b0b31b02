"""The probes: each tests one skill of a learner, so what each pays is checked to the number."""

from typing import Any

import numpy as np
import pytest

import velocirl
from velocirl.engine.canvas import AMBER, BLUE, GREEN, MIST, RED, SLATE, STONE


def make(name, **options) -> Any:
    """An environment in plain Python, whose state a test can set."""
    return velocirl.make(name, device="python", **options)


def test_bandit_pays_with_the_probability_of_the_arm():
    env = make("Bandit-v0")
    env.reset(seed=0)
    for arm, probability in enumerate([0.2, 0.5, 0.8, 0.3]):
        pays = []
        for _ in range(1600):
            assert env.reset()[0] == 0
            observation, reward, terminated, truncated, _ = env.step(arm)
            assert (observation, terminated, truncated) == (0, True, False)
            pays.append(reward)
        assert set(pays) == {0.0, 1.0}
        assert np.mean(pays) == pytest.approx(probability, abs=0.05)  # four standard deviations


def test_bandit_takes_other_arms():
    env = make("Bandit-v0", probability=[0.0, 1.0, 0.0, 1.0])
    for arm in range(4):
        env.reset(seed=arm)
        assert env.step(arm)[1] == arm % 2


@pytest.mark.parametrize("paying_arm", [0, 1])
def test_rigged_bandit_pays_always_or_never(paying_arm):
    env = make("RiggedBandit-v0", paying_arm=paying_arm)
    for arm in (0, 1, 0, 1):
        assert env.reset(seed=0)[0] == 0
        assert env.step(arm)[1:3] == (float(arm == paying_arm), True)


def play_memory(env, policy):
    """One episode: what was seen, what was paid. The policy gets all observations so far."""
    observation, _ = env.reset()
    seen, rewards, terminated = [observation], [], False
    while not terminated:
        observation, reward, terminated, _, _ = env.step(policy(seen))
        seen.append(observation)
        rewards.append(reward)
    return np.array(seen), rewards


@pytest.mark.parametrize(("length", "delay"), [(3, 2), (1, 0), (5, 0), (30, 7)])
def test_memory_is_solved_by_remembering(length, delay):
    def remember(seen):
        bits = [int(shown[1]) for shown in seen[:length]]
        return bits[len(seen) - 1 - length - delay] if seen[-1][2] else 0

    env = make("Memory-v0", length=length, delay=delay)
    env.reset(seed=1)
    for _ in range(10):
        seen, rewards = play_memory(env, remember)
        assert len(rewards) == 2 * length + delay
        assert rewards == [0.0] * (length + delay) + [1.0] * length
        assert (seen[:length, :2].sum(axis=1) == 1).all()
        assert (seen[length:, :2] == 0).all()
        assert list(seen[:, 2]) == [0] * (length + delay) + [1] * (length + 1)


def test_memory_wrong_answers_pay_nothing():
    env = make("Memory-v0")
    env.reset(seed=2)
    _, rewards = play_memory(env, lambda seen: 1 - int(seen[len(seen) - 6][1]) if seen[-1][2] else 1)
    assert rewards == [0.0] * 8


def test_memory_without_memory_earns_half():
    env = make("Memory-v0")
    env.reset(seed=3)
    for policy in (lambda seen: 0, lambda seen: 1, lambda seen: int(seen[-1][1])):
        returns = [sum(play_memory(env, policy)[1]) for _ in range(500)]
        assert np.mean(returns) == pytest.approx(1.5, abs=0.16)  # four standard deviations


def test_identity_pays_for_the_symbol_shown():
    env = make("Identity-v0")
    observation, _ = env.reset(seed=4)
    symbols = []
    for step in range(16):
        assert sorted(observation) == [0, 0, 0, 1]
        symbol = int(observation.argmax())
        symbols.append(symbol)
        action = (symbol + step % 4) % 4
        observation, reward, terminated, truncated, _ = env.step(action)
        assert (reward, terminated, truncated) == (float(action == symbol), False, step == 15)
    assert set(symbols) == {0, 1, 2, 3}


def test_identity_continuous_costs_the_square_of_the_difference():
    env = make("IdentityContinuous-v0")
    shown, _ = env.reset(seed=5)
    numbers = []
    for step, action in enumerate(np.linspace(-1, 1, 16, dtype=np.float32)):
        numbers.append(float(shown[0]))
        expected = -((float(action) - float(shown[0])) ** 2)
        shown, reward, terminated, truncated, _ = env.step(np.array([action]))
        assert reward == pytest.approx(expected, abs=1e-6)
        assert (terminated, truncated) == (False, step == 15)
    assert len(set(numbers)) == 16
    assert -1 <= min(numbers) < -0.5 < 0.5 < max(numbers) < 1

    shown, _ = env.reset()
    assert env.step(shown)[1] == 0.0


@pytest.mark.parametrize(
    ("length", "steps", "ends"), [(10, 10, (True, False)), (1, 1, (True, False)), (99, 20, (False, True))]
)
def test_counter_transitions_are_consistent(length, steps, ends):
    env = make("Counter-v0", length=length)
    for _ in range(2):
        observation, _ = env.reset(seed=0)
        for index in range(steps):
            assert observation.tolist() == [index]
            observation, reward, terminated, truncated, _ = env.step(index % 2)
            assert (reward, observation.tolist()) == (index, [index + 1])
            assert (terminated, truncated) == (ends if index == steps - 1 else (False, False))


def show(name, mode, **fields):
    env = make(name, render_mode=mode)
    env.reset(seed=0)
    for field, value in fields.items():
        env.copies.state[field] = value
    return env.render()


def test_text_says_what_is_shown_and_done():
    assert show("Bandit-v0", "ansi", arm=2, pay=1) == "arms pay  20%  50%  80%  30%\narm 2 paid 1"
    assert show("Bandit-v0", "ansi").endswith("not pulled yet")
    assert show("RiggedBandit-v0", "ansi", arm=0) == "arms - $\npulled arm 0"
    assert show("Memory-v0", "ansi", bits=0b011, time=1) == "shown   11\nanswers "
    assert show("Memory-v0", "ansi", bits=0b011, time=7, answers=0b10) == "shown   110\nanswers 01"
    assert show("Identity-v0", "ansi", symbol=3) == "shown 3"
    assert show("IdentityContinuous-v0", "ansi", number=-0.25) == "shown -0.25"
    assert show("Counter-v0", "ansi", count=4) == "step 4 of 10"


def pixel(picture, x, y):
    """The colour at a place given in shares of the width and the height."""
    height, width, _ = picture.shape
    return tuple(picture[int(y * height), int(x * width)])


def test_picture_shows_what_is_shown_and_done():
    picture = show("Bandit-v0", "rgb_array", arm=2, pay=1)
    bottom = 1 - (0.25 + 0.05) / 1.35
    assert [pixel(picture, (arm + 0.5) / 4, bottom) for arm in range(4)] == [STONE, STONE, AMBER, STONE]
    assert pixel(picture, 0.5 / 4, 0.5) == MIST  # arm 0 seldom pays
    assert pixel(show("Bandit-v0", "rgb_array", arm=2, pay=0), 2.5 / 4, bottom) == SLATE

    picture = show("RiggedBandit-v0", "rgb_array", arm=0)
    assert [pixel(picture, x, 0.45) for x in (0.225, 0.725)] == [MIST, AMBER]

    picture = show("Memory-v0", "rgb_array", bits=0b011, time=7, answers=0b10)
    assert [pixel(picture, (k + 0.5) / 3, 0.75) for k in range(3)] == [RED, GREEN, MIST]

    picture = show("Identity-v0", "rgb_array", symbol=3)
    assert [pixel(picture, (symbol + 0.5) / 4, 0.5) for symbol in range(4)] == [MIST, MIST, MIST, BLUE]
    assert pixel(show("IdentityContinuous-v0", "rgb_array", number=0.6), 1.8 / 2.4, 0.5) == BLUE

    picture = show("Counter-v0", "rgb_array", count=4)
    assert [pixel(picture, x, 0.5) for x in (0.35, 0.45)] == [BLUE, MIST]
