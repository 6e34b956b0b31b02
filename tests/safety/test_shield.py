"""The shield: nothing that is asked for leaves the limits, as long as the model is right."""

import numpy as np
import pytest
from cart import BRAKE, END, TIME_STEP, cart
from hypothesis import given, settings
from hypothesis import strategies as st
from tank import WEIGHT, tank

import velocirl
from velocirl.controllers import Constant, Random
from velocirl.safety import Shield, ShieldedVectorEnv
from velocirl.safety.action_filter import ActionFilter

HORIZON = 20  # steps within which the cart has stopped, from any speed that it can have on its track
REACH = np.float32(0.999)


def at(envs, **fields):
    """Copies in these states; what they observe."""
    envs.reset(seed=0)
    envs.write({"state": envs.environment.state.rows(envs.num_envs, fields)})
    return np.stack([np.broadcast_to(np.float32(fields[name]), envs.num_envs) for name in fields], axis=1)


def test_the_nearest_safe_action_by_hand():
    vessel = tank(controller=Constant([0.0]))  # level' = level + action, critical above 3
    envs = velocirl.make_vec(vessel, 4, device="python")
    seen = at(envs, level=[1.0, 1.0, 2.5, 3.5], inflow=0.0)
    chosen = ActionFilter(envs, device="python").filter(seen, np.float32([[1], [4], [4], [4]]), None, np.ones(4, bool))
    # Safe as it is; of the points to the fallback's 0 that at 2 is safe; then that at 0.5; then only what empties.
    np.testing.assert_allclose(chosen.actions[:3, 0], [1.0, 2.0, 0.5])
    assert chosen.actions[3, 0] <= -0.5
    assert chosen.replaced.tolist() == [False, True, True, True]
    assert not chosen.emergency.any()


def test_a_violation_within_a_repeated_action_is_foreseen():
    """Level and back: the state after both steps is always within the limits."""

    def swing(state, params, action, rng):
        state.inflow = action[0]
        state.level += action[0] if state.level < 1.5 else 1.0 - state.level
        return 1.0, False

    vessel = tank(step=swing, controller=Constant([0.0]), skip=2)
    envs = velocirl.make_vec(vessel, 2, device="python")
    seen = at(envs, level=1.0, inflow=0.0)
    chosen = ActionFilter(envs, device="python").filter(seen, np.float32([[2], [4]]), None, np.ones(2, bool))
    np.testing.assert_allclose(chosen.actions[:, 0], [2.0, 2.0])  # critical above a level of 3
    assert chosen.replaced.tolist() == [False, True]


def test_the_fallback_acts_where_nothing_is_safe():
    envs = velocirl.make_vec(tank(), 1, device="python")
    seen = at(envs, level=50.0, inflow=0.0)
    chosen = ActionFilter(envs, Constant([-3.0]), device="python").filter(seen, [[4.0]], None, np.ones(1, bool))
    assert chosen.actions.tolist() == [[-3.0]]
    assert chosen.emergency.all()


def test_which_constraints_are_kept():
    vessel = tank(controller=Constant([0.0]))
    envs = velocirl.make_vec(vessel, 1, device="python")
    seen = at(envs, level=1.0, inflow=0.0)
    everyone = ActionFilter(envs, constraints=("level", "inflow"), device="python")
    chosen = everyone.filter(seen, [[2.0]], None, np.ones(1, bool))
    np.testing.assert_allclose(chosen.actions, [[0.75]])  # the limit of the inflow
    with pytest.raises(ValueError, match="no constraint 'wieght': did you mean 'weight'"):
        ActionFilter(envs, constraints=("wieght",))


@settings(max_examples=20, deadline=None)
@given(
    st.floats(-0.875, 0.875, width=32),
    st.floats(-1.0, 1.0, width=32),
    st.lists(st.floats(-1.0, 1.0, width=32) | st.sampled_from([-1.0, 1.0]), min_size=12, max_size=12),
)
def test_whatever_is_asked_for_the_cart_stays_on_its_track(place, share, asked):
    # The fastest it may go: it brakes by 0.1 in each step, and moves by 0.1 times its speed.
    room = REACH * END - abs(place)
    fastest = TIME_STEP * int((np.sqrt(1.0 + 8.0 * room / TIME_STEP**2) - 1.0) / 2.0)
    envs = velocirl.make_vec(cart, 1, device="python")
    seen = at(envs, place=place, speed=share * fastest)
    envs = ShieldedVectorEnv(envs, horizon=HORIZON, device="python")
    envs._observations = seen
    for action in asked:
        _, _, terminated, _, infos = envs.step(np.float32([[action]]))
        assert infos["cost"].tolist() == [0.0]
        assert not terminated.any()
    assert envs.interventions.emergencies == 0
    assert envs.interventions.actions == len(asked)


def test_a_single_step_is_not_foresight_enough():
    envs = velocirl.make_vec(cart, 1, device="python")
    envs.reset(seed=0)
    short = ShieldedVectorEnv(envs, horizon=1, device="python")
    short.reset(seed=0)
    costs = [short.step(np.float32([[1.0]]))[4]["cost"][0] for _ in range(30)]
    assert sum(costs) > 0.0
    assert short.interventions.emergencies > 0


@pytest.mark.parametrize("policy", [lambda seen: np.float32([1.0]), Constant([1.0]), Random(3)])
def test_around_any_policy(policy):
    open_result = velocirl.evaluate(policy, cart, episodes=4, seed=0)
    shield = Shield(policy, horizon=HORIZON)
    result = velocirl.evaluate(shield, cart, episodes=4, seed=0)
    assert result.lengths.tolist() == [200] * 4
    assert shield.interventions.replaced > 0
    assert shield.interventions.emergencies == 0
    assert shield.interventions.actions == 800
    assert open_result.lengths.min() < 200


def test_what_is_left_with_a_wrong_model():
    # The model takes the brakes to be half as good again as they are.
    envs = velocirl.make_vec(cart, 1, device="python")
    for factor, leaves in ((1.0, False), (0.9, False), (1.5, True)):
        shield = ShieldedVectorEnv(envs, horizon=HORIZON, mismatch={"force": factor}, device="python")
        shield.reset(seed=0)
        costs = [shield.step(np.float32([[1.0]]))[4]["cost"][0] for _ in range(40)]
        assert (sum(costs) > 0.0) == leaves, factor


def test_one_observation_is_as_a_batch_of_one():
    envs = velocirl.make_vec(cart, 1, device="python")
    seen = at(envs, place=0.7, speed=0.6)
    shield = Shield(Constant([1.0]), BRAKE, horizon=HORIZON, device="python").bind(envs)
    alone, state = shield.predict(seen[0])
    batch, _ = shield.predict(seen)
    np.testing.assert_array_equal(alone, batch[0])
    again, _ = shield.predict(seen[0], state)
    np.testing.assert_array_equal(alone, again)


def test_an_action_that_is_no_number_is_replaced():
    envs = velocirl.make_vec(cart, 1, device="python")
    seen = at(envs, place=0.0, speed=0.5)
    chosen = ActionFilter(envs, device="python").filter(seen, [[np.nan]], None, np.ones(1, bool))
    np.testing.assert_allclose(chosen.actions, [[-1.0]])  # the brake's
    assert chosen.replaced.all()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: ActionFilter(tank()), "ships no controller: give a fallback"),
        (lambda: ActionFilter("Pendulum-v1", Constant()), "has no constraints that a shield could keep"),
        (lambda: ActionFilter(cart, horizon=0), "horizon must be at least 1"),
        (lambda: ActionFilter(cart, then="stop"), "then must be one of fallback, hold"),
        (lambda: Shield(Constant([0.0])).predict(np.zeros(2)), "does not know its environment"),
        (lambda: Shield(Constant([0.0])).bind(cart).predict(np.zeros(2, np.float32)), "needs the state of its plant"),
    ],
)
def test_what_is_wrong_is_said(make, says):
    with pytest.raises(ValueError, match=says):
        make()


def test_hold_keeps_the_action():
    # A critical weight of 6 is a level of 3: of two steps with the same action only half as much is left to each.
    envs = velocirl.make_vec(tank(controller=Constant([0.0]), constraints=(WEIGHT,)), 1, device="python")
    seen = at(envs, level=1.0, inflow=0.0)
    held = ActionFilter(envs, horizon=2, then="hold", device="python").filter(seen, [[4.0]], None, np.ones(1, bool))
    np.testing.assert_allclose(held.actions, [[1.0]])


def test_a_margin_leaves_room():
    # Weight may be 6, a level of 3; with 1 to spare a level of 2.5. The level's own limit is a parameter, 2.
    envs = velocirl.make_vec(tank(controller=Constant([0.0])), 1, device="python")
    seen = at(envs, level=1.0, inflow=0.0)
    careful = ActionFilter(envs, margin={"weight": 1.0}, device="python")
    np.testing.assert_allclose(careful.filter(seen, [[4.0]], None, np.ones(1, bool)).actions, [[1.5]])
    careful = ActionFilter(envs, margin={"level": 0.5}, constraints=("level",), device="python")
    np.testing.assert_allclose(careful.filter(seen, [[4.0]], None, np.ones(1, bool)).actions, [[0.5]])
    assert envs.read(("params",))["params"]["highest"] == 2.0
    for margin, says in (({"wight": 1.0}, "no constraint 'wight'"), ({"weight": -1.0}, "must be at least 0")):
        with pytest.raises(ValueError, match=says):
            ActionFilter(envs, margin=margin, device="python")


def test_a_margin_is_what_keeps_a_noisy_plant_safe():
    # Noise of 0.1 in each step: a shield without a margin lets the level come to 3 and is then surprised.
    broken = []
    for margin in ({}, {"weight": 0.9}):  # 4.5 deviations
        envs = velocirl.make_vec(tank(controller=Constant([0.0])), 64, params={"noise": 0.1}, device="python", seed=0)
        shield = ShieldedVectorEnv(envs, Constant([-2.0]), margin=margin, samples=0, device="python")
        shield.reset(seed=0)
        costs = [shield.step(np.full((64, 1), 2.0, np.float32))[4]["costs"][:, 2].sum() for _ in range(8)]
        broken.append(sum(costs))
    assert broken[0] > 5.0
    assert broken[1] == 0.0


@pytest.mark.slow
def test_an_agent_that_trains_behind_a_shield_never_leaves_the_track():
    envs = ShieldedVectorEnv(velocirl.make_vec(cart, 16, seed=0), horizon=HORIZON)
    violations = []
    inner = envs.env.step

    def watched(actions):
        taken = inner(actions)
        violations.append(taken[4]["cost"].sum())
        return taken

    envs.env.step = watched
    velocirl.PPO(envs, seed=0).learn(20_000)
    assert len(violations) * 16 >= 20_000
    assert sum(violations) == 0.0
    assert envs.interventions.replaced > 0
