"""Actions of Dict and Tuple as an environment's functions get them, in plain Python and compiled."""

import gymnasium
import numpy as np
import pytest
from hybrid import aiming, forbid, forbidding, noting, numbers_of

import velocirl
from velocirl import Box, DefinitionError, Dict, Discrete, MultiBinary, Tuple
from velocirl.engine.action_parts import counts_of, parts_of

DEVICES = ["python", "cpu"]


@pytest.mark.parametrize("device", DEVICES)
def test_step_gets_every_part_of_a_dict(device):
    envs = velocirl.make_vec(noting, 6, device=device, seed=0)
    envs.reset()
    envs.action_space.seed(3)
    actions = envs.action_space.sample()
    observations, rewards, *_ = envs.step(actions)
    for copy in range(6):
        np.testing.assert_allclose(observations[copy], numbers_of(actions, copy), rtol=1e-6)
    np.testing.assert_allclose(rewards, actions["push"][:, 1, 0] * np.where(actions["kind"] == 2, 1.0, 0.5), rtol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_step_gets_the_parts_of_a_tuple_by_their_places(device):
    envs = velocirl.make_vec(aiming, 3, device=device, seed=0)
    observations, _ = envs.reset()
    kinds, numbers = observations[:, :3].argmax(axis=1), observations[:, 3:]
    assert envs.step((kinds, numbers))[1].tolist() == [1.0] * 3
    observations = envs.copies.observation
    kinds, numbers = observations[:, :3].argmax(axis=1), observations[:, 3:]
    assert envs.step(((kinds + 1) % 3, numbers))[1].tolist() == [0.0] * 3
    observations = envs.copies.observation
    kinds, numbers = observations[:, :3].argmax(axis=1), observations[:, 3:] * 0.5
    expected = 1 - np.abs(observations[:, 3] * 0.5)
    np.testing.assert_allclose(envs.step((kinds, numbers))[1], expected, rtol=1e-6)


@pytest.mark.parametrize("environment", [aiming, noting, forbidding], ids=str)
def test_random_actions_are_the_same_in_plain_python_and_lie_in_the_space(environment):
    velocirl.check_env(environment, quiet=True)
    fleets = [velocirl.make_vec(environment, 16, device=device, seed=5) for device in DEVICES]
    for fleet in fleets:
        fleet.reset()
        fleet.run_randomly(7)
    plain, compiled = (fleet.get_state() for fleet in fleets)
    np.testing.assert_array_equal(plain["rng"], compiled["rng"])
    for name in compiled["state"].dtype.names:
        np.testing.assert_allclose(plain["state"][name], compiled["state"][name], rtol=1e-6)
    for part in parts_of(environment.action):
        drawn = np.array(fleets[1].copies.action[part.name])
        many = gymnasium.vector.utils.batch_space(part.space, 16)
        assert many.contains(drawn.astype(many.dtype))
        if drawn.dtype.kind == "f":
            assert len(np.unique(drawn)) == drawn.size


def test_random_actions_are_legal():
    envs = velocirl.make_vec(forbidding, 64, seed=1)
    envs.reset()
    for step in range(4):
        envs.run_randomly(1)
        flags, kinds = envs.copies.action["flags"], envs.copies.action["kind"]
        if step % 2 == 1:
            assert (flags[:, 0] == 0).all()
            assert (kinds == 2).all()
        else:
            assert len(np.unique(flags[:, 0])) == 2
            assert len(np.unique(kinds)) == 3


def test_a_mask_has_an_entry_for_each_option_in_the_order_of_the_parts():
    assert counts_of(forbidding.action) == (2, 2, 3, 2, 4)
    assert forbidding.num_masked == 13
    envs = velocirl.make_vec(forbidding, 2, seed=1)
    saved = [envs.reset(), envs.get_state()][1]
    saved["mask"][1, 4:7] = 0  # of all kinds
    with pytest.raises(ValueError, match=r"mask\[1\] leaves no action legal"):
        envs.set_state(saved)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"action": Tuple(())}, "has no parts"),
        ({"action": Dict(x=gymnasium.spaces.Text(3))}, "part 'x' is Text.*write it as one of those"),
        ({"action": Tuple((Discrete(2), Box(0, 9, (1,), np.int32)))}, "part '1' is Box.*Box of floats"),
        ({"action": Dict(x=Tuple((Discrete(2), Discrete(3))))}, "'x/0' within a part; write one Dict or Tuple"),
        ({"action": Dict({"two words": Discrete(2)})}, "'two words', and step reads action.NAME; rename it"),
        ({"action": Dict({"if": Discrete(2)})}, "'if', and step reads action.NAME; rename it"),
        ({"action": Dict(x=Discrete(2, start=1))}, r"action\[x\]= starts at 1; start at 0"),
        ({"action": Tuple((Box(-1, 1, (1,)),)), "legal": forbid}, "legal= masks Discrete"),
        ({"action": MultiBinary(2)}, "or a Dict or Tuple of them"),
    ],
)
def test_what_cannot_be_an_action_is_refused_where_it_is_written(define, given, message):
    with pytest.raises(DefinitionError, match=message):
        define(**given)


def unpacking(state, params, action, rng):
    kind, numbers = action
    return numbers[0] * kind, False


def misspelt(state, params, action, rng):
    return action.knd * 1.0, False


def test_what_step_may_not_do_with_parts_is_said_with_its_line(define):
    pair = Tuple((Discrete(2), Box(-1, 1, (1,))))
    with pytest.raises(DefinitionError, match=r"step .*part by part, as in `x\[0\]`.*\n.*kind, numbers = action"):
        velocirl.check_env(define(step=unpacking, action=pair))
    with pytest.raises(DefinitionError, match=r"no field 'knd' .*action has kind.*did you mean 'kind'"):
        velocirl.check_env(define(step=misspelt, action=Dict(kind=Discrete(2))))
