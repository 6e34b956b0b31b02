"""What every registered environment keeps, on every way of running it."""

import hashlib

import numpy as np
import pytest

import velocirl
from velocirl.engine import random, registry
from velocirl.engine.fleets.lifecycle import ARRAYS

COPIES = 256
COMPARED = (96, pytest.param(512, marks=pytest.mark.slow))  # a quarter where they see pictures, slow in plain Python
ROUNDS = 9  # copies * ROUNDS single steps are compared between plain Python and compiled code
BOUND = 1e-5  # relative plus absolute, of one step in single precision
OF_THE_END = ("final_observation", "final_state", "episode_return", "episode_length", "episode_costs")
ODD, FEW_ODD = 6151, 499  # copies that no number of threads or block divides evenly; of three threads, each has two

pytestmark = pytest.mark.parametrize(
    "name", [name for name in velocirl.list_envs() if registry.find(name).source.startswith(registry.BUILT_IN)]
)


def started(name, copies=COPIES, seed=1, **options):
    fleet = velocirl.make_vec(name, copies, seed=seed, **options)
    fleet.reset()
    return fleet


def sees_pictures(name):
    return registry.find(name).observe_row is not None


def choices(environment):
    """How many choices each discrete action has."""
    return np.reshape(getattr(environment.action, "nvec", environment.num_masked), -1)


def legal_actions(fleet, draws):
    """A random legal action for each copy."""
    if fleet.environment.legal is None:
        fleet.action_space.seed(int(draws.integers(2**31)))
        return fleet.action_space.sample()
    columns, first = [], 0
    for count in choices(fleet.environment):
        mask = fleet.copies.mask[:, first : first + count]
        columns.append(np.argmax(mask * draws.random(mask.shape), axis=1))
        first += count
    return np.array(columns).T.reshape(fleet.copies.action.shape)


def columns_of(copies):
    """The arrays of a fleet by name, records field by field; what tells of an ended episode only where one ended."""
    ended = np.asarray(copies.terminated | copies.truncated)
    for name in ARRAYS:
        plain = np.asarray(getattr(copies, name))
        # Costs of a fleet without constraints have no memory.
        rows = ended if name in OF_THE_END and len(plain) == len(ended) else slice(None)
        for field in plain.dtype.names or ():
            yield f"{name}.{field}", plain[field][rows]
        if plain.dtype.names is None:
            yield name, plain[rows]


def assert_same(ours, theirs, bound=0.0):
    for (name, one), (_, other) in zip(columns_of(ours), columns_of(theirs), strict=True):
        if one.dtype.kind == "f" and bound:
            np.testing.assert_allclose(one, other, rtol=bound, atol=bound, err_msg=name)
        else:
            np.testing.assert_array_equal(one, other, err_msg=name)


def trajectory(name, seed, steps=60):
    """A hash of what can be seen of a random run: actions, observations and rewards, not the generator."""
    fleet = started(name, 16, seed)
    digest = hashlib.sha256()
    for _ in range(steps):
        fleet.run_randomly(1)
        for array in (fleet.copies.action, fleet.copies.observation, fleet.copies.reward):
            digest.update(array.tobytes())
    return digest.hexdigest()


@pytest.mark.parametrize("copies", COMPARED)
def test_plain_python_and_compiled_code_take_the_same_step_from_the_same_state(name, copies):
    copies = copies // 4 if sees_pictures(name) else copies
    compiled, plain = started(name, copies, seed=2), started(name, copies, seed=3, device="python")
    draws = np.random.default_rng(4)
    for _ in range(ROUNDS):
        compiled.run_randomly(int(draws.integers(1, 60)))
        plain.set_state(compiled.get_state())
        actions = legal_actions(compiled, draws)
        compiled.step(actions)
        plain.step(actions)
        assert_same(plain.copies, compiled.copies, BOUND)


def test_plain_python_and_compiled_code_begin_alike(name):
    copies = 64 if sees_pictures(name) else 256
    compiled, plain = started(name, copies, seed=5), started(name, copies, seed=5, device="python")
    assert_same(plain.copies, compiled.copies, BOUND)


def test_a_single_environment_lives_through_what_copy_0_of_a_fleet_does(name):
    single, fleet = velocirl.make(name), velocirl.make_vec(name, 67, seed=6)
    draws = np.random.default_rng(7)
    seen, infos = single.reset(seed=6)
    all_seen, all_infos = fleet.reset()
    np.testing.assert_array_equal(seen, all_seen[0])
    for _ in range(300):
        actions = legal_actions(fleet, draws)
        seen, reward, terminated, truncated, infos = single.step(actions[0])
        all_seen, rewards, terminations, truncations, all_infos = fleet.step(actions)
        assert (reward, terminated, truncated) == (rewards[0], terminations[0], truncations[0])
        if terminated or truncated:
            np.testing.assert_array_equal(seen, all_infos["final_obs"][0])
            seen, infos = single.reset()
        np.testing.assert_array_equal(seen, all_seen[0])
        if "action_mask" in all_infos:
            np.testing.assert_array_equal(infos["action_mask"], all_infos["action_mask"][0])


def test_the_seed_decides_the_trajectory(name):
    assert trajectory(name, seed=8) == trajectory(name, seed=8)
    assert trajectory(name, seed=8) != trajectory(name, seed=9)


def test_copies_have_streams_of_their_own(name):
    fleet = started(name, 2000, seed=10)
    assert len(np.unique(fleet.copies.rng, axis=0)) == 2000
    drawn = not np.array_equal(fleet.copies.rng, random.streams(10, 2000))
    states = np.unique(np.asarray(fleet.copies.state))
    assert len(states) > 1 if drawn else len(states) == 1
    fleet.run_randomly(5)
    assert len(np.unique(fleet.copies.action, axis=0)) > 1
    assert len(np.unique(fleet.copies.rng, axis=0)) == 2000


def test_observations_stay_in_their_space_and_rewards_finite(name):
    fleet = started(name, seed=11)
    for _ in range(200):
        fleet.run_randomly(7)
        copies = fleet.copies
        assert fleet.observation_space.contains(fleet.seen(copies.observation))
        assert np.isfinite(copies.reward).all()
        for row in fleet.seen(copies.final_observation)[copies.terminated | copies.truncated]:
            assert fleet.single_observation_space.contains(row)


@pytest.mark.parametrize("threads", [1, 3])
def test_a_saved_state_continues_identically(name, threads):
    fleet, draws = started(name, 37, seed=12), np.random.default_rng(13)
    fleet.run_randomly(25)
    saved = fleet.get_state()
    other = velocirl.make_vec(name, 37, threads=threads)
    np.testing.assert_array_equal(other.set_state(saved), fleet.seen(fleet.copies.observation))
    for _ in range(40):
        actions = legal_actions(fleet, draws)
        fleet.step(actions)
        other.step(actions)
        assert_same(fleet.copies, other.copies)
    fleet.run_randomly(30)
    other.run_randomly(30)
    assert_same(fleet.copies, other.copies)


def test_the_number_of_threads_changes_nothing(name):
    copies = FEW_ODD if sees_pictures(name) else ODD
    fleets = [started(name, copies, seed=14, threads=threads) for threads in (1, 2, 3)]
    draws = np.random.default_rng(15)
    for _ in range(2):
        actions = legal_actions(fleets[0], draws)
        for fleet in fleets:
            fleet.step(actions)
            fleet.run_randomly(17)
        for fleet in fleets[1:]:
            assert_same(fleet.copies, fleets[0].copies)


def test_an_episode_is_truncated_exactly_at_its_time_limit(name):
    fleet, draws = started(name, seed=16), np.random.default_rng(17)
    limit = fleet.environment.max_steps
    for elapsed, truncated in ((10**6, False),) if limit is None else ((limit - 2, False), (limit - 1, True)):
        fleet.set_state({**fleet.get_state(), "elapsed": np.full(COPIES, elapsed, np.int32)})
        _, _, terminations, truncations, infos = fleet.step(legal_actions(fleet, draws))
        np.testing.assert_array_equal(truncations, truncated)
        ended = terminations | truncations
        np.testing.assert_array_equal(fleet.copies.elapsed, np.where(ended, 0, elapsed + 1))
        if ended.any():
            np.testing.assert_array_equal(infos["final_info"]["episode"]["l"][ended], elapsed + 1)


def test_no_random_episode_outlasts_its_time_limit(name):
    fleet = started(name, seed=18)
    limit = fleet.environment.max_steps or 2**31
    for _ in range(300):
        fleet.run_randomly(1)
        copies = fleet.copies
        assert copies.elapsed.max() < limit
        np.testing.assert_array_equal(copies.truncated, (copies.episode_length == limit) & (copies.elapsed == 0))


def test_the_mask_is_what_legal_says_and_random_actions_follow_it(name):
    fleet = started(name, seed=19)
    environment, copies = fleet.environment, fleet.copies
    for _ in range(30):
        before = copies.mask.copy()
        fleet.run_randomly(1)
        assert fleet.action_space.contains(copies.action.astype(fleet.action_space.dtype))
        if environment.legal is None:
            continue
        offsets = np.cumsum(choices(environment)) - choices(environment)
        chosen = np.take_along_axis(before, copies.action.reshape(COPIES, -1) + offsets, axis=1)
        np.testing.assert_array_equal(chosen, 1)
        expected = np.full_like(copies.mask, -1)
        for row in zip(copies.state.view(np.recarray), copies.params.view(np.recarray), expected, strict=True):
            environment.legal(*row)
        np.testing.assert_array_equal(copies.mask, expected)


def test_it_is_found_by_its_id(name):
    assert registry.find(name).id == name
