"""Fleets and single environments whose actions are dicts and tuples, behind Gymnasium's interfaces."""

import copy
import pickle

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from hybrid import PARTS, Aiming, aiming, forbidding, noting, numbers_of

import velocirl
from velocirl import Dict, Tuple


@pytest.fixture
def fleet():
    envs = velocirl.make_vec(noting, 4, seed=0)
    envs.reset()
    envs.action_space.seed(0)
    return envs


@pytest.mark.parametrize("environment", [aiming, noting, forbidding], ids=str)
def test_gymnasium_finds_nothing_wrong(environment):
    check_env(velocirl.make(environment), skip_render_check=True)


def test_spaces_are_as_gymnasium_batches_them(fleet):
    assert fleet.single_action_space == Dict(PARTS)
    assert fleet.action_space["push"].shape == (4, 2, 2)
    assert fleet.action_space["kind"].shape == (4,)
    assert velocirl.make_vec(aiming, 4).action_space[1].shape == (4, 1)


def test_one_environment_takes_single_actions():
    env = velocirl.make(noting)
    env.reset(seed=0)
    env.action_space.seed(0)
    for _ in range(3):
        action = env.action_space.sample()
        np.testing.assert_allclose(env.step(action)[0], numbers_of(action), rtol=1e-6)
    env = velocirl.make(aiming)
    observation, _ = env.reset(seed=0)
    assert env.step((int(observation[:3].argmax()), observation[3:]))[1] == 1.0


WRONG = {
    "a choice beyond": ({"kind": [0, 1, 3, 0]}, r"the action\['kind'\] of copy 2 is 3, outside Discrete\(3\)"),
    "a negative choice": ({"pair": np.array([[0, 0], [1, -1]] * 2)}, r"action\['pair'\] of copy 1 is \[ 1 -1\]"),
    "a number beyond": ({"gain": np.array([0.0, 0.1, 0.05, 0.11])}, r"action\['gain'\] of copy 3 is 0.11, outside"),
    "no number": ({"push": np.full((4, 2, 2), np.nan)}, r"action\['push'\] of copy 0 is .*nan"),
    "a flag that is none": ({"flags": np.full((4, 2), 2)}, r"action\['flags'\] of copy 0 is \[2 2\]"),
    "another shape": ({"push": np.zeros((4, 4))}, r"actions\['push'\] have shape \(4, 4\); give \(4, 2, 2\)"),
    "choices as floats": ({"kind": np.zeros(4)}, r"actions\['kind'\] are float64; give integers"),
    "a part too many": ({"more": np.zeros(4)}, "an action is a dict of 'flags', .*, got one of .*'more'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_actions_are_refused_by_copy_and_part_and_none_is_taken(fleet, name):
    changes, message = WRONG[name]
    actions = fleet.action_space.sample()
    fleet.step(actions)
    before = fleet.copies.action.copy(), fleet.get_state()
    with pytest.raises(ValueError, match=message):
        fleet.step({**fleet.action_space.sample(), **changes})
    assert fleet.copies.action.tobytes() == before[0].tobytes()
    assert fleet.get_state()["elapsed"].tolist() == before[1]["elapsed"].tolist()


def test_other_structures_are_refused(fleet):
    with pytest.raises(ValueError, match=r"Noting-v0: an action is a dict of 'flags', .*, got a int"):
        fleet.step(3)
    pair = velocirl.make_vec(aiming, 2)
    pair.reset(seed=0)
    with pytest.raises(ValueError, match="Aiming-v0: an action is a tuple of 2, got one of 1"):
        pair.step((np.zeros(2, np.int64),))
    single = velocirl.make(aiming)
    single.reset(seed=0)
    with pytest.raises(ValueError, match="an action is a tuple of 2, got a dict"):
        single.unwrapped.step({"kind": 1})


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name)
def test_every_autoreset_mode_takes_them(mode):
    envs = velocirl.make_vec(noting, 2, seed=0, autoreset_mode=mode)
    envs.reset()
    for _ in range(5):
        truncated = envs.step(envs.action_space.sample())[3]
    assert truncated.all()


def test_a_fleet_travels_and_goes_on_as_it_would_have(fleet):
    fleet.step(fleet.action_space.sample())
    twins = [copy.deepcopy(fleet), pickle.loads(pickle.dumps(fleet))]
    saved = velocirl.make_vec(noting, 4)
    saved.set_state(fleet.get_state())
    for one in (fleet, *twins, saved):
        one.run_randomly(3)
    for one in (*twins, saved):
        assert one.get_state()["state"].tobytes() == fleet.get_state()["state"].tobytes()


def test_a_float64_bound_is_within_the_space():
    envs = velocirl.make_vec(noting, 2, seed=0)
    envs.reset()
    actions = envs.action_space.sample()
    actions["gain"][:] = 0.1  # which in single precision is more
    assert envs.step(actions)[0][:, 9] == pytest.approx([0.1, 0.1])


def test_masks_of_gymnasiums_environments_have_an_entry_for_each_option():
    class Masked(Aiming):
        def action_masks(self):
            return np.array([True, True, True, False, True])

    gymnasium.register("MaskedAiming-v3", Masked)
    try:
        envs = velocirl.make_vec("gym:MaskedAiming-v3", 2)
        assert envs.reset(seed=0)[1]["action_mask"].tolist() == [[1, 1, 1, 0, 1]] * 2
        assert isinstance(envs.single_action_space, Tuple)
    finally:
        gymnasium.registry.pop("MaskedAiming-v3")
