"""Every wrapper of `gymnasium.wrappers.vector` around our fleets gives what it gives around Gymnasium's own vector."""

import importlib.util

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import vector as wrappers

import velocirl
from velocirl.vector.host.vector_env import HostVectorEnv

COPIES = 3
SEEDS = [5, 6, 7]


class Camera(gymnasium.Env):
    """What is seen is a picture and a number, both drawn at random; an episode lasts for six steps."""

    observation_space = spaces.Dict(picture=spaces.Box(0, 255, (8, 8, 3), np.uint8), number=spaces.Discrete(9))
    action_space = spaces.Box(-2, 2, (2,), np.float32)

    def __init__(self, only=None):
        self.only = only
        if only:
            self.observation_space = Camera.observation_space[only]

    def observe(self):
        seen = {"picture": self.np_random.integers(0, 256, (8, 8, 3), np.uint8), "number": self.np_random.integers(9)}
        return seen[self.only] if self.only else seen

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observe(), {}

    def step(self, action):
        self.steps += 1
        return self.observe(), float(np.sum(action)), self.steps == 6, False, {}


def native(name):
    return (
        lambda mode, **more: velocirl.make_vec(name, COPIES, autoreset_mode=mode, **more),
        lambda **more: velocirl.make(name, **more),
    )


def of_gymnasium(name):
    return (
        lambda mode, **more: velocirl.make_vec(f"gym:{name}", COPIES, autoreset_mode=mode, **more),
        lambda **more: gymnasium.make(name, **more),
    )


def camera(only=None):
    return (
        lambda mode, **more: HostVectorEnv(Camera, COPIES, autoreset_mode=mode, only=only, **more),
        lambda **more: Camera(only=only, **more),
    )


CARTPOLE = {"native": native("CartPole-v1"), "gym": of_gymnasium("CartPole-v1")}
PENDULUM = {"native": native("Pendulum-v1"), "gym": of_gymnasium("Pendulum-v1")}
ONE = np.float32(1)
WIDE = spaces.Box(-9, 9, (3,), np.float32)

# By wrapper: what it is put around, and its arguments. The observations of a native environment are one array.
CASES = {
    "ClipAction": (PENDULUM, {}),
    "ClipReward": (PENDULUM, {"min_reward": -1.0, "max_reward": -0.5}),
    "DictInfoToList": (CARTPOLE, {}),
    "DtypeObservation": (CARTPOLE, {"dtype": np.float64}),
    "FilterObservation": ({"gym": camera()}, {"filter_keys": ["number"]}),
    "FlattenObservation": ({"native": native("CatchPixels-v0"), "gym": camera()}, {}),
    "GrayscaleObservation": ({"gym": camera("picture")}, {}),
    "NormalizeObservation": (CARTPOLE, {}),
    "NormalizeReward": (PENDULUM, {}),
    "RecordEpisodeStatistics": (CARTPOLE, {}),
    "RescaleAction": (PENDULUM, {"min_action": -ONE, "max_action": ONE}),
    "RescaleObservation": (PENDULUM, {"min_obs": -ONE, "max_obs": ONE}),
    "ReshapeObservation": (CARTPOLE, {"shape": (2, 2)}),
    "ResizeObservation": ({"gym": camera("picture")}, {"shape": (4, 4)}),
    "TransformAction": (PENDULUM, {"func": lambda actions: 0.5 * actions}),
    "TransformObservation": (PENDULUM, {"func": lambda seen: seen / 2, "single_observation_space": WIDE}),
    "TransformReward": (CARTPOLE, {"func": lambda rewards: 2 * rewards}),
    "VectorizeTransformAction": (PENDULUM, {"wrapper": gymnasium.wrappers.ClipAction}),
    "VectorizeTransformObservation": (CARTPOLE, {"wrapper": gymnasium.wrappers.FlattenObservation}),
    "VectorizeTransformReward": (
        PENDULUM,
        {"wrapper": gymnasium.wrappers.TransformReward, "func": lambda reward: reward + 1},
    ),
}
ELSEWHERE = {"ArrayConversion", "HumanRendering", "NumpyToTorch", "RecordVideo"}  # in tests of their own, below
FOR_JAX = {"JaxToNumpy", "JaxToTorch"}  # around environments whose arrays are JAX's


def leaves(value):
    """All arrays in nested dicts, tuples and lists."""
    if isinstance(value, dict):
        return [leaf for key in sorted(value) for leaf in leaves(value[key])]
    return [leaf for part in value for leaf in leaves(part)] if isinstance(value, (tuple, list)) else [value]


def roll(envs, steps=60):
    envs.action_space.seed(1)
    return leaves([envs.reset(seed=SEEDS)[0], *(envs.step(envs.action_space.sample())[:4] for _ in range(steps))])


def test_there_is_a_case_for_every_wrapper():
    assert set(wrappers.__all__) == CASES.keys() | ELSEWHERE | FOR_JAX


@pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for name, (kinds, _) in CASES.items() for kind in kinds], ids=lambda part: part
)
def test_a_wrapper_gives_what_it_gives_around_gymnasiums_vector(name, kind):
    if name == "ResizeObservation":
        pytest.importorskip("cv2", reason="needs opencv: pip install 'velocirl[clients]'")
    kinds, arguments = CASES[name]
    fleet, single = kinds[kind]
    wrap = getattr(wrappers, name)
    ours = wrap(fleet(AutoresetMode.NEXT_STEP), **arguments)
    theirs = wrap(SyncVectorEnv([single] * COPIES, autoreset_mode=AutoresetMode.NEXT_STEP), **arguments)
    for mine, expected in zip(roll(ours), roll(theirs), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-5, atol=1e-6)
    assert ours.observation_space == theirs.observation_space
    ours.close()
    theirs.close()


@pytest.mark.parametrize("mode", AutoresetMode, ids=lambda mode: mode.name)
@pytest.mark.parametrize("kind", CARTPOLE)
def test_statistics_are_those_that_the_fleet_tells(kind, mode):
    envs = wrappers.RecordEpisodeStatistics(CARTPOLE[kind][0](mode))
    envs.reset(seed=SEEDS)
    envs.action_space.seed(1)
    told = 0
    for _ in range(90):
        _, _, terminated, truncated, infos = envs.step(envs.action_space.sample())
        ended = terminated | truncated
        if ended.any():
            told += ended.sum()
            ours = infos["final_info"]
            np.testing.assert_array_equal(ours["_episode"], infos["_episode"])
            for name in ("r", "l"):
                np.testing.assert_array_equal(ours["episode"][name][ended], infos["episode"][name][ended])
            if mode == AutoresetMode.DISABLED:
                envs.reset(options={"reset_mask": ended})
    assert told > COPIES
    assert len(envs.return_queue) == told
    envs.close()


@pytest.mark.parametrize("kind", CARTPOLE)
def test_infos_become_a_list_with_an_episode_where_one_ended(kind):
    envs = wrappers.DictInfoToList(CARTPOLE[kind][0](AutoresetMode.SAME_STEP))
    envs.reset(seed=SEEDS)
    envs.action_space.seed(1)
    for _ in range(40):
        _, _, terminated, _, infos = envs.step(envs.action_space.sample())
        for info, ended in zip(infos, terminated, strict=True):
            assert set(info) == ({"final_obs", "final_info"} if ended else set())
            if ended:
                assert info["final_info"]["episode"]["r"] == info["final_info"]["episode"]["l"]
    envs.close()


@pytest.mark.parametrize("name", ["ArrayConversion", "NumpyToTorch"])
@pytest.mark.parametrize("kind", CARTPOLE)
def test_arrays_become_torchs(kind, name):
    pytest.importorskip("array_api_compat", reason="needs array-api-compat: pip install 'velocirl[clients]'")
    torch = pytest.importorskip("torch")
    libraries = {"env_xp": np, "target_xp": torch} if name == "ArrayConversion" else {}
    envs = getattr(wrappers, name)(CARTPOLE[kind][0](AutoresetMode.SAME_STEP), **libraries)
    seen, _ = envs.reset(seed=SEEDS)
    plain = CARTPOLE[kind][0](AutoresetMode.SAME_STEP)
    np.testing.assert_array_equal(seen.numpy(), plain.reset(seed=SEEDS)[0])
    for _ in range(40):  # past the ends of episodes, whose infos are converted too
        results = envs.step(torch.ones(COPIES, dtype=torch.int64))
        expected = plain.step(np.ones(COPIES, int))
        for mine, one in zip(results[:4], expected[:4], strict=True):
            np.testing.assert_array_equal(mine.numpy(), one)
        assert set(results[4]) == set(expected[4])
    envs.close()


@pytest.mark.parametrize("kind", CARTPOLE)
def test_a_video_is_recorded(kind, tmp_path):
    if importlib.util.find_spec("moviepy") is None:
        pytest.skip("needs moviepy: pip install 'velocirl[render]'")
    fleet = CARTPOLE[kind][0](AutoresetMode.NEXT_STEP, render_mode="rgb_array")
    envs = wrappers.RecordVideo(fleet, str(tmp_path / "films"), video_length=5, step_trigger=lambda step: step == 0)
    envs.reset(seed=SEEDS)
    for _ in range(8):
        envs.step(np.ones(COPIES, int))
    envs.close()
    (film,) = (tmp_path / "films").glob("*.mp4")
    assert film.read_bytes()[4:8] == b"ftyp"


@pytest.mark.parametrize("kind", CARTPOLE)
def test_a_window_shows_all_copies(kind, monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    pygame = pytest.importorskip("pygame")
    pytest.importorskip("cv2", reason="Gymnasium's window lays the pictures out with OpenCV")
    envs = wrappers.HumanRendering(CARTPOLE[kind][0](AutoresetMode.NEXT_STEP, render_mode="rgb_array"))
    envs.reset(seed=SEEDS)
    assert pygame.surfarray.array3d(pygame.display.get_surface()).any()
    envs.close()
