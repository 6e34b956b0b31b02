"""Layer norms as settings: who has them, by whose word; described, saved, and refused where nothing could have them."""

from typing import ClassVar

import numpy as np
import pytest

from velocirl import PPO, SAC
from velocirl.algorithms.online.sac import two_values
from velocirl.networks.declared import Network

SMALL = {"hidden": (8, 4), "device": "python", "seed": 1}
REPLAY = {**SMALL, "num_envs": 2, "learning_starts": 8, "train_every": 4, "batch_size": 4, "buffer_size": 40}


class Declaring(SAC):
    """Asks for normalised critics."""

    name = "declaring"
    networks: ClassVar = {
        **SAC.networks,
        "critics": Network("observation", "action", gives=two_values, setting="critic", layer_norm=True),
    }


@pytest.mark.parametrize(
    ("kind", "settings", "expected"),
    [
        (SAC, {}, (False, False)),
        (SAC, {"layer_norm": True}, (True, True)),
        (SAC, {"critic_layer_norm": True}, (False, True)),
        (SAC, {"layer_norm": True, "critic_layer_norm": False}, (True, False)),
        (Declaring, {}, (False, True)),
        (Declaring, {"layer_norm": False}, (False, True)),
        (Declaring, {"critic_layer_norm": False}, (False, False)),
        (SAC, {"network": "mlp(5)", "layer_norm": True}, (True, True)),
    ],
)
def test_settings_win_over_declarations_and_critics_are_as_the_actor(kind, settings, expected):
    agent = kind("Pendulum-v1", **SMALL, **settings)
    assert tuple(agent.built[name].layer_norm for name in ("actor", "critics")) == expected


def test_an_agent_says_which_networks_have_them():
    assert "8x4 tanh, layer norm, " in repr(PPO("CartPole-v1", **SMALL, activation="tanh", layer_norm=True))
    assert "8x4 relu, layer norm in critics, " in repr(SAC("Pendulum-v1", **SMALL, critic_layer_norm=True))
    assert "layer norm" not in repr(SAC("Pendulum-v1", **SMALL))


def test_gains_are_learnt_saved_and_loaded(tmp_path):
    agent = SAC("Pendulum-v1", **REPLAY, layer_norm=True)
    agent.learn(24)
    gains, shifts = agent.network.norms(agent.parameters)[0]
    assert np.abs(gains - 1).max() > 1e-4
    assert np.abs(shifts).max() > 1e-4
    agent.save(tmp_path / "agent")
    loaded = SAC.load(tmp_path / "agent")
    np.testing.assert_array_equal(loaded.parameters, agent.parameters)
    for one in (agent, loaded):
        one.learn(8)
    np.testing.assert_array_equal(loaded.parameters, agent.parameters)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"network": "mlp(8, norm=batch)", "layer_norm": True}, r"layer_norm=True is for layers.*in network='mlp\(8"),
        (
            {"critic": "mlp(8, norm=batch)", "critic_layer_norm": True},
            "critic_layer_norm=True is for layers.*in critic=",
        ),
        ({"layer_norm": 3}, "Expected bool | null, got int - at layer_norm"),
    ],
)
def test_what_could_not_have_them_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        SAC("Pendulum-v1", seed=1, device="cpu", **settings)
