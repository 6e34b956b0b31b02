"""Environments and fleets that are copied, pickled and sent to other processes go on as they would have."""

import copy
import pickle
import warnings

import cloudpickle
import gymnasium
import numpy as np
import pytest
from choosing import every_pair
from gymnasium.vector import AsyncVectorEnv, AutoresetMode

import velocirl
from velocirl.engine import registry
from velocirl.engine.environment import Environment
from velocirl.engine.records import NO_PARAMS
from velocirl.vector.host.vector_env import HostVectorEnv
from velocirl.vector.host.workers import WorkerVectorEnv

WAYS = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda one: pickle.loads(pickle.dumps(one)),
    "cloudpickle": lambda one: cloudpickle.loads(cloudpickle.dumps(one)),
}
every_way = pytest.mark.parametrize("carry", WAYS.values(), ids=WAYS)
NAMES = ["CartPole-v1", "FrozenLake-v1", "Pendulum-v1", "TicTacToe-v1"]  # float, discrete, continuous, masked


def what_follows(envs, steps=40, seed=7):
    """All that a vector gives in some steps; the actions are drawn by the seed."""
    envs.action_space.seed(seed)
    given = []
    for _ in range(steps):
        *arrays, infos = envs.step(envs.action_space.sample())
        given += arrays
        given += [infos[name] for name in ("final_obs", "action_mask") if name in infos]
        ended = arrays[2] | arrays[3]
        if envs.metadata["autoreset_mode"] == AutoresetMode.DISABLED and ended.any():
            given.append(envs.reset(options={"reset_mask": ended})[0])
    return given


def assert_same(ones, others):
    assert len(ones) == len(others)
    for one, other in zip(ones, others, strict=True):
        np.testing.assert_array_equal(one, other)


@every_way
@pytest.mark.parametrize("device", ["cpu", "python"])
@pytest.mark.parametrize("mode", AutoresetMode, ids=lambda mode: mode.name)
@pytest.mark.parametrize("name", NAMES)
def test_a_carried_fleet_goes_on_as_the_original_and_apart_from_it(name, mode, device, carry):
    envs = velocirl.make_vec(name, 3, seed=1, device=device, autoreset_mode=mode, max_episode_steps=12)
    envs.reset()
    what_follows(envs, 12, seed=2)  # where no copy ended before, all wait for their next episode now
    twin = carry(envs)
    expected = what_follows(envs)
    assert_same(what_follows(twin), expected)
    assert twin.num_envs == 3
    assert twin.autoreset_mode is mode
    assert twin.unwrapped.environment is envs.unwrapped.environment


@every_way
def test_a_fleet_that_has_not_begun_keeps_the_seed_of_its_first_reset(carry):
    envs = velocirl.make_vec("CartPole-v1", 3, seed=4, params={"gravity": np.array([1.0, 2.0, 3.0])})
    twin = carry(envs)
    np.testing.assert_array_equal(twin.reset()[0], envs.reset()[0])
    np.testing.assert_array_equal(twin.copies.params, envs.copies.params)


@pytest.mark.parametrize(("name", "device", "way"), every_pair(NAMES, ["cpu", "python"], WAYS))
def test_a_carried_environment_goes_on_as_the_original_and_apart_from_it(name, device, way):
    carry, env = WAYS[way], velocirl.make(name, device=device)
    env.reset(seed=1)
    env.action_space.seed(2)
    while True:
        twin = carry(env)
        action = env.action_space.sample()
        assert np.array_equal(twin.action_space.sample(), action)  # its spaces go on, too
        ours, theirs = env.step(action), twin.step(action)
        np.testing.assert_array_equal(theirs[0], ours[0])
        assert theirs[1:4] == ours[1:4]
        if ours[2] or ours[3]:
            break
    twin = carry(env)  # at the end, where the next episode is ready and the last state is still shown
    np.testing.assert_array_equal(twin.copies.final_state, env.copies.final_state)
    np.testing.assert_array_equal(twin.reset()[0], env.reset()[0])


@every_way
def test_gymnasiums_wrappers_are_carried_with_their_clock(carry):
    env = gymnasium.make("velocirl/Pendulum-v1", max_episode_steps=5)
    env.reset(seed=1)
    env.step([0.0])
    env.step([0.0])
    twin = carry(env)
    for one in (env, twin):
        assert [one.step([0.0])[3] for _ in range(3)] == [False, False, True]
    assert twin.spec == env.spec


def test_a_window_stays_where_it_is(monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    pytest.importorskip("pygame")
    env = velocirl.make("CartPole-v1", render_mode="human")
    env.reset(seed=1)
    twin = pickle.loads(pickle.dumps(env))
    assert twin.render_mode == "human"
    assert twin.renderer is not env.renderer
    env.close()


def test_drawing_from_one_environments_spaces_changes_no_other():
    one, other = velocirl.make("CartPole-v1"), velocirl.make("CartPole-v1")
    assert one.action_space is not other.action_space
    registry.find("CartPole-v1").action.seed(0)
    fleets = [velocirl.make_vec("CartPole-v1", 64) for _ in range(2)]
    draws = [fleet.action_space.sample() for fleet in fleets]
    assert not np.array_equal(*draws)


@every_way
def test_a_built_in_definition_is_found_again_by_its_id(carry):
    environment = registry.find("CartPole-v1")
    assert carry(environment) is environment
    assert len(pickle.dumps(environment)) < 200


def test_a_definition_of_ones_own_is_carried_by_its_parts(define):
    """Nothing is said of a definition that comes back, and the id goes on to mean what it meant."""
    environment = define(max_steps=9, options=())
    assert copy.deepcopy(environment) is environment
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        twin = pickle.loads(pickle.dumps(environment))
    assert isinstance(twin, Environment)
    assert twin.step is environment.step
    assert (twin.id, twin.max_steps, twin.observation) == (environment.id, 9, environment.observation)
    assert twin.params is NO_PARAMS
    assert registry.find(environment.id) is environment


def test_ones_own_definition_under_a_built_in_id_stays_ones_own(define):
    built_in = registry.find("CartPole-v1")
    with pytest.warns(UserWarning, match="CartPole-v1 now means"):
        mine = define(id="CartPole-v1")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pickle.loads(pickle.dumps(mine)).step is mine.step
        assert pickle.loads(pickle.dumps(built_in)).step is built_in.step
    assert registry.find("CartPole-v1") is mine


SCRIPT = """
import sys, warnings
import cloudpickle, numpy as np, velocirl
from velocirl import Box, Discrete, Environment, int32, float32, random, record

if sys.argv[1] == "send":
    @record
    class Walk:
        place: int32
        goal: float32

    @record
    class Params:
        stride: int32 = 2

    def reset(walk, params, rng):
        walk.place = 0
        walk.goal = random.uniform(rng, 3, 9)

    def step(walk, params, action, rng):
        walk.place += int32(params.stride * action)
        return float32(walk.place), walk.place > walk.goal

    def observe(walk, params, observation):
        observation[0] = walk.place - walk.goal

    Environment("Walk-v0", state=Walk, params=Params, observation=Box(-99, 99, (1,)), action=Discrete(2),
                max_steps=50, reset=reset, step=step, observe=observe)
    envs = velocirl.make_vec("Walk-v0", 3, seed=1, params={"stride": 1})
    envs.reset()
    envs.step(np.ones(3, int))
    with open(sys.argv[2], "wb") as file:
        file.write(cloudpickle.dumps((envs, velocirl.make("Walk-v0"))))
else:
    with open(sys.argv[2], "rb") as file:
        envs, env = cloudpickle.load(file)
    assert "Walk-v0" in velocirl.list_envs()  # known here, too
    assert velocirl.make("Walk-v0").reset(seed=3)[0] == env.reset(seed=3)[0]
for _ in range(6):
    seen, *_ = envs.step(np.ones(3, int))
print(seen.ravel().tolist())
"""


def test_what_a_script_defines_is_carried_to_another_process(run_script, tmp_path):
    script = tmp_path / "walk.py"
    script.write_text(SCRIPT)
    sent = run_script(script, "send", str(tmp_path / "pickle"))
    assert run_script(script, "receive", str(tmp_path / "pickle")) == sent


def test_gymnasiums_processes_take_an_environment_that_was_made_here():
    env = velocirl.make("CartPole-v1", gravity=5.0)
    env.reset(seed=3)
    vector = AsyncVectorEnv([lambda: env] * 2, context="spawn")
    try:
        seen, _ = vector.reset(seed=[3, 4])
        np.testing.assert_array_equal(seen[0], env.reset(seed=3)[0])
        assert vector.get_attr("gravity") == (5.0, 5.0)
    finally:
        vector.close()


@every_way
def test_a_fleet_of_gymnasiums_is_carried_where_its_environments_can_be(carry):
    envs = HostVectorEnv("CartPole-v1", 3, seed=1)
    envs.reset()
    what_follows(envs, 12, seed=2)
    twin = carry(envs)
    assert_same(what_follows(twin), what_follows(envs))


@pytest.mark.parametrize("carry", [copy.deepcopy, pickle.dumps], ids=["deepcopy", "pickle"])
def test_worker_processes_are_not_carried_and_it_is_said_what_to_do(carry):
    envs = WorkerVectorEnv("CartPole-v1", 2, workers=1)
    try:
        with pytest.raises(TypeError, match=r"CartPole-v1 runs in worker processes.*leave workers= out"):
            carry(envs)
    finally:
        envs.close()


@pytest.mark.cuda
@every_way
def test_a_fleet_on_a_gpu_is_carried(carry):
    envs = velocirl.make_vec("CartPole-v1", 3, seed=1, device="cuda", max_episode_steps=12)
    envs.reset()
    for _ in range(12):
        envs.step(np.ones(3, int))
    twin = carry(envs)
    for _ in range(20):
        ours, theirs = envs.step(np.ones(3, int)), twin.step(np.ones(3, int))
        for one, other in zip(ours[:4], theirs[:4], strict=True):
            np.testing.assert_array_equal(one.copy_to_host(), other.copy_to_host())
