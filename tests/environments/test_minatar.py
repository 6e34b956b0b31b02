"""The games of MinAtar against the package that defines them, step for step, under the same draws."""

import numpy as np
import pytest
from any_state import in_any_state
from choosing import slow_but
from minatar import environment as minatar

import velocirl
from velocirl.engine import random
from velocirl.engine.registry import find

GAMES = {"Asterix": "asterix", "Breakout": "breakout", "Freeway": "freeway", "Seaquest": "seaquest",
         "SpaceInvaders": "space_invaders"}  # fmt: skip


class Draws:
    """NumPy's generator as the package calls it, with the numbers of one of our own streams."""

    def __init__(self, stream):
        self.stream = stream

    def rand(self, *shape):
        if not shape:
            return float(random.uniform(self.stream))
        return np.array([float(random.uniform(self.stream)) for _ in range(shape[0])])

    def randint(self, low, high=None, size=None):
        low, high = (0, low) if high is None else (low, high)
        if size is None:
            return int(random.integer(self.stream, low, high))
        return np.array([int(random.integer(self.stream, low, high)) for _ in range(size)])


class Oracle:
    """A game of the package that draws from one of our own streams, and begins when it is told to."""

    def __init__(self, name, stream, sticky, ramping):
        self.game = minatar.Environment(name, sticky_action_prob=sticky, difficulty_ramping=ramping)
        self.game.random = self.game.env.random = Draws(stream)
        self.actions = self.game.minimal_action_set()

    def reset(self):
        self.game.last_action = 0  # the package goes on with that of the episode before
        self.game.reset()

    def step(self, action):
        return self.game.act(self.actions[action])

    def screen(self):
        return self.game.state()


def player(name, rng):
    """Actions by which a game lasts, and by which what is rare in it is seen: some at random, others for a purpose."""
    count = find(f"MinAtar{name}-v1").action.n

    def choose(screen):
        if rng.random() < 0.15:
            return int(rng.integers(count))
        if name == "Freeway":
            return 1
        if name == "Breakout":  # under the ball
            (_, ball), (_, paddle) = (np.argwhere(screen[:, :, plane])[-1] for plane in (1, 0))
            return 1 if ball < paddle else 2 if ball > paddle else 0
        if name == "SpaceInvaders":
            return int(rng.choice([1, 2, 3, 3]))
        if name == "Seaquest":  # down, fire and collect, and up when there is a crew
            crew, air = screen[9, :, 8].sum(), screen[9, :, 7].sum()
            if crew >= rng.integers(1, 7) and (air < 5 or crew == 6):
                return 2
            row = np.argwhere(screen[:, :, 0])[0][0]
            return int(rng.choice([1, 3, 4, 5, 5] if row < 2 else [1, 2, 3, 4, 5, 5, 5]))
        return int(rng.integers(count))

    return choose


def compare(name, steps, sticky=0.1, ramping=True, seed=0):
    environment = find(f"MinAtar{name}-v1")
    params = {"sticky": sticky} | ({"ramping": ramping} if "ramping" in environment.params.fields else {})
    envs = velocirl.make_vec(environment, 1, params=params)
    oracle = Oracle(GAMES[name], random.streams(seed, 1)[0], sticky, ramping)
    choose = player(name, np.random.default_rng(seed))
    screens, _ = envs.reset(seed=seed)
    oracle.reset()
    episodes, total = 0, 0.0
    np.testing.assert_array_equal(screens[0], oracle.screen())
    for t in range(steps):
        action = choose(oracle.screen())
        screens, rewards, terminated, truncated, infos = envs.step(np.array([action]))
        reward, over = oracle.step(action)
        assert (rewards[0], terminated[0] or truncated[0]) == (reward, over), t
        total += reward
        if over:
            np.testing.assert_array_equal(infos["final_obs"][0], oracle.screen(), err_msg=str(t))
            oracle.reset()
            episodes += 1
        np.testing.assert_array_equal(screens[0], oracle.screen(), err_msg=str(t))
    return episodes, total


@pytest.mark.parametrize("name", GAMES)
def test_every_step_is_that_of_the_package(name):
    episodes, total = compare(name, 6000)
    assert episodes >= 2
    assert total > 20


@pytest.mark.parametrize("name", ["Asterix", "Breakout"])
def test_without_sticky_actions_and_ramping(name):
    compare(name, 2000, sticky=0.0, ramping=False, seed=1)


@pytest.mark.parametrize("name", slow_but({"Breakout"}, GAMES))
def test_no_state_that_a_file_may_hold_leads_off_the_screen(name):
    rng = np.random.default_rng(0)
    envs = in_any_state(f"MinAtar{name}-v1", 500, rng)
    for _ in range(30):
        screens = envs.step(rng.integers(envs.single_action_space.n, size=500))[0]
        assert screens.max() == 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", GAMES)
def test_many_steps(name, seed):
    compare(name, 100_000, ramping=seed % 2 == 0, seed=10 + seed)
