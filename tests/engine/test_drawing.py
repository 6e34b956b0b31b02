"""Parameters that each copy draws anew for each episode: from where, when, on every device, and from hostile states."""

import copy
import pickle

import numpy as np
import pytest
from scipy.stats import kstest

import velocirl
from velocirl import Box, Discrete, Environment, between, bool_, float32, int32, int64, log_uniform, record, uniform
from velocirl.engine.checking.rehearsal import rehearse
from velocirl.engine.disk.saved import StateError
from velocirl.engine.drawing import Draw, as_draw, with_draws
from velocirl.engine.errors import DefinitionError
from velocirl.engine.fleets.lifecycle import lifecycle

COPIES = 4000


@record
class State:
    left: int32 = between(0, 20)
    pull: float32


@record
class Params:
    pull: float32 = 1.0
    length: int32 = between(1, 20, default=3)
    flip: bool_ = False
    far: int64 = 0
    pair: float32[2] = 0.5


def reset(state, params, rng):
    state.left = params.length
    state.pull = params.pull


def step(state, params, action, rng):
    state.left -= 1
    return params.pull, state.left == 0


def observe(state, params, observation):
    observation[0] = params.pull
    observation[1] = params.length


def tell(state, params):
    return f"{params.pull:.6f}"


@pytest.fixture
def slope():
    return Environment(
        "Slope-v0", state=State, params=Params, observation=Box(-np.inf, np.inf, (2,)), action=Discrete(2),
        reset=reset, step=step, observe=observe, text=tell, report=("pull",), max_steps=50,
    )  # fmt: skip


# All that can be drawn: each set of names is compiled once.
ALL = {"pull": uniform(5, 15), "length": uniform(1, 20), "flip": uniform(0, 1), "far": uniform(0, 9)}


def drawn(environment, params, copies=COPIES, **options):
    fleet = velocirl.make_vec(environment, copies, seed=3, params=params, **options)
    fleet.reset()
    return fleet


def test_draws_are_as_frequent_as_they_should_be(slope):
    fleet = drawn(slope, {**ALL, "pull": uniform(5, 15), "length": uniform(3, 6)})
    params = fleet.copies.params
    assert kstest(params["pull"], "uniform", (5, 10)).pvalue > 0.01
    counts = np.bincount(params["length"], minlength=8)
    assert counts[:3].sum() == counts[7:].sum() == 0  # whole numbers, and both ends
    np.testing.assert_allclose(counts[3:7] / COPIES, 0.25, atol=0.03)
    assert params["flip"].mean() == pytest.approx(0.5, abs=0.03)
    assert abs(np.corrcoef(params["pull"], params["length"])[0, 1]) < 0.05


def test_logarithms_of_log_uniform_draws_are_uniform(slope):
    params = drawn(slope, {**ALL, "pull": log_uniform(0.01, 100), "far": log_uniform(1, 1000)}).copies.params
    assert kstest(np.log(params["pull"]), "uniform", (np.log(0.01), np.log(1e4))).pvalue > 0.01
    assert params["far"].min() == 1
    assert 900 < params["far"].max() <= 1000
    assert (params["far"] < 32).mean() == pytest.approx(np.log(32) / np.log(1001), abs=0.03)


def test_a_copy_keeps_what_it_drew_until_its_episode_ends(slope):
    fleet = drawn(slope, {**ALL, "length": uniform(3, 3)}, copies=100)
    first = fleet.copies.params["pull"].copy()
    for _ in range(2):
        fleet.step(np.zeros(100, np.int32))
        np.testing.assert_array_equal(fleet.copies.params["pull"], first)
    _, rewards, terminated, _, infos = fleet.step(np.zeros(100, np.int32))
    assert terminated.all()
    np.testing.assert_array_equal(rewards, first)
    np.testing.assert_array_equal(infos["final_obs"][:, 0], first)  # seen with what the episode had
    np.testing.assert_array_equal(infos["final_info"]["episode"]["pull"], first)
    assert not np.isin(fleet.copies.params["pull"], first).any()
    np.testing.assert_array_equal(fleet.copies.state["pull"], fleet.copies.params["pull"])


def test_plain_python_draws_what_compiled_code_does(slope):
    asked = {**ALL, "pull": log_uniform(0.1, 10), "far": uniform(-9, 2**30)}
    compiled, plain = (drawn(slope, asked, copies=50, device=device) for device in ("cpu", "python"))
    for fleet in (compiled, plain):
        fleet.run_randomly(30)
    for name in ("length", "flip", "far"):
        np.testing.assert_array_equal(compiled.copies.params[name], plain.copies.params[name])
    np.testing.assert_allclose(compiled.copies.params["pull"], plain.copies.params["pull"], rtol=1e-6)
    np.testing.assert_array_equal(compiled.copies.rng, plain.copies.rng)


def test_one_value_for_each_copy_is_as_a_fleet_of_each():
    gravities = [3.0, 9.8, 20.0]
    whole = velocirl.make_vec("CartPole-v1", 3, seed=[5, 5, 5], params={"gravity": gravities})
    whole.reset()
    whole.run_randomly(200)
    for place, gravity in enumerate(gravities):
        alone = velocirl.make_vec("CartPole-v1", 1, seed=[5], params={"gravity": gravity})
        alone.reset()
        alone.run_randomly(200)
        assert whole.copies.state[place] == alone.copies.state[0]


def test_without_draws_nothing_of_what_is_compiled_is_another(slope):
    assert with_draws(slope, {"pull": 3.0, "length": [1, 2]}) is slope
    held = dict(zip(lifecycle(slope).begin.__code__.co_freevars, lifecycle(slope).begin.__closure__, strict=True))
    assert held["reset"].cell_contents is reset
    assert velocirl.make_vec(slope, 2, device="python").copies.params.dtype == Params.dtype


def test_a_saved_state_a_pickle_and_a_copy_go_on_alike(slope):
    fleet = drawn(slope, ALL, copies=20)
    fleet.run_randomly(10)
    again = velocirl.make_vec(slope, 20, params={**ALL, "pull": uniform(0, 1)})  # until it is set
    again.set_state(fleet.get_state())
    others = [again, pickle.loads(pickle.dumps(fleet)), copy.deepcopy(fleet)]
    for one in (fleet, *others):
        one.run_randomly(100)
    for other in others:
        assert other.environment.drawn == tuple(ALL)
        np.testing.assert_array_equal(other.copies.params, fleet.copies.params)
        np.testing.assert_array_equal(other.copies.state, fleet.copies.state)


def test_checked_copies_draw_the_same(slope):
    plain, checked = (drawn(slope, ALL, copies=20, check=check) for check in (False, True))
    for fleet in (plain, checked):
        fleet.run_randomly(60)
    np.testing.assert_array_equal(plain.copies.params, checked.copies.params)


def test_numbers_replace_draws_at_once_and_for_good(slope):
    fleet = drawn(slope, ALL, copies=4)
    fleet.set_attr("pull", 2.5)
    np.testing.assert_array_equal(fleet.copies.params["pull"], 2.5)
    fleet.run_randomly(60)
    np.testing.assert_array_equal(fleet.copies.params["pull"], 2.5)
    fleet.set_params({"pull": uniform(6, 7)})
    np.testing.assert_array_equal(fleet.copies.params["pull"], 2.5)  # until their episodes end
    fleet.reset()
    assert ((fleet.copies.params["pull"] >= 6) & (fleet.copies.params["pull"] <= 7)).all()
    with pytest.raises(ValueError, match="Slope-v0: pull is drawn only where copies are made with params="):
        velocirl.make_vec(slope, 4, device="python").set_params({"pull": uniform(1, 2)})


def test_options_of_a_reset_stand_above_draws_for_that_moment():
    asked = {"gravity": uniform(5, 15), "high": uniform(0.1, 0.2)}
    fleet = velocirl.make_vec("CartPole-v1", 50, seed=1, params=asked, device="python")
    fleet.reset()
    before = fleet.copies.params.copy()
    seen, _ = fleet.reset(options={"low": -0.01, "high": 0.01})
    assert np.abs(seen).max() <= 0.01
    after = fleet.copies.params
    assert (after["gravity"] != before["gravity"]).all()  # drawn for the episode that began
    np.testing.assert_array_equal(after["low"], before["low"])
    fleet.reset()
    assert (fleet.copies.params["high"] >= 0.1).all()  # drawn again


def test_one_environment_draws_for_each_episode():
    env = velocirl.make("CartPole-v1", gravity=uniform(5, 15), high=0.1)
    drawn = []
    for seed in (1, None, None):
        env.reset(seed=seed)
        drawn.append(env.get_wrapper_attr("gravity"))
    assert len(set(drawn)) == 3
    env.reset(seed=1)
    assert env.get_wrapper_attr("gravity") == drawn[0]


def test_the_last_picture_of_an_episode_is_of_what_it_had(slope):
    env = velocirl.make(slope, render_mode="ansi", device="python", pull=uniform(5, 15))
    env.reset(seed=1)
    before, over = env.render(), False
    while not over:
        over = env.step(0)[2]
    assert env.render() == before  # though the next episode has drawn already
    env.reset()
    assert env.render() != before


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: uniform(15, 5), r"^uniform\(15, 5\) is upside down: write uniform\(5, 15\)$"),
        (lambda: log_uniform(0, 1), "a logarithm needs numbers above 0"),
        (lambda: uniform(0, np.inf), "inf is not a finite number"),
        (lambda: uniform("a", 1), "'a' is not a finite number"),
        (lambda: as_draw("unifrm(1, 2)"), r"must be a number, uniform\(low, high\) or log_uniform"),
        (lambda: as_draw("uniform(1)"), "must be a number"),
    ],
)
def test_what_is_no_range_is_refused(made, message):
    with pytest.raises(ValueError, match=message):
        made()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"pul": uniform(1, 2)}, "Slope-v0: Params has no field 'pul': did you mean 'pull'?"),
        ({"length": uniform(0, 5)}, "Params.length must be from 1 to 20, got 0"),
        ({"length": uniform(1.5, 5)}, "Params.length is a int32, which cannot hold 1.5"),
        ({"pull": uniform(0, 1e300)}, "Params.pull is a float32, which cannot hold 1e[+]300"),
        ({"flip": uniform(0, 2)}, "Params.flip is a bool, which cannot hold 2"),
        ({"far": uniform(0, 2**40)}, "more than 2,147,483,647 whole numbers"),
        ({"pair": uniform(0, 1)}, r"Params.pair is an array of \(2,\); only single numbers are drawn"),
        ({"pull": "uniform(2, 1)"}, r"Params.pull uniform\(2, 1\) is upside down"),
        ({"pull": [1.0, 2.0, 3.0]}, r"has shape \(3,\); give one value, or one for each of 4 copies"),
    ],
)
def test_what_does_not_fit_a_field_is_refused(slope, params, message):
    with pytest.raises(ValueError, match=message):
        velocirl.make_vec(slope, 4, params=params, device="python")


@pytest.mark.parametrize(
    "draw", [uniform(5, 15), uniform(-1.5, 1e-5), log_uniform(1e-12, 3e20), uniform(np.float32(1), 2)]
)
def test_a_draw_is_written_as_it_is_read(draw):
    assert as_draw(str(draw)) == draw
    assert isinstance(as_draw(str(draw)), Draw)


def test_bounds_of_a_hostile_state_are_refused_or_kept(slope):
    """A length beyond 20 would be an index beyond its array, whatever a file says of bounds."""
    fleet = drawn(slope, {**ALL, "pull": log_uniform(1, 2)}, copies=4)
    state = fleet.get_state()
    for name, value in (("_length_high", 21), ("_length_low", 0), ("_pull_low", np.nan)):
        wrong = {**state, "params": state["params"].copy()}
        wrong["params"][name] = value
        with pytest.raises(StateError, match=f"params.{name} is"):
            fleet.set_state(wrong)
    for name, value in (
        ("_length_low", 20),
        ("_length_high", 1),
        ("_length_log", 1),
        ("_pull_low", -1),
        ("_pull_high", 0),
    ):
        state["params"][name] = value  # upside down, and logarithms of what has none
    fleet.set_state(state)
    fleet.run_randomly(100)
    assert ((fleet.copies.params["length"] >= 1) & (fleet.copies.params["length"] <= 20)).all()
    assert np.isfinite(fleet.copies.params["pull"]).all()


def test_a_rehearsal_tries_both_ends_of_a_range():
    @record
    class Place:
        place: int32

    @record
    class Street:
        last: int32 = 1

    def begin(state, params, rng):
        state.place = params.last

    def walk(state, params, action, rng):
        return (1.0, 2.0, 3.0)[state.place], True

    def look(state, params, observation):
        observation[0] = state.place

    street = Environment(
        "Street-v0", state=Place, params=Street, observation=Box(-9, 9, (1,)), action=Discrete(2),
        reset=begin, step=walk, observe=look,
    )  # fmt: skip
    for low, high in ((0, 3), (-4, 0)):
        drawn = with_draws(street, {"last": uniform(low, high)})
        with pytest.raises(DefinitionError, match="Street-v0: step"):
            rehearse(drawn, drawn.params.rows(1, {"last": uniform(low, high)}))
    drawn = with_draws(street, {"last": uniform(0, 2)})
    rehearse(drawn, drawn.params.rows(1, {"last": uniform(0, 2)}))
