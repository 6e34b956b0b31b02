"""Counter through every backend, autoreset mode and kind of copying, against a model of one copy written by hand.

Counter's observation is the index of the coming step and that step pays it, so every row that is shown says where it
belongs. The lengths let copies terminate at each step, now and then, at the very moment of the time limit, and never.
"""

from dataclasses import dataclass

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import velocirl

LENGTHS = (1, 3, 10, 19, 20, 21, 30)
LIMIT = 20
STEPS = 90
DEVICES = ["cpu", "python", pytest.param("cuda", marks=pytest.mark.cuda)]


@dataclass
class Expected:
    """What a copy shows in one step; `final` is the last observation of the episode where one ended."""

    seen: float
    reward: float
    terminated: bool
    truncated: bool
    final: float | None


class Model:
    """One copy of Counter under one autoreset mode."""

    def __init__(self, length, mode):
        self.length, self.mode = length, mode
        self.count, self.waits = 0, False

    def step(self):
        if self.waits:  # only ever in NEXT_STEP: the action is ignored
            self.count, self.waits = 0, False
            return Expected(0, 0, False, False, None)
        reward, self.count = self.count, self.count + 1
        terminated, truncated = self.count >= self.length, self.count >= LIMIT
        final = self.count if terminated or truncated else None
        if final is not None:
            self.waits = self.mode == AutoresetMode.NEXT_STEP
            self.count = 0
        seen = final if final is not None and self.mode != AutoresetMode.SAME_STEP else self.count
        return Expected(seen, reward, terminated, truncated, final)


def host(array):
    return array.copy_to_host() if hasattr(array, "copy_to_host") else np.asarray(array)


def make(mode=AutoresetMode.SAME_STEP, device="cpu", copy=True, lengths=LENGTHS):
    params = {"length": np.array(lengths)}
    return velocirl.make_vec("Counter-v0", len(lengths), device=device, params=params, autoreset_mode=mode, copy=copy)


def column(rows, name):
    return np.array([getattr(row, name) for row in rows])


def assert_shown(expected, step, mode):
    seen, rewards, terminated, truncated, infos = step
    np.testing.assert_array_equal(host(seen)[:, 0], column(expected, "seen"))
    np.testing.assert_array_equal(host(rewards), column(expected, "reward"))
    np.testing.assert_array_equal(host(terminated), column(expected, "terminated"))
    np.testing.assert_array_equal(host(truncated), column(expected, "truncated"))
    ended = np.array([row.final is not None for row in expected])
    if ended.any():
        finals = column(expected, "final")[ended].astype(float)
        final = infos["final_info"]
        np.testing.assert_array_equal(host(infos["_final_info"]), ended)
        np.testing.assert_array_equal(host(final["_episode"]), ended)
        np.testing.assert_array_equal(host(final["episode"]["l"])[ended], finals)
        np.testing.assert_array_equal(host(final["episode"]["r"])[ended], finals * (finals - 1) / 2)
        if mode == AutoresetMode.SAME_STEP:
            np.testing.assert_array_equal(host(infos["_final_obs"]), ended)
            np.testing.assert_array_equal(host(infos["final_obs"])[ended, 0], finals)
    if mode != AutoresetMode.SAME_STEP:
        assert "final_obs" not in infos
        assert "_final_obs" not in infos


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("device", DEVICES)
def test_same_step_shows_the_next_episode_and_keeps_the_last_observation_of_the_old_one(device, copy):
    envs = make(AutoresetMode.SAME_STEP, device, copy)
    models = [Model(length, AutoresetMode.SAME_STEP) for length in LENGTHS]
    np.testing.assert_array_equal(host(envs.reset(seed=1)[0]), 0)
    for step in range(STEPS):
        actions = np.full(len(LENGTHS), step % 2)
        assert_shown([model.step() for model in models], envs.step(actions), AutoresetMode.SAME_STEP)


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("device", ["cpu", "python"])
def test_next_step_shows_the_end_and_then_spends_one_step_on_the_new_beginning(device, copy):
    envs = make(AutoresetMode.NEXT_STEP, device, copy)
    models = [Model(length, AutoresetMode.NEXT_STEP) for length in LENGTHS]
    np.testing.assert_array_equal(envs.reset(seed=1)[0], 0)
    for step in range(STEPS):
        actions = np.full(len(LENGTHS), step % 2)
        assert_shown([model.step() for model in models], envs.step(actions), AutoresetMode.NEXT_STEP)


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("device", ["cpu", "python"])
def test_disabled_stays_at_the_end_until_told_to_reset(device, copy):
    envs = make(AutoresetMode.DISABLED, device, copy)
    models = [Model(length, AutoresetMode.DISABLED) for length in LENGTHS]
    np.testing.assert_array_equal(envs.reset(seed=1)[0], 0)
    for step in range(STEPS):
        shown = envs.step(np.full(len(LENGTHS), step % 2))
        assert_shown([model.step() for model in models], shown, AutoresetMode.DISABLED)
        ended = shown[2] | shown[3]
        if ended.any():
            with pytest.raises(RuntimeError, match=r"Counter-v0: copies 0\b.* have finished"):
                envs.step(np.zeros(len(LENGTHS), int))
            seen, _ = envs.reset(options={"reset_mask": ended})
            np.testing.assert_array_equal(seen[:, 0], [model.count for model in models])


@pytest.mark.cuda
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_on_cuda_the_other_modes_are_refused(mode):
    with pytest.raises(ValueError, match=r"Counter-v0: on CUDA the autoreset mode is SAME_STEP"):
        make(mode, "cuda")


@pytest.mark.parametrize("device", DEVICES)
def test_an_episode_may_end_for_both_reasons_at_once(device):
    envs = make(device=device, lengths=(LIMIT - 1, LIMIT, LIMIT + 1))
    envs.reset(seed=1)
    for _ in range(LIMIT - 1):
        _, _, terminated, truncated, _ = envs.step(np.zeros(3, int))
    assert (host(terminated).tolist(), host(truncated).tolist()) == ([True, False, False], [False, False, False])
    _, _, terminated, truncated, _ = envs.step(np.zeros(3, int))
    assert (host(terminated).tolist(), host(truncated).tolist()) == ([False, True, False], [False, True, True])


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_arrays_that_were_given_are_never_written_again(mode):
    """With copy=True, what a step returned stays what it was, whatever happens afterwards."""
    envs = make(mode, lengths=(3, 25))
    kept = [(seen := envs.reset(seed=1)[0], seen.copy())]
    for _ in range(50):
        seen, rewards, terminated, truncated, infos = envs.step(np.zeros(2, int))
        kept += [(array, array.copy()) for array in (seen, rewards, terminated, truncated)]
        kept += [(infos[name], infos[name].copy()) for name in ("final_obs", "_final_obs") if name in infos]
        kept += [(array, array.copy()) for array in infos.get("final_info", {"episode": {}})["episode"].values()]
        if mode == AutoresetMode.DISABLED and (terminated | truncated).any():
            kept.append((seen := envs.reset(options={"reset_mask": terminated | truncated})[0], seen.copy()))
    assert len(kept) > 200
    for array, before in kept:
        np.testing.assert_array_equal(array, before)


def test_without_copying_the_arrays_are_the_engines_own():
    envs = make(copy=False)
    first, _ = envs.reset(seed=1)
    second, rewards, *_ = envs.step(np.zeros(len(LENGTHS), int))
    assert first is second
    assert second is envs.copies.observation
    assert rewards is envs.copies.reward
