"""Preprocessing against Gymnasium's own wrappers, picture by picture; lives, ends and what is refused."""

from functools import partial

import gymnasium
import numpy as np
import pytest
from film import Film
from gymnasium.spaces import Box
from gymnasium.wrappers import (
    AtariPreprocessing,
    FrameStackObservation,
    GrayscaleObservation,
    MaxAndSkipObservation,
    ResizeObservation,
    TimeLimit,
    TransformObservation,
)

import velocirl
from velocirl.vector.making import make_host
from velocirl.vector.preprocessing.switches import switches_from
from velocirl.vector.preprocessing.wrappers import LifeLoss, MaxAndSkip, preprocessed

WITHOUT_GAMES = "life_loss=false, clip_rewards=false, noops=0"


def play(env, actions, seed):
    """Everything that is seen until the actions are used up or the episode is over."""
    seen = [env.reset(seed=seed)[0]]
    told = []
    for action in actions:
        observation, *rest, _ = env.step(action)
        seen.append(observation)
        told.append(tuple(rest))
        if rest[1] or rest[2]:
            break
    return np.array(seen), told


@pytest.mark.parametrize("gray", [True, False])
def test_pong_is_seen_as_gymnasiums_wrappers_show_it(gray):
    """The same seeds and actions, with sticky actions and no-ops drawn; frames, rewards and ends are the same."""
    text = f"atari(life_loss=false, clip_rewards=false, gray={str(gray).lower()})"
    ours = velocirl.make("gym:ALE/Pong-v5", preprocess=text)
    theirs = gymnasium.make("ALE/Pong-v5", frameskip=1)
    theirs = FrameStackObservation(AtariPreprocessing(theirs, noop_max=30, frame_skip=4, grayscale_obs=gray), 4)
    assert ours.observation_space == theirs.observation_space
    actions = np.random.default_rng(0).integers(0, 6, 120)
    for seed in (1, 2):
        seen, told = play(ours, actions, seed)
        expected, expected_told = play(theirs, actions, seed)
        assert seen.dtype == np.uint8
        np.testing.assert_array_equal(seen, expected)
        assert told == expected_told
    assert {reward for reward, *_ in told} == {0.0, -1.0}


def film_by_hand(skip, stack, size, **options):
    env = MaxAndSkipObservation(Film(**options), skip) if skip > 1 else Film(**options)
    env = ResizeObservation(GrayscaleObservation(env), (size, size))
    return FrameStackObservation(env, stack) if stack > 1 else env


@pytest.mark.parametrize(("skip", "stack", "size"), [(4, 4, 20), (2, 3, 16), (1, 2, 20), (3, 1, 20)])
def test_other_pictures_are_seen_as_gymnasiums_wrappers_show_them(skip, stack, size):
    text = f"atari(skip={skip}, stack={stack}, size={size}, {WITHOUT_GAMES})"
    ours, theirs = preprocessed(Film(life=100), switches_from(text)), film_by_hand(skip, stack, size, life=100)
    assert ours.observation_space == theirs.observation_space
    actions = np.random.default_rng(0).integers(0, 2, 30)
    seen, told = play(ours, actions, 3)
    expected, expected_told = play(theirs, actions, 3)
    np.testing.assert_array_equal(seen, expected)
    assert told == expected_told
    assert seen.shape == ((31, stack, size, size) if stack > 1 else (31, size, size))
    if stack > 1:
        np.testing.assert_array_equal(seen[0], np.repeat(seen[0][-1:], stack, axis=0))


def test_an_episode_that_ends_within_a_step_shows_its_end():
    """Of a game of 5 frames, the second step has one: Gymnasium's wrapper would show the first step again."""
    env = MaxAndSkip(Film(life=5, lives=1), 4)
    raw = Film(life=5, lives=1)
    pictures = [raw.reset(seed=1)[0], *(raw.step(0)[0] for _ in range(5))]
    env.reset(seed=1)
    first, reward, terminated, *_ = env.step(0)
    np.testing.assert_array_equal(first, np.maximum(pictures[3], pictures[4]))
    assert (reward, terminated) == (-0.5 + 0.0 + 0.5 + 1.0, False)
    last, reward, terminated, *_ = env.step(0)
    np.testing.assert_array_equal(last, pictures[5])
    assert (reward, terminated) == (-1.0, True)


def test_what_skipped_frames_cost_is_summed():
    class Costly(gymnasium.Wrapper):
        def step(self, action):
            *rest, info = self.env.step(action)
            return *rest, {**info, "cost": 0.5}

    env = MaxAndSkip(Costly(Film(life=5, lives=1)), 4)
    env.reset(seed=1)
    assert [env.step(0)[-1]["cost"] for _ in range(2)] == [2.0, 0.5]
    assert "cost" not in MaxAndSkip(env.unwrapped, 1).step(0)[-1]


def test_a_lost_life_ends_an_episode_and_not_the_game():
    env = LifeLoss(Film(life=4, lives=3))
    times, ends = [env.reset(seed=0)[1]["time"]], []
    for _ in range(24):
        *_, terminated, truncated, info = env.step(0)
        assert not truncated
        if terminated:
            ends.append(info["time"])
            times.append(env.reset()[1]["time"])
    assert ends == [4, 8, 12, 4, 8, 12]
    assert times == [0, 4, 8, 0, 4, 8, 0]


def test_a_seed_begins_a_new_game_in_the_midst_of_lives():
    env = LifeLoss(Film(life=4))
    first, _ = env.reset(seed=5)
    for _ in range(4):
        env.step(0)
    observation, info = env.reset(seed=5)
    assert info["time"] == 0
    np.testing.assert_array_equal(observation, first)


def test_a_reset_before_a_life_is_lost_begins_a_new_game():
    env = LifeLoss(Film(life=4))
    env.reset(seed=5)
    env.step(0)
    assert env.reset()[1]["time"] == 0


def test_the_first_picture_of_a_life_is_repeated_and_its_last_is_not():
    """The stacks of a life show nothing of the one before; the last of it shows its last pictures."""
    envs = make_host(partial(Film, life=8, lives=2), 1, None, preprocess="atari(size=20, noops=0)", seed=2)
    stacks = [envs.reset()[0][0]]
    for step in range(2):
        observations, _, terminated, _, infos = envs.step(np.zeros(1, np.int64))
        stacks.append(infos["final_obs"][0] if terminated[0] else observations[0])
        assert bool(terminated[0]) == (step == 1)
    np.testing.assert_array_equal(stacks[2][:3], stacks[1][1:])
    assert len({picture.tobytes() for picture in stacks[2]}) == 3  # of two steps, and the beginning twice
    np.testing.assert_array_equal(observations[0], np.repeat(stacks[2][-1:], 4, axis=0))
    assert envs.stack == 4
    assert envs.frame == Box(0, 255, (20, 20), np.uint8)


def test_rewards_are_their_signs():
    env = preprocessed(Film(), switches_from("atari(skip=1)"))
    env.reset(seed=0)
    assert {env.step(action)[1] for action in (0, 1, 0, 1, 0, 1)} == {-1.0, 0.0, 1.0}


def test_games_begin_after_a_random_number_of_noops():
    env = preprocessed(Film(life=1000), switches_from("atari(noops=5)"))
    assert {env.reset(seed=seed)[1]["time"] for seed in range(60)} == {1, 2, 3, 4, 5}


def test_a_limit_counts_the_steps_of_the_agent_in_a_game(request):
    """Neither frames that are skipped, nor no-ops; and a life that is lost does not begin to count anew."""
    gymnasium.register("Film-v0", Film, kwargs={"life": 12, "lives": 50})
    request.addfinalizer(lambda: gymnasium.registry.pop("Film-v0"))
    env = velocirl.make("gym:Film-v0", preprocess="atari(noops=3, size=20)", max_episode_steps=7)
    env.reset(seed=0)
    ended = []
    for step in range(1, 15):
        *_, terminated, truncated, _ = env.step(0)
        if terminated or truncated:
            ended.append((step, terminated, truncated))
            env.reset()
    assert [step for step, _, truncated in ended if truncated] == [7, 14]
    assert [step for step, terminated, _ in ended if terminated] == [3, 6, 10, 13]


def test_workers_give_what_one_process_does():
    """Worker processes are sent the code of the wrappers, and need not import velocirl."""
    options = {"preprocess": "atari(size=20)", "seed": 4}
    serial = make_host(Film, 2, None, **options)
    with_workers = make_host(Film, 2, 2, **options)
    try:
        np.testing.assert_array_equal(serial.reset()[0], with_workers.reset()[0])
        for _ in range(12):
            for ours, theirs in zip(serial.step(np.ones(2, int)), with_workers.step(np.ones(2, int)), strict=True):
                if isinstance(ours, np.ndarray):
                    np.testing.assert_array_equal(ours, theirs)
        assert with_workers.stack == 4
        assert all("velocirl" not in modules for modules in with_workers.call("modules"))
    finally:
        with_workers.close()


def pong(**options):
    return gymnasium.make("ALE/Pong-v5", **options)


def channels_first():
    space = Box(0, 255, (3, 30, 40), np.uint8)
    return TransformObservation(Film(), lambda picture: picture.transpose(2, 0, 1), space)


REFUSED = {
    "no pictures": (lambda: gymnasium.make("CartPole-v1"), "atari", "preprocess is for pictures of numbers from 0 to"),
    "memory": (lambda: pong(obs_type="ram", frameskip=1), "atari", "ALE/Pong-v5 observes Box(0, 255, (128,), uint8)"),
    "skips": (pong, "atari", "ALE/Pong-v5 skips frames already (frameskip=4), and preprocess would skip 4 of those"),
    "skips by a wrapper": (lambda: MaxAndSkipObservation(Film()), "atari", "skips frames already, by MaxAndSkipObs"),
    "stacks": (lambda: FrameStackObservation(Film(), 3), "atari", "Film stacks its pictures already, by FrameStackOb"),
    "four channels": (lambda: Film(shape=(30, 40, 4)), "atari", "Film observes (30, 40, 4), which is more than one pi"),
    "several pictures": (lambda: Film(shape=(4, 30, 40)), "atari", "preprocess stacks them itself"),
    "channels first": (channels_first, "atari", "(3, 30, 40), their channels first: preprocess reads (height, width"),
    "no noop": (
        lambda: Film(meanings=("LEFT", "RIGHT")),
        "atari",
        'no action that is a NOOP: write preprocess="atari(',
    ),
    "no game": (
        lambda: TimeLimit(gymnasium.make("Plain-v0"), 9),
        "atari",
        'Plain-v0 has no lives and no action that is a NOOP: write preprocess="atari(life_loss=false, n',
    ),
}


class Plain(gymnasium.Env):
    """Pictures without a game around them."""

    observation_space, action_space = Box(0, 255, (30, 40, 3), np.uint8), gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros((30, 40, 3), np.uint8), {}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_switch_has_no_meaning_for_is_refused(case, request):
    gymnasium.register("Plain-v0", Plain)
    request.addfinalizer(lambda: gymnasium.registry.pop("Plain-v0"))
    make, text, told = REFUSED[case]
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - what it says is asserted
        preprocessed(make(), switches_from(text))
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_refused_can_be_switched_off():
    assert preprocessed(Plain(), switches_from("atari(life_loss=false, noops=0)")).reset()[0].shape == (4, 84, 84)
    assert preprocessed(pong(), switches_from("atari(skip=1, gray=false)")).observation_space.shape == (4, 84, 84, 3)
    gray = preprocessed(Film(shape=(30, 40, 1)), switches_from("atari(size=0, stack=1)"))
    assert gray.reset(seed=0)[0].shape == (30, 40) == gray.observation_space.shape


def test_compiled_environments_are_refused():
    for make in (velocirl.make, velocirl.make_vec):
        with pytest.raises(ValueError, match="CatchPixels-v0 is compiled and has no preprocess="):
            make("CatchPixels-v0", preprocess="atari")
