"""Configurations: refused by name, plain values, and the same again from a file."""

import dataclasses
import json

import numpy as np
import pytest

from velocirl import A2C, PPO
from velocirl.algorithms.online.ppo import PPOConfig
from velocirl.training.settings.config import as_plain, build_config, nearest, require


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epoch": 3}, "there is no setting 'epoch': did you mean 'epochs'"),
        ({"zzz": 3}, "there is no setting 'zzz'; there are num_envs"),
        ({"epochs": "3"}, "Expected int, got str - at epochs"),
        ({"epochs": 2.5}, "at epochs"),
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"num_envs": 0}, "num_envs must be at least 1, got 0"),
        ({"threads": 0}, "threads must be at least 1, got 0"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0"),
        ({"learning_rate": float("nan")}, "learning_rate must be above 0"),
        ({"gamma": 1.1}, "gamma must be from 0 to 1"),
        ({"gae_lambda": -0.1}, "gae_lambda must be from 0 to 1"),
        ({"clip": -0.1}, "clip must be at least 0"),
        ({"dual_clip": 0.5}, "dual_clip must be above 1"),
        ({"target_kl": float("inf")}, "target_kl must be at least 0"),
        ({"hidden": (64, 0)}, "hidden must be widths of at least 1"),
        ({"seed": -1}, "seed must be a whole number from 0"),
        ({"seed": 2**64}, "seed must be a whole number from 0"),
        ({"log_deviation": 3.0}, "log_deviation must be from -5 to 2"),
        ({"minibatches": "sample"}, "at minibatches"),
        ({"estimator": "td"}, "at estimator"),
        ({"optimiser": "adm"}, "adam"),
        ({"learning_rate_schedule": "linar"}, "linear"),
        ({"rho_limit": 0.0}, "rho_limit must be above 0"),
    ],
)
def test_wrong_settings_are_refused_by_name(values, message):
    with pytest.raises(ValueError, match=message):
        build_config(PPOConfig, values)
    with pytest.raises(ValueError, match=message):
        PPO("Counter-v0", **values)


def test_there_and_back():
    config = build_config(PPOConfig, {"hidden": (3, 4), "gamma": np.float64(0.5), "epochs": np.int64(2), "seed": 7})
    assert (config.hidden, config.gamma, config.epochs, config.seed) == ((3, 4), 0.5, 2, 7)
    plain = json.loads(json.dumps(as_plain(config)))
    assert plain["hidden"] == [3, 4]
    assert build_config(PPOConfig, plain) == config
    for hidden in ([3, 4], np.array([3, 4]), (np.int64(3), np.int32(4))):
        assert build_config(PPOConfig, {"hidden": hidden}).hidden == (3, 4)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.gamma = 0.9


def test_number_of_minibatches():
    def count(**values):
        return build_config(PPOConfig, {"num_envs": 8, "horizon": 16, **values}).num_minibatches

    assert count(minibatch_size=32) == 4
    assert count(minibatch_size=100) == 1
    assert count(minibatch_size=10**9) == 1
    assert count(minibatch_size=1) == 128
    assert count(minibatch_size=1, minibatches="environments") == 8


def test_presets_stand_in_for_defaults(define):
    environment = define(presets={"ppo": {"horizon": 7, "gamma": 0.5, "total_steps": 1000}})
    assert PPO(environment).config.horizon == 7
    assert PPO(environment, horizon=9).config.horizon == 9
    assert PPO(environment).config.gamma == 0.5
    assert A2C(environment).config.horizon == A2C.Config().horizon


def test_nearest_name():
    assert nearest("gama", ["gamma", "clip"]) == ": did you mean 'gamma'?"
    assert nearest("q", ["gamma", "clip"]) == "; there are gamma, clip"
    assert nearest("GAMA", ["gamma", "clip"]) == ": did you mean 'gamma'?"
    assert nearest("gama", ["Gamma", "clip"]) == ": did you mean 'Gamma'?"


def test_require():
    require(True, "x", 1, "at least 1")
    with pytest.raises(ValueError, match="x must be at least 1, got 0"):
        require(False, "x", 0, "at least 1")
