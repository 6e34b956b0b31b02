"""Autoreset modes against Gymnasium's own SyncVectorEnv over single environments with the same seeds."""

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import velocirl

COPIES = 4
SEEDS = [11, 12, 13, 14]
NAMES = ["CartPole-v1", "FrozenLake-v1", "Identity-v0", "TicTacToe-v1"]  # float, discrete, truncated, masked
MODES = [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED]

every_environment = pytest.mark.parametrize("name", NAMES)
every_mode = pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)


def both(name, mode, copy=True):
    ours = velocirl.make_vec(name, COPIES, autoreset_mode=mode, copy=copy)
    theirs = SyncVectorEnv([lambda: velocirl.make(name)] * COPIES, autoreset_mode=mode)
    np.testing.assert_array_equal(ours.reset(seed=SEEDS)[0], theirs.reset(seed=SEEDS)[0])
    return ours, theirs


def actions_of(envs, seed):
    envs.action_space.seed(seed)
    while True:
        yield envs.action_space.sample()


def step_both(ours, theirs, actions):
    """One step of each, compared; returns which copies ended."""
    seen, rewards, terminated, truncated, infos = ours.step(actions)
    expected = theirs.step(actions)
    for mine, other in zip((seen, rewards, terminated, truncated), expected, strict=False):
        np.testing.assert_array_equal(mine, other)
    ended = terminated | truncated
    if "final_obs" in expected[4]:
        np.testing.assert_array_equal(infos["_final_obs"], expected[4]["_final_obs"])
        np.testing.assert_array_equal(infos["final_obs"][ended], np.stack(expected[4]["final_obs"][ended]))
    if "action_mask" in expected[4] and not ended.all():
        shown = expected[4]["_action_mask"] & ~ended  # at the end of an episode there is no action left to mask
        np.testing.assert_array_equal(infos["action_mask"][shown], np.stack(expected[4]["action_mask"][shown]))
    return ended


@every_environment
@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("mode", MODES[:2], ids=lambda mode: mode.name)
def test_episodes_follow_each_other_as_in_gymnasium(name, mode, copy):
    ours, theirs = both(name, mode, copy)
    ends = sum(
        step_both(ours, theirs, actions).sum() for actions, _ in zip(actions_of(ours, 1), range(90), strict=False)
    )
    assert ends > COPIES


@every_environment
@pytest.mark.parametrize("copy", [True, False])
def test_disabled_resets_just_the_copies_it_is_told_to(name, copy):
    """Finished copies are reset together; whoever is not named keeps showing what it showed."""
    ours, theirs = both(name, AutoresetMode.DISABLED, copy)
    for actions, _ in zip(actions_of(ours, 2), range(60), strict=False):
        ended = step_both(ours, theirs, actions)
        if not ended.any():
            continue
        first = ended & (np.cumsum(ended) == 1)
        for mask in (first, ended & ~first):
            if mask.any():
                seen, _ = ours.reset(options={"reset_mask": mask})
                np.testing.assert_array_equal(seen, theirs.reset(options={"reset_mask": mask.copy()})[0])


@every_mode
def test_a_reset_with_a_seed_begins_anew_in_the_midst_of_everything(mode):
    ours, theirs = both("Identity-v0", mode)
    actions = actions_of(ours, 3)
    for _ in range(16):  # all copies are at their time limit now
        ended = step_both(ours, theirs, next(actions))
    assert ended.all()
    np.testing.assert_array_equal(ours.reset(seed=SEEDS[::-1])[0], theirs.reset(seed=SEEDS[::-1])[0])
    for _ in range(10):
        assert not step_both(ours, theirs, next(actions)).any()


@every_mode
def test_a_reset_without_a_seed_skips_no_episode(mode):
    """A finished copy has its next episode ready; a reset gives that one, as resetting a single environment does."""
    ours, theirs = both("Identity-v0", mode)
    actions = actions_of(ours, 4)
    for _ in range(16):
        ended = step_both(ours, theirs, next(actions))
    assert ended.all()
    if mode == AutoresetMode.SAME_STEP:  # there the next episode is under way, and a reset abandons it
        before = ours.get_state()["observation"]
        assert not np.array_equal(ours.reset()[0], before)
    else:
        np.testing.assert_array_equal(ours.reset()[0], theirs.reset()[0])


@every_mode
def test_a_saved_state_continues_with_the_copies_that_wait(mode):
    """Going back to a saved state gives what came after it, also when episodes have just ended."""
    envs = velocirl.make_vec("Identity-v0", COPIES, seed=5, autoreset_mode=mode)
    envs.reset()
    for _ in range(16):
        envs.step(np.zeros(COPIES, int))
    saved = envs.get_state()

    def what_follows():
        if mode == AutoresetMode.DISABLED:
            envs.reset(options={"reset_mask": np.ones(COPIES, bool)})
        return [np.copy(array) for _ in range(12) for array in envs.step(np.ones(COPIES, int))[:4]]

    expected = what_follows()
    envs.set_state(saved)
    for array, other in zip(what_follows(), expected, strict=True):
        np.testing.assert_array_equal(array, other)


@every_mode
def test_the_mode_is_declared(mode):
    assert velocirl.make_vec("Counter-v0", 2, autoreset_mode=mode).metadata["autoreset_mode"] == mode


def test_a_mode_may_be_given_by_its_value_as_gymnasium_writes_it():
    envs = velocirl.make_vec("Counter-v0", 2, autoreset_mode=AutoresetMode.NEXT_STEP.value)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP


WRONG = {
    "a list": [True] * COPIES,
    "of another length": np.ones(3, bool),
    "of two dimensions": np.ones((COPIES, 1), bool),
    "of numbers": np.ones(COPIES),
    "of nobody": np.zeros(COPIES, bool),
}


@pytest.mark.parametrize("mask", WRONG.values(), ids=WRONG)
@every_mode
def test_a_wrong_reset_mask_is_refused_as_gymnasium_does(mode, mask):
    envs, theirs = both("Counter-v0", mode)
    with pytest.raises((TypeError, ValueError)) as expected:
        theirs.reset(options={"reset_mask": mask})
    with pytest.raises(expected.type, match="reset_mask"):
        envs.reset(options={"reset_mask": mask})
