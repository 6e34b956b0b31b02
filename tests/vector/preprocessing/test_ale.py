"""Games in ALE's own vector environment against the same games in Python, step by step."""

import copy

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, VectorEnv

import velocirl
from velocirl.vector.host.vector_env import HostVectorEnv
from velocirl.vector.preprocessing.ale import ALEVectorEnv, ale_seed

# Of which ALE's single environment gives emulators no more bits than its vector takes.
SEEDS = [seed for seed in range(20) if np.random.SeedSequence(seed).generate_state(2)[1] < 2**31][:3]


def both(game, text, seeds=SEEDS, **options):
    """Copies in ALE's vector environment, and in Python, which `infos` asks for."""
    fast = velocirl.make_vec(game, len(seeds), preprocess=text, **options)
    plain = velocirl.make_vec(game, len(seeds), preprocess=text, infos=True, **options)
    assert isinstance(fast, ALEVectorEnv)
    assert isinstance(plain, HostVectorEnv)
    assert fast.single_observation_space == plain.single_observation_space
    assert fast.single_action_space == plain.single_action_space
    return fast, plain


def compare(fast, plain, steps, seeds=SEEDS, actions=None):
    """Take the same steps in both; the copies and steps at which episodes ended, and how."""
    ends = []
    rng = np.random.default_rng(0)
    np.testing.assert_array_equal(fast.reset(seed=seeds)[0], plain.reset(seed=seeds)[0])
    for step in range(steps):
        action = rng.integers(0, fast.single_action_space.n, len(seeds)) if actions is None else actions[step]
        observations, *told, infos = fast.step(action)
        expected, *expected_told, expected_infos = plain.step(action)
        np.testing.assert_array_equal(observations, expected, err_msg=f"step {step}")
        for ours, theirs in zip(told, expected_told, strict=True):
            np.testing.assert_array_equal(ours, theirs, err_msg=f"step {step}")
        for number in np.flatnonzero(told[1] | told[2]).tolist():
            ours, theirs = (one["final_obs"][number] for one in (infos, expected_infos))
            over = told[2][number] or expected_infos["final_info"]["lives"][number] == 0
            # Of a game that is over or cut off, ALE does not show the very last frame.
            np.testing.assert_array_equal(ours[: -1 if over else None], theirs[: -1 if over else None])
            ends.append((number, step, bool(told[1][number]), bool(told[2][number])))
    return ends


def test_gymnasiums_vector_environments_keep_their_metadata(monkeypatch):
    monkeypatch.setattr(VectorEnv, "metadata", {})  # whoever has written into it before
    envs = velocirl.make_vec("gym:ALE/Pong-v5", 1, preprocess="atari")
    assert isinstance(envs, ALEVectorEnv)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    envs.close()
    assert VectorEnv.metadata == {}


def test_seeds_are_those_of_ales_single_environment():
    env = velocirl.make("gym:ALE/Pong-v5", preprocess="atari(noops=0)")
    for seed in (0, 1, 2, 2**40):
        assert ale_seed(seed) == int(env.reset(seed=seed)[1]["seeds"][1]) % 2**31
    assert ale_seed(None) == -1


def test_sticky_pong_is_the_same_in_both():
    fast, plain = both("gym:ALE/Pong-v5", "atari(noops=0)")
    assert compare(fast, plain, 80) == []
    assert fast.single_observation_space.shape == (4, 84, 84)
    assert (
        len({observation.tobytes() for observation in fast.arrays.observations}) == 3
    )  # by another seed, another game


def test_lives_end_episodes_and_games_go_on_in_both():
    fast, plain = both("gym:ALE/Breakout-v5", "atari(noops=0)", seeds=SEEDS[:2])
    ends = compare(fast, plain, 180, seeds=SEEDS[:2], actions=np.ones((180, 2), int))  # that only begin
    assert len(ends) > 10  # more than the lives of two games
    assert all(terminated and not truncated for *_, terminated, truncated in ends)


@pytest.mark.parametrize("text", ["atari(noops=0, stack=1)", "atari(noops=0, gray=false, skip=2, size=40, stack=2)"])
def test_every_kind_of_picture_is_the_same_in_both(text):
    fast, plain = both("gym:ALE/Breakout-v5", text, seeds=SEEDS[:1], full_action_space=True)
    assert len(compare(fast, plain, 60, seeds=SEEDS[:1])) > 0


def test_a_limit_cuts_off_in_both():
    """In steps of the agent, counted over all lives of a game; a stack that is cut off young is padded too."""
    fast, plain = both("gym:ALE/Breakout-v5", "atari(noops=0)", seeds=SEEDS[:1], max_episode_steps=40)
    ends = compare(fast, plain, 130, seeds=SEEDS[:1])
    assert [step for _, step, _, truncated in ends if truncated] == [39, 79, 119]
    assert sum(terminated for *_, terminated, _ in ends) >= 3
    young, _ = both("gym:ALE/Breakout-v5", "atari(noops=0)", seeds=SEEDS[:1], max_episode_steps=2)
    first, _ = young.reset(seed=[1])
    young.step(np.ones(1, int))
    *_, infos = young.step(np.ones(1, int))
    np.testing.assert_array_equal(infos["final_obs"][0][1], first[0][0])
    np.testing.assert_array_equal(infos["final_obs"][0][0], first[0][0])


def test_some_copies_can_be_reset():
    fast, _ = both("gym:ALE/Breakout-v5", "atari(noops=0)")
    first, _ = fast.reset(seed=SEEDS)
    before = [fast.step(np.full(3, 1))[0] for _ in range(8)][-1]
    assert not np.array_equal(before[1], first[1])
    after, _ = fast.reset(seed=SEEDS, options={"reset_mask": np.array([False, True, False])})
    np.testing.assert_array_equal(after[1], first[1])
    np.testing.assert_array_equal(after[[0, 2]], before[[0, 2]])


def test_returns_and_lengths_are_those_of_the_rewards():
    envs = velocirl.make_vec("gym:ALE/Breakout-v5", 2, preprocess="atari", seed=3)
    envs.reset()
    rng, total, length, episodes = np.random.default_rng(0), np.zeros(2), np.zeros(2, int), 0
    for _ in range(250):
        _, rewards, terminated, truncated, infos = envs.step(rng.integers(0, 4, 2))
        assert set(rewards.tolist()) <= {-1.0, 0.0, 1.0}
        total += rewards
        length += 1
        ended = terminated | truncated
        if ended.any():
            episode = infos["final_info"]["episode"]
            np.testing.assert_array_equal(episode["r"][ended], total[ended])
            np.testing.assert_array_equal(episode["l"][ended], length[ended])
            np.testing.assert_array_equal(infos["_final_obs"], ended)
            total[ended], length[ended], episodes = 0, 0, episodes + int(ended.sum())
    assert episodes > 10


def test_the_same_seed_is_the_same_game_with_noops_too():
    first, second = (velocirl.make_vec("gym:ALE/Pong-v5", 2, preprocess="atari", seed=7) for _ in range(2))
    np.testing.assert_array_equal(first.reset()[0], second.reset()[0])
    for _ in range(40):
        np.testing.assert_array_equal(first.step(np.array([2, 3]))[0], second.step(np.array([2, 3]))[0])


def test_clipped_and_whole_scores():
    """Freeway gives rewards of 1; Ms. Pac-Man of 10 for each pill."""
    clipped, whole = (
        velocirl.make_vec("gym:ALE/MsPacman-v5", 1, preprocess=f"atari(noops=0, clip_rewards={clip})", seed=1)
        for clip in ("true", "false")
    )
    for envs in (clipped, whole):
        envs.reset()
    rewards = np.array([[float(envs.step(np.array([3]))[1][0]) for envs in (clipped, whole)] for _ in range(80)])
    np.testing.assert_array_equal(rewards[:, 0], np.sign(rewards[:, 1]))
    assert rewards[:, 1].max() >= 10.0


@pytest.mark.parametrize(
    "options",
    [
        {"render_mode": "rgb_array"},
        {"difficulty": 0},
        {"autoreset_mode": AutoresetMode.NEXT_STEP},
        {"infos": True},
    ],
)
def test_what_ales_vector_has_not_steps_in_python(options):
    envs = velocirl.make_vec("gym:ALE/Pong-v5", 1, preprocess="atari", **options)
    assert isinstance(envs, HostVectorEnv)
    assert envs.reset(seed=1)[0].shape == (1, 4, 84, 84)
    assert isinstance(velocirl.make_vec("gym:ALE/Pong-v5", 1, preprocess="atari(size=0)"), HostVectorEnv)


def test_what_cannot_be_asked_of_emulators_in_cpp_is_said():
    envs = velocirl.make_vec("gym:ALE/Pong-v5", 1, preprocess="atari")
    envs.reset(seed=0)
    with pytest.raises(AttributeError, match="whose copies have no 'ale': make one with render_mode="):
        envs.get_attr("ale")
    with pytest.raises(ValueError, match="Pong-v5 steps on threads of ALE's own: leave workers out"):
        velocirl.make_vec("gym:ALE/Pong-v5", 2, preprocess="atari", workers=2)
    with pytest.raises(TypeError, match="can be neither copied nor pickled: call make_vec where"):
        copy.deepcopy(envs)
    envs.close()
    envs.close()
