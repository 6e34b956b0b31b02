"""Policies of Stable-Baselines3 and their arguments: the settings that they are, and what is said of the rest."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from torch import nn

from velocirl import A2C, DQN, PPO, SAC, TD3
from velocirl.training.settings.words import own_settings

STATE, IMAGE = Box(-1, 1, (3,)), Box(0, 255, (84, 84, 3), "uint8")
SMALL_IMAGE = Box(0, 255, (16, 12, 3), "uint8")
SMALL = {"num_envs": 2, "horizon": 8, "minibatch_size": 16, "epochs": 1, "threads": 1, "seed": 1}
THREE_STAGES = "cnn(32x8s4, 64x4s2, 64x3s1)"


def settings_of(kind, policy="MlpPolicy", arguments=None, space=STATE, actions=None, **given):
    """Settings other than the defaults."""
    given = {"policy": policy, "policy_kwargs": arguments, **given}
    config = kind.Config(**own_settings(kind.Config, given, {}, space, actions))
    usual = vars(kind.Config())
    return {name: value for name, value in vars(config).items() if value != usual[name]}


@pytest.mark.parametrize(
    ("kind", "arguments", "settings"),
    [
        (PPO, {"net_arch": [32, 16]}, {"hidden": (32, 16)}),
        (PPO, {"net_arch": []}, {"hidden": ()}),
        (PPO, {"net_arch": {"pi": [32], "vf": [32]}}, {"hidden": (32,)}),
        (A2C, {"net_arch": {"pi": [32], "vf": [64, 8]}}, {"hidden": (32,), "critic_hidden": (64, 8)}),
        (PPO, {"net_arch": [{"pi": [32], "vf": [16]}]}, {"hidden": (32,), "critic_hidden": (16,)}),
        (PPO, {"net_arch": {"vf": [16]}}, {"hidden": (), "critic_hidden": (16,)}),
        (SAC, {"net_arch": {"pi": [32], "qf": [64, 8]}}, {"hidden": (32,), "critic": "mlp(64, 8)"}),
        (TD3, {"net_arch": [400, 300]}, {"hidden": (400, 300)}),
        (DQN, {"net_arch": [8]}, {"hidden": (8,)}),
        (PPO, {"activation_fn": nn.ReLU}, {"activation": "relu"}),
        (PPO, {"activation_fn": nn.LeakyReLU}, {"activation": "leaky_relu"}),
        (SAC, {"activation_fn": nn.Tanh}, {"activation": "tanh"}),
        (PPO, {"ortho_init": True, "share_features_extractor": True, "normalize_images": True}, {}),
        (SAC, {"n_critics": 2, "share_features_extractor": False}, {}),
        (PPO, {"optimizer_class": torch.optim.AdamW, "optimizer_kwargs": {"weight_decay": 0.1, "eps": 1e-6}},
         {"optimiser": "adamw(weight_decay=0.1, epsilon=1e-06)"}),
        (PPO, {"optimizer_kwargs": {"betas": (0.5, 0.9)}}, {"optimiser": "adam(beta1=0.5, beta2=0.9, epsilon=1e-08)"}),
        (DQN, {"optimizer_class": torch.optim.RMSprop}, {"optimiser": "rmsprop"}),
        (PPO, {}, {}),
    ],
)  # fmt: skip
def test_arguments_of_policies_are_settings(kind, arguments, settings):
    assert settings_of(kind, arguments=arguments) == settings


@pytest.mark.parametrize(
    ("policy", "space", "arguments", "settings"),
    [
        ("CnnPolicy", IMAGE, None, {"network": "nature"}),
        ("CnnPolicy", SMALL_IMAGE, None, {"network": "cnn(16, 32, stride=2) mlp(128)"}),
        ("CnnPolicy", IMAGE, {"net_arch": [32]}, {"network": f"{THREE_STAGES} mlp(512) mlp(32)"}),
        ("CnnPolicy", IMAGE, {"features_extractor_kwargs": {"features_dim": 128}, "net_arch": [32]},
         {"network": f"{THREE_STAGES} mlp(128, 32)"}),
        ("CnnPolicy", IMAGE, {"activation_fn": nn.Tanh}, {"network": "nature"}),  # there it is of layers after those
        ("MultiInputPolicy", Dict(a=STATE, b=Discrete(2)), {"net_arch": [8]}, {"hidden": (8,)}),
        ("MultiInputPolicy", Dict(a=IMAGE, b=STATE), None, {"network": {"a": "nature", "then": "mlp(64, 64)"}}),
        ("MultiInputPolicy", Dict(a=SMALL_IMAGE, b=STATE), {"net_arch": [8]},
         {"network": {"a": "cnn(16, 32, stride=2) mlp(128)", "then": "mlp(8)"}}),
        ("MlpLstmPolicy", STATE, None, {"network": "mlp(64, 64) lstm(256)"}),
        ("MlpLstmPolicy", STATE, {"lstm_hidden_size": 16, "n_lstm_layers": 2, "net_arch": {"pi": [8], "vf": [8]}},
         {"network": "mlp(8) lstm(16, layers=2)"}),
        ("MlpLstmPolicy", STATE, {"net_arch": []}, {"network": "lstm(256)"}),
        ("CnnLstmPolicy", IMAGE, {"lstm_hidden_size": 16}, {"network": "nature lstm(16)"}),
        ("MultiInputLstmPolicy", Dict(a=IMAGE, b=STATE), {"lstm_hidden_size": 16, "net_arch": [8]},
         {"network": {"a": "nature", "then": "mlp(8) lstm(16)"}}),
    ],
)  # fmt: skip
def test_policies_choose_what_fits_the_observations(policy, space, arguments, settings):
    found = settings_of(PPO, policy, arguments, space)
    assert {name: value for name, value in found.items() if name != "activation"} == settings
    assert ("activation" in found) == (
        "a" in str(settings.get("network", "")).split("mlp")[0] or "cnn" in str(settings)
    )


def test_the_first_deviation_is_in_units_of_half_the_range():
    for actions, value in ((Box(-1, 1, (2,)), -0.5), (Box(-2, 2, (2,)), -0.5 - np.log(2)), (Discrete(2), -0.5)):
        found = settings_of(PPO, arguments={"log_std_init": -0.5}, actions=actions)
        assert found["log_deviation"] == pytest.approx(value)
    different = Box(np.array([-1, -2.0], np.float32), np.array([1, 2.0], np.float32))
    with pytest.raises(ValueError, match=r"log_std_init=0\.0: ranges of actions differ: give log_deviation="):
        settings_of(PPO, arguments={"log_std_init": 0.0}, actions=different)


class Mine(nn.Module):
    """A policy of somebody's own."""


@pytest.mark.parametrize(
    ("kind", "policy", "arguments", "message"),
    [
        (PPO, "MlpPolicy", {"net_arc": [8]}, "policy_kwargs: 'net_arc' is not known: did you mean 'net_arch'"),
        (PPO, "MlpPolicy", {"net_arch": 64}, r"net_arch=64: write a list of widths, \[64, 64\], or dict\(pi="),
        (PPO, "MlpPolicy", {"net_arch": {"pi": [8], "value": [8]}}, r"write dict\(pi=\[64, 64\], vf=\[64, 64\]\)"),
        (DQN, "MlpPolicy", {"net_arch": {"pi": [8], "qf": [4]}}, "there is one network: give a list"),
        (SAC, "MlpPolicy", {"net_arch": {"pi": [8], "qf": []}}, "critics of no hidden layer differ .* give critic="),
        (PPO, "MlpPolicy", {"activation_fn": nn.Hardswish}, "activation_fn=.* is not known.*give a module as network="),
        (PPO, "MlpPolicy", {"ortho_init": False}, 'ortho_init=False: write initialiser="he_uniform" or another'),
        (SAC, "MlpPolicy", {"log_std_init": -3}, "log_std_init is for PPO and A2C"),
        (PPO, "MlpPolicy", {"use_sde": True}, "use_sde=True: state-dependent exploration is not here"),
        (PPO, "MlpPolicy", {"optimizer_class": torch.optim.Adagrad}, "optimizer_class=Adagrad is not here: give optim"),
        (PPO, "MlpPolicy", {"features_extractor_kwargs": {"a": 1}}, "is for a features_extractor_class of your own"),
        (PPO, "MlpPolicy", {"lstm_hidden_size": 8}, 'is for "MlpLstmPolicy" and the like'),
        (PPO, "MlpPolicy", {"share_features_extractor": False}, "actor and critic share it; give a torch module"),
        (SAC, "MlpPolicy", {"n_critics": 3}, "n_critics=3: there are two critics"),
        (PPO, Mine, None, "Mine is a policy of your own: give its network as network=, a torch module"),
    ],
)
def test_what_there_is_not_says_what_to_write(kind, policy, arguments, message):
    with pytest.raises(ValueError, match=message):
        settings_of(kind, policy, arguments)


def test_convolutions_have_one_activation_and_one_width_after_them():
    for arguments, message in (
        ({"net_arch": [8], "activation_fn": nn.Tanh}, "activation_fn=tanh is that of convolutions here, too"),
        ({"net_arch": {"pi": [8], "vf": [4]}}, "with these features actor and critic are as wide"),
    ):
        with pytest.raises(ValueError, match=message):
            settings_of(PPO, "CnnPolicy", arguments, IMAGE)


@pytest.mark.parametrize("device", ["python", "cpu"])
def test_actor_and_critic_have_their_own_widths(device):
    agent = PPO("Counter-v0", policy_kwargs={"net_arch": {"pi": [4], "vf": [8, 3]}}, device=device, **SMALL)
    actor, critic = agent.network.chains
    assert (actor.hidden, critic.hidden) == ((4,), (8, 3))
    assert "4 tanh, critic 8x3" in str(agent)
    before = agent.parameters.copy()
    assert (agent.learn(32).parameters != before).sum() > 0.9 * len(before)


def test_widths_of_the_critic_are_for_layers_apart():
    with pytest.raises(ValueError, match="shared must be off with critic_hidden, got True"):
        PPO("Counter-v0", critic_hidden=(8,), shared=True, **SMALL)
    with pytest.raises(ValueError, match=r"critic_hidden=\(8,\) is for layers that are described by hidden"):
        PPO("Counter-v0", critic_hidden=(8,), network="mlp(8)", **SMALL)


class Pictures(gymnasium.Env):
    """Shows random pictures, for ten steps."""

    observation_space, action_space = Box(0, 255, (16, 12, 3), "uint8"), Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        self.count = 0
        return self._picture(), {}

    def step(self, action):
        self.count += 1
        return self._picture(), float(action), self.count == 10, False, {}

    def _picture(self):
        return self.np_random.integers(0, 256, (16, 12, 3), np.uint8)


class Features(nn.Module):
    """As Stable-Baselines3's guide has it: images with their channels first, and how many features there are."""

    def __init__(self, observation_space, features_dim=32):
        super().__init__()
        self.features_dim = features_dim
        self.shape = observation_space.shape
        self.seen = []
        size = int(np.prod(self.shape))
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(size, features_dim), nn.ReLU())

    def forward(self, observations):
        self.seen.append(observations.detach().clone())
        return self.layers(observations)


def test_features_of_images_have_channels_first():
    arguments = {"features_extractor_class": Features, "features_extractor_kwargs": {"features_dim": 5},
                 "net_arch": {"pi": [4], "vf": [8]}}  # fmt: skip
    agent = PPO("CnnPolicy", Pictures(), policy_kwargs=arguments, device="cpu", **SMALL)
    module = agent.network
    assert (module.features.shape, agent.config.network) == ((3, 16, 12), "module features Features")
    # Features, then 5-4-2 and 5-8-1 with biases.
    assert agent.num_parameters == (576 * 5 + 5) + (5 * 4 + 4 + 4 * 2 + 2) + (5 * 8 + 8 + 8 * 1 + 1)
    picture = np.arange(576, dtype=np.uint8).reshape(16, 12, 3)
    outputs = agent.network(torch.from_numpy(picture / np.float32(255.0))[None])
    assert outputs.shape == (1, 3)
    seen = agent.network.features.seen[-1].numpy()
    np.testing.assert_allclose(seen[0], np.moveaxis(picture, -1, 0) / 255.0, atol=1e-6)


@pytest.mark.parametrize("kind", [PPO, DQN, SAC])
def test_features_learn_and_are_loaded_with_their_class(kind, tmp_path):
    env = {SAC: "Pendulum-v1"}.get(kind, "CartPole-v1")
    settings = SMALL if kind is PPO else {"num_envs": 2, "learning_starts": 8, "batch_size": 4, "threads": 1, "seed": 1}
    arguments = {"features_extractor_class": Features, "net_arch": [4]}
    agents = [kind(env, policy_kwargs=arguments, device="cpu", **settings) for _ in range(2)]
    before = agents[0].parameters.copy()
    assert before.tobytes() == agents[1].parameters.tobytes()  # by the seed
    agent = agents[0].learn(32)
    assert (agent.parameters != before).any()
    path = agent.save(tmp_path / "agent")
    again = kind.load(path, policy_kwargs=arguments)
    assert again.parameters.tobytes() == agent.parameters.tobytes()
    assert again.learn(32).steps == 64
    with pytest.raises(ValueError, match=r"own, Features, which no file holds: give policy_kwargs=dict\(features_ex"):
        kind.load(path)


def test_a_class_that_makes_no_features_is_refused():
    with pytest.raises(TypeError, match=r"<lambda> must be a torch.nn.Module with features_dim"):
        PPO("CartPole-v1", policy_kwargs={"features_extractor_class": lambda space: Mine()}, device="cpu", **SMALL)
    with pytest.raises(ValueError, match="features_extractor_class is the network: leave network out"):
        PPO("CartPole-v1", network="mlp(8)", policy_kwargs={"features_extractor_class": Features}, **SMALL)


def test_classes_of_theirs_are_known_by_their_names():
    policies = pytest.importorskip("stable_baselines3.common.policies")
    assert settings_of(PPO, policies.ActorCriticCnnPolicy, space=IMAGE)["network"] == "nature"
    assert settings_of(PPO, policies.ActorCriticPolicy) == {}
