"""Gymnasium environments as a vector in this process, compared with Gymnasium's own."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.error import ClosedEnvironmentError
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from velocirl import DefinitionError
from velocirl.vector.host.interface import copy_seeds
from velocirl.vector.host.vector_env import HostVectorEnv


class Counter(gymnasium.Env):
    """The observation is (steps since the reset, number of the episode); the n-th episode lasts n steps.

    Odd episodes terminate, even ones are truncated, every sixth is both. The observation is always the same array.
    """

    observation_space = spaces.Box(0, 1000, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self.observation = np.zeros(2, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation += (-self.observation[0], 1)
        return self.observation, {"options": options}

    def step(self, action):
        self.observation[0] += 1
        steps, episode = self.observation
        ended = bool(steps == episode)
        terminated = ended and (episode % 2 == 1 or episode % 6 == 0)
        return self.observation, float(steps), bool(terminated), ended and bool(episode % 2 == 0), {}

    def render(self):
        return np.full((2, 2, 3), self.observation[0], np.uint8)


class Rover(gymnasium.Env):
    """Observations and actions are nested; the random stream decides when an episode ends."""

    observation_space = spaces.Dict(
        position=spaces.Box(-1000, 1000, (2,), np.float64),
        parts=spaces.Tuple([spaces.Discrete(7, start=-3), spaces.MultiBinary(3)]),
    )
    action_space = spaces.Dict(
        move=spaces.Box(-1, 1, (2,), np.float32), gears=spaces.Tuple([spaces.Discrete(3), spaces.MultiDiscrete([2, 4])])
    )

    def observe(self):
        part = int(self.np_random.integers(-3, 4))
        return {"position": self.position, "parts": (part, self.np_random.integers(0, 2, 3).astype(np.int8))}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position = self.np_random.uniform(-1, 1, 2)
        return self.observe(), {"start": self.position, "options": str(options)}

    def step(self, action):
        self.position = self.position + action["move"] * (1 + action["gears"][0])
        terminated, truncated = self.np_random.random(2) < 0.1
        info = {
            "gears": action["gears"][1],
            "nested": {"name": "rover", "distance": float(np.abs(self.position).sum())},
        }
        return self.observe(), float(action["gears"][1].sum()), bool(terminated), bool(truncated), info


def leaves(nested):
    """All arrays in nested dicts and tuples, with their keys."""
    if isinstance(nested, (dict, tuple)):
        parts = sorted(nested.items()) if isinstance(nested, dict) else enumerate(nested)
        return [((key, *rest), leaf) for key, part in parts for rest, leaf in leaves(part)]
    return [((), np.asarray(nested))]


def same(left, right):
    left, right = leaves(left), leaves(right)
    return [key for key, _ in left] == [key for key, _ in right] and all(
        one.dtype == other.dtype and np.array_equal(one, other)
        for (_, one), (_, other) in zip(left, right, strict=True)
    )


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("environment", ["CartPole-v1", Rover])
def test_equals_gymnasium(environment, mode):
    seeds = [11, 7, 300, 2**40]
    make = (lambda: gymnasium.make(environment)) if isinstance(environment, str) else environment
    theirs = SyncVectorEnv([make] * 4, autoreset_mode=mode)
    ours = HostVectorEnv(environment, 4, autoreset_mode=mode, infos=True)
    assert ours.metadata["autoreset_mode"] == mode
    assert (ours.observation_space, ours.action_space) == (theirs.observation_space, theirs.action_space)
    assert same(ours.reset(seed=seeds), theirs.reset(seed=seeds))
    theirs.action_space.seed(5)
    episodes = 0
    for _ in range(150):
        actions = theirs.action_space.sample()
        *expected, expected_infos = theirs.step(actions)
        *results, infos = ours.step(actions)
        assert same(tuple(results), tuple(expected))
        ended = expected[2] | expected[3]
        episodes += ended.sum()
        assert ("final_obs" in infos) == (mode == AutoresetMode.SAME_STEP and ended.any())
        if "final_obs" in infos:
            final, expected_final = infos.pop("final_obs"), expected_infos.pop("final_obs")
            for copy in np.flatnonzero(ended):
                assert all(np.array_equal(*pair) for pair in zip_leaves(final[copy], expected_final[copy]))
        assert same(infos, expected_infos)  # theirs alone, which leaves "episode" to Gymnasium's own wrapper
        if mode == AutoresetMode.DISABLED and ended.any():
            results = ours.reset(options={"reset_mask": ended, "other": 1})
            assert same(results, theirs.reset(options={"reset_mask": ended, "other": 1}))
    assert episodes > 10
    ours.close()
    theirs.close()


def zip_leaves(left, right):
    return [(one, other) for (_, one), (_, other) in zip(leaves(left), leaves(right), strict=True)]


def test_every_transition_of_the_counter_is_consistent():
    vector = HostVectorEnv(Counter, 3)
    previous, infos = vector.reset()
    assert infos == {}
    kinds = set()
    for _ in range(60):
        observations, rewards, terminated, truncated, infos = vector.step([0, 1, 0])
        ended = terminated | truncated
        for copy in range(3):
            kinds.add((bool(terminated[copy]), bool(truncated[copy])))
            steps, episode = previous[copy]
            assert rewards[copy] == steps + 1
            assert ended[copy] == (steps + 1 == episode)
            if ended[copy]:
                assert observations[copy].tolist() == [0, episode + 1]
                assert infos["final_obs"][copy].tolist() == [steps + 1, episode]
                assert infos["final_info"]["episode"]["l"][copy] == episode
                assert infos["final_info"]["episode"]["r"][copy] == episode * (episode + 1) / 2
            else:
                assert observations[copy].tolist() == [steps + 1, episode]
        if ended.any():
            assert np.array_equal(infos["_final_obs"], ended)
            assert np.array_equal(infos["_final_info"], ended)
            assert np.array_equal(infos["final_info"]["_episode"], ended)
        else:
            assert infos == {}
        previous = observations
    assert kinds == {(False, False), (True, False), (False, True), (True, True)}
    vector.close()


def test_next_step_autoreset_ignores_the_action_and_gives_no_reward():
    vector = HostVectorEnv(Counter, 1, autoreset_mode=AutoresetMode.NEXT_STEP)
    vector.reset()
    rows = []
    for _ in range(5):
        observations, rewards, terminated, truncated, infos = vector.step([0])
        statistics = infos.get("final_info", {"episode": {"r": [None], "l": [None]}})["episode"]
        rows.append((*observations[0], rewards[0], terminated[0], truncated[0], statistics["r"][0], statistics["l"][0]))
    assert rows == [
        (1, 1, 1, True, False, 1, 1),
        (0, 2, 0, False, False, None, None),
        (1, 2, 1, False, False, None, None),
        (2, 2, 2, False, True, 3, 2),
        (0, 3, 0, False, False, None, None),
    ]
    vector.close()


def test_disabled_autoreset_needs_a_reset_of_the_finished_copies_only():
    vector = HostVectorEnv(Counter, 2, autoreset_mode=AutoresetMode.DISABLED)
    vector.reset()
    vector.step([0, 0])
    vector.reset(options={"reset_mask": np.array([True, False])})
    with pytest.raises(RuntimeError, match=r"copies \[1\] are over.*reset_mask"):
        vector.step([0, 0])
    observations, _ = vector.reset(options={"reset_mask": np.array([False, True])})
    assert observations.tolist() == [[0, 2], [0, 2]]
    assert vector.step([0, 0])[0].tolist() == [[1, 2], [1, 2]]
    vector.close()


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_reset_mask_starts_new_episodes_in_the_midst_of_others(mode):
    vector = HostVectorEnv(Counter, 2, autoreset_mode=mode)
    vector.reset()
    for _ in range(5 if mode == AutoresetMode.NEXT_STEP else 4):
        vector.step([0, 0])
    observations, _ = vector.reset(options={"reset_mask": np.array([False, True])})
    steps = 1 if mode == AutoresetMode.SAME_STEP else 0
    assert observations.tolist() == [[steps, 3], [0, 4]]
    vector.close()


def test_mixed_seeds_are_distinct_and_independent_of_the_number_of_copies():
    seeds = copy_seeds(3, 1000)
    assert len(set(seeds)) == 1000
    assert copy_seeds(3, 10) == seeds[:10]
    assert not set(seeds) & set(copy_seeds(4, 1000))


def test_a_seed_is_that_of_the_first_copy_as_in_gymnasium():
    vector = HostVectorEnv("CartPole-v1", 3, seed=3)
    first, _ = vector.reset()
    assert vector.np_random_seed == (3, 4, 5)
    single = gymnasium.make("CartPole-v1")
    assert np.array_equal(first, [single.reset(seed=seed)[0] for seed in (3, 4, 5)])
    second, _ = vector.reset()
    assert not np.array_equal(first, second)  # None goes on with the stream
    assert np.array_equal(vector.reset(seed=3)[0], first)
    assert np.array_equal(vector.reset(seed=[5, None, 6])[0][[0, 2]], [single.reset(seed=s)[0] for s in (5, 6)])
    vector.close()
    single.close()


class Masked(gymnasium.Env):
    """The legal actions are those whose bit is set in the observation; in state 7 it does not say so."""

    observation_space = spaces.Discrete(8)
    action_space = spaces.Discrete(3)

    def observe(self):
        state = int(self.np_random.integers(1, 8))
        return state, {} if state == 7 else {"action_mask": np.array([state & 1, state & 2, state & 4]) > 0}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observe()

    def step(self, action):
        state, info = self.observe()
        return state, 0.0, state == 3, state == 5, info


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_action_masks_are_always_those_of_the_observations(mode):
    vector = HostVectorEnv(Masked, 4, seed=1, autoreset_mode=mode)
    observations, infos = vector.reset()
    for _ in range(50):
        assert infos["action_mask"].dtype == np.int8
        assert np.array_equal(infos["action_mask"], [[state >> bit & 1 for bit in range(3)] for state in observations])
        observations, _, terminated, truncated, infos = vector.step([0] * 4)
        expected = {"action_mask"} | ({"final_info", "_final_info"} if (terminated | truncated).any() else set())
        assert set(infos) - {"final_obs", "_final_obs"} == expected
    vector.close()


@pytest.mark.parametrize("copy", [True, False])
def test_copy_decides_whether_results_are_overwritten(copy):
    vector = HostVectorEnv(Counter, 2, copy=copy)
    vector.reset()
    observations, rewards, terminated, _, infos = vector.step([0, 0])
    before = [array.copy() for array in (observations, rewards, terminated, infos["final_obs"])]
    for _ in range(2):
        vector.step([0, 0])
    after = (observations, rewards, terminated, infos["final_obs"])
    assert [np.array_equal(*pair) for pair in zip(before, after, strict=True)] == [copy] * 4
    vector.close()


def test_render_call_and_close():
    vector = HostVectorEnv(Counter, 2, render_mode="rgb_array")
    vector.reset()
    vector.step([0, 0])
    vector.step([0, 0])
    assert vector.render_mode == "rgb_array"
    assert [frame.tolist() for frame in vector.render()] == [np.ones((2, 2, 3)).tolist()] * 2
    assert [array.tolist() for array in vector.get_attr("observation")] == [[1, 2], [1, 2]]
    vector.close()
    vector.close()
    with pytest.raises(ClosedEnvironmentError, match="Counter is closed"):
        vector.step([0, 0])


def test_attributes_are_those_of_the_copies_as_in_gymnasium():
    theirs = SyncVectorEnv([Counter] * 2)
    ours = HostVectorEnv(Counter, 2)
    for vector in (ours, theirs):
        vector.reset(seed=7)
        assert vector.np_random_seed == (7, 8)
        assert [generator.random() for generator in vector.np_random] == [
            np.random.default_rng(seed).random() for seed in (7, 8)
        ]
        vector.set_attr("note", "alike")
        assert vector.get_attr("note") == ("alike", "alike")
        vector.set_attr("note", [1, 2])
        assert vector.call("note") == (1, 2)
        with pytest.raises(ValueError, match=r"3.? values"):
            vector.set_attr("note", (1, 2, 3))
        with pytest.raises(AttributeError):
            vector.get_attr("nothing")
        vector.close()


def test_copies_with_different_spaces_are_refused_as_in_gymnasium():
    made = iter([Counter, Masked])
    with pytest.raises(RuntimeError, match="the copies have different spaces"):
        HostVectorEnv(lambda: next(made)(), 2)


class Wordy(Counter):
    observation_space = spaces.Dict(a=spaces.Box(0, 1), b=spaces.Tuple([spaces.Text(5)]))


class Growing(Counter):
    action_space = spaces.Sequence(spaces.Discrete(2))


class Linked(Counter):
    observation_space = spaces.Graph(spaces.Box(0, 1), None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_envs": 0}, "num_envs must be"),
        ({"num_envs": 2.5}, "num_envs must be"),
        ({"environment": "CartPol-v1"}, "CartPole-v1"),
        ({"environment": "CartPole"}, "CartPole-v1"),
        ({"environment": 3}, "expected a Gymnasium id"),
        ({"autoreset_mode": "sometimes"}, "sometimes"),
        ({"seed": -1}, "seed must be a whole number from 0"),
        ({"seed": 2**64}, "seed must be a whole number from 0"),
        ({"seed": [1, 2, 3]}, "3 seeds for num_envs=2"),
        ({"environment": Wordy}, r"observation space\['b'\]\[0\] is Text.* gymnasium.wrappers.TransformObservation"),
        ({"environment": Growing}, r"action space is Sequence.* gymnasium.wrappers.TransformAction"),
        ({"environment": Linked}, r"observation space is Graph.* gymnasium.wrappers.TransformObservation"),
    ],
)
def test_refuses_impossible_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        HostVectorEnv(**{"environment": Counter, "num_envs": 2, **arguments})


@pytest.mark.parametrize(
    ("environment", "actions", "message"),
    [
        ("CartPole-v1", [0, 2], "copy 1 is 2"),
        ("CartPole-v1", [0, -1], "copy 1 is -1"),
        ("CartPole-v1", [0.0, 1.0], "type float64"),
        ("CartPole-v1", [0, 1, 1], r"shape \(3,\)"),
        ("Pendulum-v1", [[0.0], [np.nan]], "copy 1 is"),
        ("Pendulum-v1", [0.0, 1.0], r"shape \(2,\)"),
        (Rover, {"move": np.zeros((2, 2)), "gears": ([0, 3], [[0, 0], [0, 0]])}, r"actions\['gears'\]\[0\] of copy 1"),
    ],
)
def test_refuses_impossible_actions_by_name(environment, actions, message):
    vector = HostVectorEnv(environment, 2)
    vector.reset()
    with pytest.raises(ValueError, match=message):
        vector.step(actions)
    vector.close()


def test_reset_comes_first_and_its_mask_is_checked():
    vector = HostVectorEnv(Counter, 2)
    with pytest.raises(RuntimeError, match=r"call reset\(\) before step"):
        vector.step([0, 0])
    with pytest.raises(ValueError, match="first reset must reset every copy"):
        vector.reset(options={"reset_mask": np.array([True, False])})
    vector.reset()
    for mask, error in (
        ([True, False], TypeError),
        (np.array([1, 0]), TypeError),
        (np.array([True]), ValueError),
        (np.array([False, False]), ValueError),
    ):
        with pytest.raises(error, match="reset_mask"):
            vector.reset(options={"reset_mask": mask})
    vector.close()


class Broken(Counter):
    def step(self, action):
        if action == 1:
            raise OSError("the motor is stuck")
        return super().step(action)


def test_an_exception_names_the_copy_and_asks_for_a_reset():
    vector = HostVectorEnv(Broken, 3)
    vector.reset()
    with pytest.raises(OSError, match="the motor is stuck") as raised:
        vector.step([0, 0, 1])
    assert raised.value.__notes__ == ["raised by copy 2 of Broken"]
    with pytest.raises(RuntimeError, match=r"call reset\(\)"):
        vector.step([0, 0, 0])
    vector.reset()
    vector.step([0, 0, 0])
    vector.close()


class WrongShape(Counter):
    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}


def test_an_observation_of_another_shape_is_not_broadcast():
    vector = HostVectorEnv(WrongShape, 1)
    with pytest.raises(DefinitionError, match=r"observation of shape \(1,\); its space has the shape \(2,\)"):
        vector.reset()
    vector.close()


def test_advance_is_a_step_without_ceremony():
    stepped, advanced = (HostVectorEnv("CartPole-v1", 3, seed=5) for _ in range(2))
    with pytest.raises(RuntimeError, match=r"call reset\(\) before advance\(\)"):
        advanced.advance()
    stepped.reset()
    advanced.reset()
    generator = np.random.default_rng(0)
    for _ in range(60):
        advanced.arrays.actions[:] = actions = generator.integers(0, 2, 3)
        advanced.advance()
        observations, rewards, terminated, truncated, _ = stepped.step(actions)
        np.testing.assert_array_equal(advanced.arrays.observations, observations)
        np.testing.assert_array_equal(advanced.arrays.rewards, rewards)
        np.testing.assert_array_equal(advanced.arrays.terminated | advanced.arrays.truncated, terminated | truncated)
