"""check_env: all problems of an environment, at once."""

import numpy as np
import pytest
from choosing import slow_but
from toys.environments import drifting

import velocirl
from velocirl import DefinitionError, Discrete, float64, int8, random, record
from velocirl.engine import registry
from velocirl.vector import checking


def environment(**changes):
    return drifting("Checked-v0", **changes)


BUILT_IN = [name for name in velocirl.list_envs() if registry.find(name).source.startswith(registry.BUILT_IN)]


@pytest.mark.parametrize(
    "name", slow_but([one for one in BUILT_IN if not one.startswith(("MinAtar", "Platformer"))], BUILT_IN)
)
def test_every_built_in_environment_is_sound(name, monkeypatch):
    """In fewer steps of fewer copies than users have: contracts/test_environments.py compares more of them."""
    monkeypatch.setattr(checking, "COPIES", 24)
    monkeypatch.setattr(checking, "STEPS", 24)
    assert velocirl.check_env(name) is None


def test_a_sound_environment_passes():
    assert velocirl.check_env(environment()) is None


def test_what_was_checked_is_said_where_all_is_well(capsys):
    velocirl.check_env("TicTacToe-v1")
    first, *checks = capsys.readouterr().out.splitlines()
    assert first.startswith("TicTacToe-v1 is sound")
    assert [line[:2] for line in checks] == ["- "] * 4
    for said in ("reset, step, observe, legal: 4 x 64 steps", "observe and legal none", "compiled as in plain Python"):
        assert said in "\n".join(checks)
    velocirl.check_env("TicTacToe-v1", quiet=True)
    with pytest.raises(DefinitionError):
        velocirl.check_env(environment(reset=forgetful_reset))
    assert capsys.readouterr().out == ""


def forgetful_reset(state, params, rng):
    state.position = random.uniform(rng, -1, 1)


def meddling_observe(state, params, observation):
    observation[0] = state.position
    state.count += 1


def test_all_problems_are_listed_at_once():
    with pytest.raises(DefinitionError) as caught:
        velocirl.check_env(environment(reset=forgetful_reset, observe=meddling_observe))
    message = str(caught.value)
    assert message.startswith("Checked-v0 has 2 problems:")
    place = f"at {__file__}:{forgetful_reset.__code__.co_firstlineno}: def forgetful_reset"
    assert (
        f"- Checked-v0: reset leaves State.count as it was; write every field that a function reads\n  {place}"
        in message
    )
    place = f"at {__file__}:{meddling_observe.__code__.co_firstlineno}: def meddling_observe"
    assert f"- Checked-v0: observe changes the state; only reset and step may do that\n  {place}" in message


def careless_reset(state, params, rng):
    state.position = random.uniform(rng, -0.5, 0.5)


def test_a_field_that_reset_leaves_unwritten_is_found_when_the_environment_is_made():
    """Without `check_env`: such a field carries the last episode's value into the next one."""
    place = f"at {__file__}:{careless_reset.__code__.co_firstlineno}: def careless_reset"
    with pytest.raises(DefinitionError, match=r"reset leaves State\.count as it was") as caught:
        velocirl.make_vec(environment(reset=careless_reset), 2)
    assert place in str(caught.value)


def wide_observe(state, params, observation):
    observation[0] = 100 * state.position


def endless_reward(state, params, action, rng):
    return 1.0 / state.count, False


def test_values_out_of_range_are_listed_with_those_of_other_functions():
    with pytest.raises(DefinitionError) as caught:
        velocirl.check_env(environment(step=endless_reward, observe=wide_observe))
    assert "whose space goes from -5.0 to 5.0" in str(caught.value)
    assert "a reward must be finite" in str(caught.value)


def overflowing_step(state, params, action, rng):
    state.count = (int(action) + 10) ** 19 % 1000  # 64 bits do not hold what Python's integers do
    return 0.0, False


def test_a_difference_between_plain_python_and_compiled_code_is_found():
    with pytest.raises(
        DefinitionError, match=r"state\.count is \d+ in plain Python and \d+ compiled, from the same state"
    ):
        velocirl.check_env(environment(step=overflowing_step))


ONLY = np.zeros(1, np.float32)


def legal_in_turn(state, params, mask):
    for k in range(3):
        mask[k] = 1 if k == state.count % 3 else 0


def trusting_step(state, params, action, rng):
    reward = ONLY[abs(action - state.count % 3)]  # a forbidden action is an IndexError in plain Python
    state.count += 1
    return reward, False


def test_only_legal_actions_are_played():
    assert velocirl.check_env(environment(step=trusting_step, legal=legal_in_turn, action=Discrete(3))) is None


@record
class Padded:
    small: int8
    position: float64
    count: int8


def padded_reset(state, params, rng):
    state.small, state.position, state.count = 1, random.uniform(rng, -1, 1), 0


def test_bytes_between_the_fields_of_a_record_mean_nothing():
    assert velocirl.check_env(environment(state=Padded, reset=padded_reset)) is None


def test_an_unknown_name_gets_a_suggestion():
    with pytest.raises(ValueError, match="did you mean 'CartPole-v1'"):
        velocirl.check_env("CartPool-v1")


def counting_step(state, params, action, rng):
    state.count += 1
    return 1.0, False


def test_an_environment_whose_episodes_never_end_is_warned_about():
    endless = environment(step=counting_step, max_steps=None)
    message = r"Checked-v0: no episode ended in 10,000 random steps of each of 8 environments, and there is no time"
    with pytest.warns(UserWarning, match=message):
        velocirl.check_env(endless)
    velocirl.check_env(environment(step=counting_step, max_steps=50))
