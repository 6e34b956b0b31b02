"""Constraints: when they fire, what they cost, and what of them is refused where they are written."""

import copy
import pickle

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from tank import LEVEL, WEIGHT, State, observe, reset, tank

import velocirl
from velocirl import Constraint, DefinitionError, float64, record, uniform
from velocirl.engine.constraints import violating
from velocirl.engine.records import with_attributes
from velocirl.trajectories.safety import evaluate_safety


def stepped(environment, *moves, device="python", **options):
    """What a fleet of one tells of these moves of its level."""
    fleet = velocirl.make_vec(environment, 1, seed=0, device=device, **options)
    fleet.reset()
    return [fleet.step(np.full((1, 1), move, np.float32)) for move in moves]


def costs_of(told):
    return [infos["costs"][0].tolist() for *_, infos in told]


def test_a_limit_is_violated_beyond_it_and_not_at_it():
    environment = tank(constraints=(LEVEL, Constraint("inflow", value="inflow", low=-0.75, high=1.0)))
    above, below = (np.nextafter(np.float32(at), np.float32(beyond)) for at, beyond in ((1.0, 2.0), (-0.75, -1.0)))
    assert costs_of(stepped(environment, 1.0)) == [[0.0, 0.0]]  # the level is 2, as high as it may be
    assert costs_of(stepped(environment, -0.75)) == [[0.0, 0.0]]  # and 0.25, as low
    assert costs_of(stepped(environment, above, above)) == [[0.0, 1.0], [1.0, 1.0]]
    assert costs_of(stepped(environment, below)) == [[1.0, 1.0]]


@pytest.mark.parametrize("device", ["python", "cpu"])
def test_a_limit_that_no_binary_number_is_equal_to_can_be_met_exactly(device):
    inflow = Constraint("inflow", value="inflow", low=-0.1, high=0.1)
    told = stepped(tank(constraints=(inflow,)), np.float32(0.1), np.float32(-0.1), np.float32(0.11), device=device)
    assert costs_of(told) == [[0.0], [0.0], [1.0]]


def test_the_state_after_the_step_counts_and_not_the_one_before():
    told = stepped(tank(), 1.5, -1.0)  # the level is 2.5, then 1.5
    assert costs_of(told) == [[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    assert [float(infos["cost"][0]) for *_, infos in told] == [2.0, 0.0]


def test_penalties_are_taken_off_the_reward_and_critical_ones_end_the_episode():
    told = stepped(tank(), 1.5, 0.5, 0.5)  # to 2.5, 3 and, beyond the critical weight, 3.5
    assert [float(reward[0]) for _, reward, *_ in told] == [1.0 - 2.0 - 0.5, 1.0 - 2.0, 1.0 - 2.0]
    assert [bool(terminated[0]) for _, _, terminated, *_ in told] == [False, False, True]
    final = told[-1][4]["final_info"]
    assert final["costs"].tolist() == [[1.0, 0.0, 1.0]]
    assert final["cost"].tolist() == [2.0]
    assert final["episode"]["costs"].tolist() == [[3.0, 1.0, 1.0]]
    assert final["episode"]["cost"].tolist() == [5.0]
    assert final["episode"]["r"].tolist() == [-3.5]


def test_what_is_not_a_number_violates():
    check = violating(tank(constraints=(LEVEL, WEIGHT, Constraint("dry", value="level", low=0.0))))
    rows = with_attributes(tank().state.rows(1))
    rows["level"] = np.nan
    assert check(rows[0], with_attributes(tank().params.rows(1))[0]) == 0b111


def test_costs_are_told_of_the_last_step_of_an_episode_in_every_mode_of_resets():
    """Copy 0 overflows critically in the second step; its next episode begins without costs."""
    moves = np.array([[[1.5], [0.0]], [[1.5], [0.0]], [[0.0], [0.0]], [[0.0], [0.0]]], np.float32)
    for mode in AutoresetMode:
        fleet = velocirl.make_vec(tank(), 2, seed=0, device="python", autoreset_mode=mode)
        fleet.reset()
        costs = []
        for move in moves:
            *_, terminated, truncated, infos = fleet.step(move)
            costs.append(infos["costs"].tolist())
            if (terminated | truncated).any():
                assert infos["final_info"]["episode"]["costs"][0].tolist() == [2.0, 2.0, 1.0]
                assert infos["final_info"]["_cost"].tolist() == [True, False]
                if mode == AutoresetMode.DISABLED:
                    fleet.reset(options={"reset_mask": terminated | truncated})
        assert [one[0] for one in costs] == [[1, 1, 0], [1, 1, 1], [0, 0, 0], [0, 0, 0]], mode
        assert not np.any([one[1] for one in costs])


def test_a_copy_that_waits_for_its_next_episode_costs_nothing_and_counts_nothing():
    fleet = velocirl.make_vec(tank(), 1, seed=0, device="python", autoreset_mode=AutoresetMode.NEXT_STEP)
    fleet.reset()
    fleet.step(np.full((1, 1), 4.0, np.float32))
    *_, infos = fleet.step(np.full((1, 1), 4.0, np.float32))  # ignored: the next episode begins
    assert infos["costs"].tolist() == [[0.0, 0.0, 0.0]]
    assert infos["cost"].tolist() == [0.0]
    assert fleet.get_state()["cost_total"].tolist() == [[0.0, 0.0, 0.0]]


def test_a_time_limit_keeps_the_costs_of_its_episode_too():
    *_, (_, _, terminated, truncated, infos) = stepped(tank(), 1.5, *[0.0] * 7)
    assert (terminated[0], truncated[0]) == (False, True)
    assert infos["final_info"]["episode"]["costs"].tolist() == [[8.0, 1.0, 0.0]]


def test_each_state_of_a_repeated_action_is_judged():
    told = stepped(tank(), 1.0, -0.5, skip=2)  # through 2 to 3, and through 2.5 back to 2
    assert costs_of(told) == [[1.0, 2.0, 0.0], [1.0, 0.0, 0.0]]
    assert [float(reward[0]) for _, reward, *_ in told] == [2.0 - 2.0 - 2 * 0.5, 2.0 - 2.0]
    *_, infos = stepped(tank(max_steps=2), 1.0, -0.5, skip=2)[-1]
    assert infos["final_info"]["episode"]["costs"].tolist() == [[2.0, 2.0, 0.0]]
    assert infos["final_info"]["episode"]["l"].tolist() == [2]


def swing(state, params, action, rng):
    """The level goes up by the action and down again."""
    state.inflow = action[0]
    state.level += action[0] if state.level < 1.5 else 1.0 - state.level
    return 1.0, False


@pytest.mark.parametrize(
    ("device", "frames"),
    [("python", {}), ("python", {"stack": 2}), ("cpu", {"stack": 2}), pytest.param("cpu", {}, marks=pytest.mark.slow)],
)
def test_a_critical_violation_stops_a_repeated_action_where_it_happens(device, frames):
    """Its last state would have been fine: the level is 4, where 3 is critical, and 1 afterwards."""
    environment = tank(step=swing, report=("level",), **frames)
    told = stepped(environment, 1.0, 3.0, 1.0, skip=2, device=device)
    assert costs_of(told) == [[0.0, 2.0, 0.0], [1.0, 1.0, 1.0], [0.0, 2.0, 0.0]]
    assert [float(reward[0]) for _, reward, *_ in told] == [1.0, 1.0 - 2.0 - 0.5, 1.0]
    assert [bool(terminated[0]) for _, _, terminated, *_ in told] == [False, True, False]
    final = told[1][4]
    assert final["final_info"]["episode"]["level"].tolist() == [4.0]
    assert final["final_info"]["episode"]["costs"].tolist() == [[1.0, 3.0, 1.0]]
    assert final["final_obs"][0].reshape(-1, 2)[:, 0].tolist() == ([1.0, 4.0] if frames else [4.0])


def test_stops_of_one_environment_and_of_a_safety_evaluation_are_those_without_skipping():
    env = velocirl.make(tank(step=swing), device="python", skip=2)
    env.reset(seed=0)
    _, reward, terminated, _, infos = env.step(np.array([3.0], np.float32))
    assert (reward, terminated, infos["cost"]) == (1.0 - 2.0 - 0.5, True, 3.0)

    class Careless:
        def predict(self, observations, **_):
            return np.full((len(observations), 1), 3.0, np.float32), None

    found = evaluate_safety(Careless(), tank(step=swing, skip=2, scenarios={}), seeds=1, episodes=2, device="python")
    figures = next(iter(found.scenarios.values()))
    assert figures[found.policy].figures["emergency_stops"].value == 1.0


def test_a_step_that_terminates_by_itself_ends_the_repetition_and_the_judging():
    def once(state, params, action, rng):
        state.level += action[0]
        return 1.0, state.level > 1.5

    told = stepped(tank(step=once), 1.25, skip=4)
    assert costs_of(told) == [[1.0, 0.0, 0.0]]
    assert float(told[0][1][0]) == 1.0 - 2.0
    assert bool(told[0][2][0])


def test_limits_may_be_parameters_that_are_drawn():
    fleet = velocirl.make_vec(tank(), 64, seed=0, device="python", params={"highest": uniform(1.25, 2.25)})
    fleet.reset()
    highest = fleet.get_state()["params"]["highest"]
    *_, infos = fleet.step(np.full((64, 1), 0.75, np.float32))
    assert infos["costs"][:, 0].tolist() == (highest < 1.75).tolist()
    assert 0 < infos["costs"][:, 0].sum() < 64


def test_one_environment_tells_costs_as_well():
    env = velocirl.make(tank(), device="python")
    env.reset(seed=0)
    *_, infos = env.step(np.ones(1, np.float32))
    assert (infos["cost"], infos["costs"].tolist()) == (1.0, [0.0, 1.0, 0.0])
    *_, terminated, _, infos = env.step(np.full(1, 4.0, np.float32))
    assert (terminated, infos["costs"].tolist()) == (True, [1.0, 1.0, 1.0])


@record
class Exact:
    level: float64
    inflow: float64


@pytest.mark.parametrize(
    ("changes", "scenario"),
    [
        ({}, "disturbed"),
        ({"skip": 2}, "low"),
        ({"state": Exact, "skip": 2, "stack": 2}, "disturbed"),
        pytest.param({"state": Exact}, "disturbed", marks=pytest.mark.slow),
        pytest.param({"stack": 2}, "disturbed", marks=pytest.mark.slow),
        pytest.param({"skip": 3}, "disturbed", marks=pytest.mark.slow),
    ],
)
def test_compiled_code_judges_as_plain_python_does(changes, scenario):
    """Of fields and functions, in single and in double precision, with a mask of penalties."""
    fleets = [
        velocirl.make_vec(tank(**changes), 32, seed=1, device=device, scenario=scenario) for device in ("python", "cpu")
    ]
    for fleet in fleets:
        fleet.reset()
    rng = np.random.default_rng(0)
    for _ in range(20):
        fleets[1].set_state(fleets[0].get_state())
        moves = rng.uniform(-1, 1.5, (32, 1)).astype(np.float32)
        (_, *python), (_, *compiled) = (fleet.step(moves) for fleet in fleets)
        for one, other in zip(python[:3], compiled[:3], strict=True):
            np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(python[3]["costs"], compiled[3]["costs"])
        np.testing.assert_array_equal(fleets[0].copies.episode_costs, fleets[1].copies.episode_costs)


def test_costs_so_far_are_saved_and_carried_with_a_fleet():
    fleet = velocirl.make_vec(tank(), 2, seed=0, device="python", scenario="disturbed")
    fleet.reset()
    moves = np.random.default_rng(0).uniform(-1, 1.5, (16, 2, 1)).astype(np.float32)
    for move in moves[:6]:
        fleet.step(move)
    assert fleet.get_state()["cost_total"].any()
    twin = velocirl.make_vec(tank(), 2, seed=9, device="python", scenario="disturbed")
    twin.reset()
    twin.set_state(fleet.get_state())
    others = [twin, pickle.loads(pickle.dumps(fleet)), copy.deepcopy(fleet)]
    for move in moves[6:]:
        *_, infos = fleet.step(move)
        for other in others:
            *_, told = other.step(move)
            np.testing.assert_array_equal(told["costs"], infos["costs"])
    for other in others:
        np.testing.assert_array_equal(other.copies.episode_costs, fleet.copies.episode_costs)


def test_a_saved_state_with_costs_that_cannot_be_is_refused():
    fleet = velocirl.make_vec(tank(), 2, seed=0, device="python")
    fleet.reset()
    state = fleet.get_state()
    with pytest.raises(ValueError, match=r"cost_total is -1.0 at \[0, 0\]; it must be at least 0"):
        fleet.set_state({**state, "cost_total": np.full((2, 3), -1, np.float32)})
    with pytest.raises(ValueError, match="the state has no array 'cost_total'"):
        fleet.set_state({name: array for name, array in state.items() if name != "cost_total"})


def test_an_environment_without_constraints_tells_and_saves_none():
    fleet = velocirl.make_vec(tank(constraints=()), 1, seed=0, device="python")
    fleet.reset()
    *_, infos = fleet.step(np.full((1, 1), 4.0, np.float32))
    assert infos == {}
    assert "cost_total" not in fleet.get_state()


def test_the_value_of_a_constraint_is_rehearsed_as_other_functions_are():
    def broken(state, params):
        return state.hight

    def wordy(state, params):
        return "high"

    for value, said in (
        (broken, r"Tank-v0: constraint hot .*no field 'hight'"),
        (wordy, "gives 'high'; return a number"),
    ):
        environment = tank(constraints=(Constraint("hot", value=value, high=1.0),))
        with pytest.raises(DefinitionError, match=said):
            velocirl.make_vec(environment, 2)


def test_a_value_that_changes_the_state_is_found():
    def careless(state, params):
        state.level = 0.0
        return state.level

    with pytest.raises(DefinitionError, match="constraint level changes the state"):
        velocirl.check_env(tank(constraints=(Constraint("level", value=careless, high=1.0),)))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "constraint 'hot' has no limit: give low=, high= or both"),
        ({"low": 2.0, "high": 1.0}, r"constraint 'hot': low=2.0 lies above high=1.0"),
        ({"high": np.nan}, "high= must be a finite number or the name of a field of Params, got nan"),
        ({"high": True}, "high= must be a finite number"),
        ({"high": 1.0, "penalty": -1.0}, "penalty=-1.0 is taken off the reward and must be at least 0"),
        ({"high": 1.0, "unit": 3}, "unit= must be a text such as 'K', got 3"),
        ({"high": 1.0, "value": 3}, "value= must be the name of a field of the state or a function"),
        ({"high": 1.0, "value": reset}, r"its value must take \(state, params\), but takes \(state, params, rng\)"),
    ],
)
def test_a_constraint_that_says_nothing_is_refused(given, said):
    with pytest.raises(DefinitionError, match=said):
        Constraint("hot", **{"value": "level", **given})


@pytest.mark.parametrize(
    ("constraints", "said"),
    [
        (("level",), "constraints= must be velocirl.Constraint, got 'level'"),
        ((Constraint("a", value="levle", high=1.0),), "constraint 'a': value= names 'levle': did you mean 'level'?"),
        ((Constraint("a", value="level", high="higest"),), "high= names 'higest': did you mean 'highest'?"),
        ((Constraint("a", value="level", low=3.0, high="highest"),), "low=3.0 lies above high=2.0"),
        ((LEVEL, LEVEL), "two constraints are named 'level'; rename one of them"),
        (
            (Constraint("a", value="level", high=200.0, unit="cm"),),
            "is in 'cm', and the state holds 'level' in 'm': convert its limits to 'm', then give unit='m'",
        ),
        ((Constraint("a", value="level", high=2000.0, unit="mm"),), "in 'm': divide its limits by 1,000, then give"),
        ((Constraint("a", value="level", high=0.002, unit="km"),), "in 'm': multiply its limits by 1,000, then give"),
        (tuple(Constraint(f"a{k}", value="level", high=1.0) for k in range(32)), "has 32, and there may be 31"),
    ],
)
def test_constraints_that_do_not_fit_their_environment_are_refused(constraints, said):
    with pytest.raises(DefinitionError, match=said):
        tank(constraints=constraints)


def test_a_constraint_of_an_array_is_refused():
    @record
    class Profile:
        temperatures: velocirl.float32[3]

    with pytest.raises(DefinitionError, match=r"names 'temperatures', an array of \(3,\); constrain a number of it"):
        tank(state=Profile, signals={}, constraints=(Constraint("a", value="temperatures", high=1.0),), observe=observe)


def test_a_name_that_cannot_be_a_metric_is_refused():
    with pytest.raises(DefinitionError, match="named by letters, digits and underscores, got 'too hot'"):
        Constraint("too hot", value="level", high=1.0)


def test_a_constraint_has_the_unit_of_its_signal():
    assert [one.unit for one in tank().constraints] == ["m", "m3/s", "t"]
    assert State.fields == ("level", "inflow")
