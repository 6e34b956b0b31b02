"""Observations of images: which network reads them where nobody chose one, and how that is said."""

import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Tuple

from velocirl import DQN, PPO, QRDQN, SAC, TD3, DiscreteBC, DiscreteSAC, record_dataset
from velocirl.training import presenting
from velocirl.training.settings.images import described, image_network

BYTES = {"low": 0, "high": 255, "dtype": np.uint8}
CAMERA = Box(shape=(12, 10, 3), **BYTES)
SMALL = {"num_envs": 2, "seed": 0, "threads": 1, "device": "cpu"}
ROLLOUT = {**SMALL, "horizon": 8, "minibatch_size": 8, "epochs": 1}
REPLAY = {**SMALL, "buffer_size": 64, "learning_starts": 16, "batch_size": 8, "train_every": 8, "gradient_steps": 1}


class Camera(gymnasium.Env):
    """Shows images of noise; a step pays the action."""

    def __init__(self, observation=CAMERA, action=None):
        self.observation_space, self.action_space = observation, action or Discrete(2)
        self.observation_space.seed(0)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.count += 1
        return self.observation_space.sample(), float(np.sum(action)), False, self.count == 5, {}


@pytest.mark.parametrize(
    ("space", "network"),
    [
        (Box(shape=(84, 84, 4), **BYTES), "nature"),
        (Box(shape=(4, 84, 84), **BYTES), "nature"),
        (Box(shape=(36, 40, 3), **BYTES), "nature"),
        (Box(shape=(35, 40, 3), **BYTES), "cnn(16, 32, stride=2) mlp(128)"),
        (Box(0, 1, (10, 10, 6), np.uint8), "minatar"),
        (Box(shape=(4, 64, 64, 3), **BYTES), "nature"),
        (Box(shape=(64, 64), **BYTES), "nature"),
        (Box(shape=(4, 3), **BYTES), None),
        (Box(shape=(3, 2, 2), **BYTES), None),
        (Box(shape=(128,), **BYTES), None),  # the memory of a console
        (Box(-1, 1, (84, 84, 3)), None),  # numbers of any kind, not bytes
        (Discrete(4), None),
        (Dict(camera=CAMERA, speed=Box(-1, 1, (2,))), {"camera": "minatar", "then": "mlp(64, 64)"}),
        (Dict(arm=Dict(left=CAMERA), then=Box(-1, 1, (2,))), None),  # "then" is taken
        (Tuple((Box(-1, 1, (2,)), Box(shape=(84, 84, 1), **BYTES))), {"1": "nature", "then": "mlp(64, 64)"}),
        (Dict(joints=Box(-1, 1, (2,))), None),
    ],
)
def test_the_network_follows_from_the_sizes_of_images(space, network):
    assert image_network(space) == network


def test_it_is_said_what_reads_them():
    assert described("nature", Box(shape=(84, 84, 4), **BYTES)) == (
        "images (84x84x4) are read by the network nature; nature is cnn(32x8s4, 64x4s2, 64x3s1) mlp(512); network= or"
        " hidden= choose another"
    )
    space = Dict(camera=CAMERA, speed=Box(-1, 1, (2,)))
    assert "images (camera 12x10x3)" in described(image_network(space), space)


@pytest.mark.parametrize(
    ("kind", "space", "settings"),
    [
        (PPO, Discrete(2), ROLLOUT),
        (DQN, Discrete(2), REPLAY),
        (QRDQN, Discrete(2), REPLAY),
        (DiscreteSAC, Discrete(2), REPLAY),
        (SAC, Box(-1, 1, (1,)), REPLAY),
        (TD3, Box(-1, 1, (1,)), REPLAY),
    ],
)
def test_every_algorithm_has_convolutions_for_images(kind, space, settings):
    agent = kind(lambda: Camera(action=space), **settings)
    if kind in (PPO, DQN):  # others learn from images by the same code
        agent.learn(32)
    assert agent.config.network == "minatar"
    assert agent.config.activation == "relu"
    assert "network      minatar for images, " in str(agent)
    assert any("Conv2d" in type(one).__name__ for one in agent.network.modules())


def test_native_environments_and_parts_have_them_too(define):
    for agent in (DQN("MinAtarFreeway-v1", **REPLAY), DQN(define(observation=CAMERA, observe=blank), **REPLAY)):
        assert agent.config.network == image_network(agent.source.observation_space)
    space = Dict(camera=CAMERA, speed=Box(-1, 1, (2,)))
    agent = PPO(lambda: Camera(space), **ROLLOUT).learn(16)
    assert agent.config.network == {"camera": "minatar", "then": "mlp(64, 64)"}


def blank(state, params, observation):
    observation[0, 0, 0] = 0


@pytest.mark.parametrize(
    ("words", "network"),
    [
        ({"policy": "CnnPolicy"}, "minatar"),
        ({"policy": "MlpPolicy"}, None),
        ({"hidden": (8,)}, None),
        ({"network": None}, None),
        ({"network": "mlp(8)"}, "mlp(8)"),
        ({"device": "python"}, None),
    ],
)
def test_whoever_chooses_gets_that(words, network):
    agent = PPO(env=Camera, **{**ROLLOUT, **words})
    assert agent.config.network == network
    assert not agent.network_reason


def test_a_preset_stays_as_it_is_known_to_learn():
    assert PPO("MinAtarBreakout-v1", device="cpu").config.network is None
    assert DQN("MinAtarBreakout-v1", device="cpu").config.network == "minatar"


def test_recorded_images_are_read_by_convolutions(tmp_path):
    data = record_dataset(PPO(Camera, **{**ROLLOUT, "hidden": (8,)}), Camera, steps=64, seed=0)
    agent = DiscreteBC(data=data, seed=0, threads=1, device="cpu", batch_size=8).learn(4)
    assert agent.config.network == "minatar"
    assert not agent.config.normalise_observations


def test_training_begins_with_a_line_about_it(capsys, monkeypatch):
    monkeypatch.setattr(presenting, "PATIENCE", 0.0)
    PPO(Camera, **ROLLOUT).learn(16, progress=True)
    assert "images (12x10x3) are read by the network minatar" in capsys.readouterr().out


def test_without_torch_the_error_says_what_to_install(monkeypatch):
    for name in list(sys.modules):
        if name == "torch" or name.startswith(("torch.", "velocirl.networks.torch")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError) as caught:
        PPO(Camera, **ROLLOUT)
    assert str(caught.value) == (
        'images (12x10x3) are read by the network minatar, which needs torch: pip install "velocirl[torch]", or give'
        " hidden=(64, 64) for a native network"
    )
    PPO(Camera, **ROLLOUT, hidden=(8,))
