"""Stable-Baselines3's names of models, callbacks and environments, and their replacements here."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from velocirl.training.settings.config import as_plain
from velocirl.training.settings.scheduled import APART, SCHEDULES, scheduled_of, without_replaced
from velocirl.training.settings.words import other_names, own_settings

if TYPE_CHECKING:
    from velocirl.training.agent import Agent

SAVED = "save(path) writes it with the agent, and load(path) goes on with it"
COPIES = (
    "it acts in environments of its own: evaluate(agent) plays in such, and `agent.source.given` is what it was given"
)
# SB3 model attributes that are attributes here under another name.
RENAMED = {"num_timesteps": "steps", "ep_info_buffer": "recent", "ep_success_buffer": "recent"}
OF_SOURCE = ("observation_space", "action_space")
# SB3 model attributes and methods, and their replacements.
ON_AGENTS = {
    "get_env": COPIES,
    "env": COPIES,
    "set_env": "an agent keeps its environment: save it, and load(path, env=...) goes on in another of the same spaces",
    "get_vec_normalize_env": "normalise_observations and normalise_rewards are settings, saved with the agent",
    "logger": "callbacks read and write figures in agent.metrics, and learn(run_dir=...) keeps them",
    "set_logger": "learn(run_dir=...) keeps figures as JSON lines and for TensorBoard",
    "replay_buffer": SAVED,
    "rollout_buffer": "a rollout is learnt from once and not kept; velocirl.record_dataset(agent) records one",
    "save_replay_buffer": SAVED,
    "load_replay_buffer": SAVED,
    "get_parameters": "agent.policy_arrays() gives them by name, agent.parameters as one vector",
    "set_parameters": "agent.load_policy_arrays(arrays) takes what policy_arrays() gave",
    "set_random_seed": "give seed= when the agent is made",
    "policy_class": "print(agent) shows its network; policies are settings: hidden=, activation=, network=",
    "policy_kwargs": "they are settings here: hidden=, activation=, initialiser=, network=",
    "lr_schedule": "agent.config.learning_rate_schedule is its text",
    "collect_rollouts": "learn(total_steps) collects and trains; agent.iterate() is one round of it",
    "train": "learn(total_steps) collects and trains; agent.iterate() is one round of it",
    "action_probability": "agent.action_probabilities(observation)",
}
# SB3 classes and functions, and their replacements in this package.
IN_PACKAGE = {
    "EvalCallback": "velocirl.Evaluate(env=..., every=50_000, directory=...), whose `every` counts steps of all copies",
    "CheckpointCallback": "velocirl.Checkpoint(directory, every=50_000), whose `every` counts the steps of all copies",
    "StopTrainingOnRewardThreshold": "velocirl.StopOnReward(475)",
    "StopTrainingOnNoModelImprovement": "velocirl.EarlyStopping(patience=100_000)",
    "CallbackList": "a list of callbacks",
    "BaseCallback": "velocirl.Callback, whose step(agent) is called after each iteration",
    "MaskablePPO": 'velocirl.PPO, which takes masks from info["action_mask"] and from a method action_masks by itself',
    "RecurrentPPO": 'velocirl.PPO("MlpLstmPolicy", env), or PPO(env, network="mlp(64) lstm(128)")',
    "DDPG": "velocirl.TD3(env, actor_every=1, target_every=1, smoothing=0.0)",
    "TQC": "velocirl.SAC, or velocirl.QRDQN for discrete actions",
    "TRPO": "velocirl.PPO(env, target_kl=0.01)",
    "VecNormalize": "normalize=True, or give an environment in Stable-Baselines3's VecNormalize as it is",
    "VecFrameStack": "stack=4 or preprocess=, or give an environment in Stable-Baselines3's VecFrameStack as it is",
    "VecMonitor": "the environment without it: agents count returns and lengths themselves",
    "Monitor": "the environment without it: agents count returns and lengths themselves",
    "DummyVecEnv": "a list of functions that make environments, or num_envs=",
    "SubprocVecEnv": "a list of functions that make environments, with workers=",
    "make_vec_env": "PPO(ID, num_envs=8), or velocirl.make_vec(ID, 8) for the environments alone",
    "make_atari_env": 'PPO("gym:ALE/Pong-v5", preprocess="atari")',
    "NormalActionNoise": "noise=0.1, in units of half the range of actions",
    "OrnsteinUhlenbeckActionNoise": "noise=0.1 and noise_correlation=0.9",
    "BaseFeaturesExtractor": "a torch.nn.Module as network=, or policy_kwargs with features_extractor_class",
}


def attribute_of(agent: Agent, name: str) -> Any:
    """Return an agent's attribute by a setting's name or an SB3 name; raises AttributeError with advice for others."""
    kind, config = type(agent), agent.__dict__.get("config")
    if config is not None and not name.startswith("_"):
        if name in RENAMED:
            return getattr(agent, RENAMED[name])
        if name in OF_SOURCE:
            return getattr(agent.source, name)
        here = (name,) if name in vars(config) else other_names(kind.Config).get(name, ())
        if len(here) == 1 and name not in ON_AGENTS:
            return getattr(config, here[0])
    instead = f": {ON_AGENTS[name]}" if name in ON_AGENTS else ""
    raise AttributeError(f"{kind.__name__!r} object has no attribute {name!r}{instead}", name=name, obj=agent)


def is_setting(agent: Agent, name: str) -> bool:
    """Return whether a name is a setting, here or in Stable-Baselines3, and not an attribute of the agent itself."""
    kind = type(agent)
    if "config" not in agent.__dict__ or name in agent.__dict__ or hasattr(kind, name):
        return False
    return name in {field.name for field in dataclasses.fields(kind.Config)} or name in other_names(kind.Config)


def change_setting(agent: Agent, name: str, value: Any) -> None:
    """Set a setting that can change during training to a number or a schedule; raises for other settings."""
    kind = type(agent)
    known = scheduled_of(kind.Config)
    here = other_names(kind.Config).get(name, (name,))
    allowed = {*known, SCHEDULES, *(APART[one] for one in known if one in APART)}
    if not allowed.issuperset(here):
        raise AttributeError(
            f"{name} stays as it was when the agent was made: give it to {kind.__name__}(...), or to"
            f" {kind.__name__}.load(path, {name}=...) for a saved one; those that change are {', '.join(known)}"
        )
    changes = own_settings(kind.Config, {name: value}, as_plain(agent.config), agent.source.observation_space)
    kept = without_replaced(kind.Config, vars(agent.config), dict.fromkeys(here, value))
    if changes.get(SCHEDULES) is not None:
        changes[SCHEDULES] = {**(kept[SCHEDULES] or {}), **changes[SCHEDULES]}
    merged = {field.name: kept.get(field.name, field.default) for field in dataclasses.fields(kind.Config)} | changes
    for one in here:
        if one in known and known[one].is_built and bool(merged[one]) != bool(getattr(agent.config, one)):
            raise AttributeError(
                f"{name}=0 turns it off: give it to {kind.__name__}(...), which is made with or without it"
            )
    agent.config = dataclasses.replace(
        agent.config,
        **{one: new for one, new in merged.items() if one in allowed and new != getattr(agent.config, one)},
    )
