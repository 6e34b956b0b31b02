"""Names of Stable-Baselines3: what is understood, what it becomes, and what is said of the rest."""

import inspect
import sys
from types import ModuleType

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

import velocirl
from velocirl import A2C, DQN, IQL, PPO, SAC, TD3, QLearning
from velocirl.runs.directory import open_run
from velocirl.training.persistence import Goal
from velocirl.training.settings.config import build_config
from velocirl.training.settings.words import own_arguments, own_settings

# The arguments of its constructors with their defaults, as of version 2.9.
EVERY = {"stats_window_size": 100, "tensorboard_log": None, "policy_kwargs": None, "verbose": 0, "seed": None,
         "device": "auto", "_init_setup_model": True, "gamma": 0.99}  # fmt: skip
ROLLOUTS = {"gae_lambda": 0.95, "ent_coef": 0.0, "vf_coef": 0.5, "max_grad_norm": 0.5, "use_sde": False,
            "sde_sample_freq": -1, "rollout_buffer_class": None, "rollout_buffer_kwargs": None,
            "normalize_advantage": True}  # fmt: skip
MEMORY = {"buffer_size": 1_000_000, "learning_starts": 100, "gradient_steps": 1, "replay_buffer_class": None,
          "replay_buffer_kwargs": None, "optimize_memory_usage": False, "n_steps": 1, "tau": 0.005,
          "learning_rate": 1e-3}  # fmt: skip
CONSTRUCTORS = {
    PPO: {**EVERY, **ROLLOUTS, "learning_rate": 3e-4, "n_steps": 2048, "batch_size": 64, "n_epochs": 10,
          "clip_range": 0.2, "clip_range_vf": None, "target_kl": None},
    A2C: {**EVERY, **ROLLOUTS, "learning_rate": 7e-4, "n_steps": 5, "rms_prop_eps": 1e-5, "use_rms_prop": True},
    DQN: {**EVERY, **MEMORY, "batch_size": 32, "train_freq": 4, "target_update_interval": 10_000,
          "exploration_fraction": 0.1, "exploration_initial_eps": 1.0, "exploration_final_eps": 0.05,
          "max_grad_norm": 10},
    SAC: {**EVERY, **MEMORY, "batch_size": 256, "train_freq": 1, "action_noise": None, "ent_coef": "auto",
          "target_update_interval": 1, "target_entropy": "auto", "use_sde": False, "sde_sample_freq": -1,
          "use_sde_at_warmup": False},
    TD3: {**EVERY, **MEMORY, "batch_size": 256, "train_freq": 1, "action_noise": None, "policy_delay": 2,
          "target_policy_noise": 0.2, "target_noise_clip": 0.5},
}  # fmt: skip
ENVIRONMENTS = {PPO: "CartPole-v1", A2C: "CartPole-v1", DQN: "CartPole-v1", SAC: "Pendulum-v1", TD3: "Pendulum-v1"}
SMALL = {"num_envs": 2, "horizon": 8, "minibatch_size": 16, "epochs": 1, "hidden": (4,), "threads": 1, "seed": 1,
         "device": "python"}  # fmt: skip


def understood(kind, **words):
    """The configuration that these words are, without a preset."""
    space = words.pop("space", Box(-1, 1, (3,)))
    return kind.Config(**own_settings(kind.Config, words, {}, space))


@pytest.mark.parametrize("kind", CONSTRUCTORS)
def test_every_argument_is_understood_with_its_default(kind):
    agent = kind("MlpPolicy", ENVIRONMENTS[kind], num_envs=1, **CONSTRUCTORS[kind])
    assert agent.config.num_envs == 1
    assert agent.config.gamma == 0.99


@pytest.mark.parametrize("kind", CONSTRUCTORS)
def test_these_are_the_arguments_that_there_are(kind):
    theirs = getattr(pytest.importorskip("stable_baselines3"), kind.__name__)
    arguments = inspect.signature(theirs).parameters.keys() - {"policy", "env"}
    assert arguments == CONSTRUCTORS[kind].keys()


@pytest.mark.parametrize(
    ("kind", "words", "settings"),
    [
        (PPO, {"n_steps": 7, "num_envs": 3}, {"horizon": 7}),
        (PPO, {"n_envs": 3}, {"num_envs": 3}),
        (PPO, {"n_epochs": 3, "batch_size": 9}, {"epochs": 3, "minibatch_size": 9}),
        (PPO, {"clip_range": 0.3, "ent_coef": 0.2}, {"clip": 0.3, "entropy_coefficient": 0.2}),
        (PPO, {"vf_coef": 0.5}, {"value_coefficient": 1.0}),  # half of the squared error is what counts here
        (PPO, {"target_kl": None}, {"target_kl": 0.0}),
        (PPO, {"target_kl": 0.1}, {"target_kl": 0.1}),
        (PPO, {"normalize_advantage": False}, {"normalise_advantages": False}),
        (A2C, {"n_steps": 5, "num_envs": 3}, {"horizon": 5}),
        (A2C, {"rms_prop_eps": 0.001}, {"optimiser": "rmsprop(epsilon=0.001)"}),
        (A2C, {"rms_prop_eps": 0.001, "use_rms_prop": False}, {"optimiser": "adam"}),
        (DQN, {"train_freq": 4, "num_envs": 1}, {"train_every": 4}),
        (DQN, {"train_freq": (4, "step"), "num_envs": 8}, {"train_every": 32}),  # there, all copies are one step
        (DQN, {"gradient_steps": -1, "train_freq": 2, "num_envs": 3}, {"gradient_steps": 6, "train_every": 6}),
        (DQN, {"target_update_interval": 1000, "train_every": 4, "gradient_steps": 2}, {"target_every": 500}),
        (DQN, {"target_update_interval": 80, "train_freq": 2, "num_envs": 4}, {"train_every": 8, "target_every": 10}),
        (DQN, {"exploration_initial_eps": 0.9, "exploration_final_eps": 0.1},
         {"exploration_initial": 0.9, "exploration_final": 0.1}),
        (DQN, {"n_steps": 3}, {"n_step": 3}),
        (SAC, {"ent_coef": 0.1}, {"temperature": 0.1}),
        (SAC, {"target_entropy": -2.0}, {"target_entropy": -2.0}),
        (SAC, {"target_entropy": "auto"}, {"target_entropy": None}),
        (SAC, {"target_update_interval": 2}, {"target_every": 2}),
        (TD3, {"policy_delay": 3}, {"actor_every": 3, "target_every": 3}),  # the targets follow as the actor does
        (TD3, {"target_policy_noise": 0.3, "target_noise_clip": 0.4}, {"smoothing": 0.3, "smoothing_limit": 0.4}),
        (TD3, {"action_noise": None}, {"noise": 0.0}),
        (PPO, {"policy": "MultiInputPolicy", "space": Dict(a=Box(-1, 1, (2,)), b=Discrete(2))}, {}),
        (PPO, {"policy": "CnnPolicy", "network": "cnn(8)"}, {"network": "cnn(8)"}),
        (PPO, {"policy": "CnnPolicy"}, {"network": "nature", "activation": "relu"}),
        (PPO, {"policy": "CnnPolicy", "space": Box(0, 255, (10, 10, 3), "uint8")},
         {"network": "minatar", "activation": "relu"}),
        (PPO, {"policy": "MlpPolicy", "space": Box(0, 255, (10, 10, 3), "uint8")}, {"network": None}),
    ],
)  # fmt: skip
def test_a_name_becomes_the_setting_that_says_the_same(kind, words, settings):
    config = understood(kind, **words)
    assert {name: getattr(config, name) for name in settings} == settings
    assert config == kind.Config(**{name: words[name] for name in words if hasattr(config, name)} | settings)


@pytest.mark.parametrize(
    ("kind", "words", "settings"),
    [
        (PPO, {"activation": "ReLU"}, {"activation": "relu"}),
        (PPO, {"activation": "LeakyReLU"}, {"activation": "leaky_relu"}),
        (SAC, {"activation": type("Tanh", (), {})}, {"activation": "tanh"}),  # as torch.nn.Tanh
        (IQL, {"activation": "elu", "initialiser": "He-Normal"}, {"activation": "elu", "initialiser": "he_normal"}),
        (DQN, {"optimiser": "AdamW"}, {"optimiser": "AdamW"}),  # read in any case
        (PPO, {"normalize": True}, {"normalise_observations": True, "normalise_rewards": True}),
        (PPO, {"normalize": False}, {"normalise_observations": False, "normalise_rewards": False}),
        (PPO, {"normalize": True, "space": Box(0, 255, (16, 16, 3), "uint8")},
         {"normalise_observations": False, "normalise_rewards": True}),
        (SAC, {"normalize": True}, {"scale_observations": True}),
        (IQL, {"normalize": False}, {"normalise_observations": False}),
    ],
)  # fmt: skip
def test_names_are_found_in_any_case_and_true_means_the_usual(kind, words, settings):
    config = understood(kind, **words)
    assert {name: getattr(config, name) for name in settings} == settings


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"activation": "RELLU"}, "unknown activation 'RELLU': did you mean 'relu'"),
        ({"activation": "Quadratic"}, "unknown activation 'Quadratic'; there are relu"),
        (
            {"normalize": "yes"},
            "normalize: must be True or False, got 'yes'; the settings themselves are normalise_obs",
        ),
        ({"normalize": True, "normalise_rewards": False}, "normalize is normalise_rewards here: give one of them"),
        ({"Normalize_Rewards": True}, "no setting 'Normalize_Rewards': did you mean 'normalise_rewards'"),
    ],
)
def test_a_name_that_is_not_known_is_answered_with_the_nearest(words, message):
    with pytest.raises(ValueError, match=message):
        PPO("Counter-v0", **words)


@pytest.mark.parametrize(
    ("kind", "words", "settings"),
    [
        (DQN, {"buffer_size": 1e5, "learning_starts": np.float32(2e3), "gamma": 1.0}, {"buffer_size": 100_000}),
        (PPO, {"n_steps": 2e2, "num_envs": 4.0, "hidden": (8,)}, {"horizon": 200, "num_envs": 4}),
        (PPO, {"threads": 2.0}, {"threads": 2}),
        (QLearning, {"steps_per_sync": 1e4}, {"steps_per_sync": 10_000}),
    ],
)
def test_counts_may_be_floats_without_a_fraction(kind, words, settings):
    own = own_settings(kind.Config, words, {}, Box(-1, 1, (3,)))
    assert {name: own[name] for name in settings} == settings
    assert all(type(own[name]) is int for name in settings)
    build_config(kind.Config, own)


@pytest.mark.parametrize(
    ("kind", "words", "message"),
    [
        (PPO, {"learning_rate": lambda left: None}, "learning_rate: .* gives finite numbers, got None for 1.0"),
        (PPO, {"learning_rate": "linear", "learning_rate_schedule": "step"}, "leave learning_rate_schedule out"),
        (PPO, {"epochs": lambda left: left}, "epochs=.*: give a number; those that change in training are learn"),
        (PPO, {"clip_range_vf": 0.2}, "clip_range_vf: value_clip= comes near"),
        (PPO, {"tensorboard_log": "logs"}, r"tensorboard_log: learn\(run_dir=...\) writes TensorBoard events"),
        (PPO, {"stats_window_size": 10}, "stats_window_size: .* means over 100 episodes"),
        (PPO, {"use_sde": True}, "use_sde: state-dependent exploration is not here"),
        (PPO, {"rollout_buffer_class": object}, "rollout_buffer_class: rollouts are kept in one way"),
        (PPO, {"policy": "MlpLnLstmPolicy"}, "policy: 'MlpLnLstmPolicy' is not known; leave it out"),
        (PPO, {"n_steps": 5, "horizon": 5}, "n_steps is horizon here: give one of them"),
        (DQN, {"train_freq": (2, "episode")}, "train_freq: updates follow steps and not episodes: give train_every="),
        (DQN, {"train_freq": None}, "train_freq cannot be None"),
        (DQN, {"target_update_interval": 10, "train_every": 4}, "counts updates, 1 of which follow 4 .*target_every=2"),
        (DQN, {"replay_buffer_class": object}, 'replay_buffer_class: give priority="proportional"'),
        (DQN, {"optimize_memory_usage": True}, "optimize_memory_usage: buffer_file= maps"),
        (TD3, {"action_noise": object()}, "action_noise: give noise=0.1, in units of half the range"),
        (TD3, {"policy_delay": 3, "target_every": 2}, "policy_delay is target_every here: give one of them"),
        (SAC, {"ent_coef": "auto_0.1"}, 'temperature must be a number, or "auto"'),
    ],
)  # fmt: skip
def test_what_is_otherwise_here_is_refused_with_what_to_write(kind, words, message):
    with pytest.raises(ValueError, match=message):
        understood(kind, **words)


@pytest.mark.parametrize(
    ("kind", "words", "becomes"), [(PPO, {"n_steps": 64}, "horizon=64"), (DQN, {"train_freq": 4}, "train_every=32")]
)
def test_what_counts_for_each_copy_warns_where_there_are_many_that_nobody_asked_for(kind, words, becomes):
    with pytest.warns(UserWarning, match=f"copies, where Stable-Baselines3 has one.*here it is {becomes}. Give num_e"):
        understood(kind, **words)
    understood(kind, **words, num_envs=8)  # a warning would be an error
    understood(kind, **words, n_envs=8)


def test_a_policy_may_stand_before_the_environment():
    for agent in (
        PPO("MlpPolicy", "Counter-v0", **SMALL),
        PPO("MlpPolicy", env="Counter-v0", **SMALL),
        PPO(policy="MlpPolicy", env="Counter-v0", **SMALL),
        PPO(env="Counter-v0", **SMALL),
    ):
        assert agent.source.id == "Counter-v0"
        assert agent.config == PPO("Counter-v0", **SMALL).config


def test_the_order_of_arguments_is_said():
    with pytest.raises(TypeError, match="'MlpPolicy' stands before the environment"):
        PPO("Counter-v0", "MlpPolicy")
    with pytest.raises(TypeError, match="the settings of PPO are given by name, such as learning_rate=1e-3"):
        PPO("MlpPolicy", "Counter-v0", 3e-4)


def test_words_are_not_saved(tmp_path):
    rest = {name: value for name, value in SMALL.items() if name != "horizon"}
    agent = PPO("MlpPolicy", "Counter-v0", n_steps=4, verbose=1, **rest)
    again = PPO.load(agent.save(tmp_path / "agent"), verbose=0)
    assert again.config == agent.config
    assert not {"n_steps", "verbose", "policy"} & agent.state().document["config"].keys()


def test_learn_has_its_arguments():
    told = []
    agent = PPO("Counter-v0", **SMALL)
    assert agent.learn(total_timesteps=32, callback=lambda agent: told.append(agent.steps), log_interval=1) is agent
    assert told == [16, 32]
    agent.learn(16, None, progress_bar=False, tb_log_name="PPO")
    assert agent.goal == Goal(32, 16)
    with pytest.raises(TypeError, match="learn has no argument 'total_timestep': did you mean 'total_timesteps'"):
        agent.learn(total_timestep=16)
    with pytest.raises(TypeError, match="total_timesteps is total_steps here"):
        agent.learn(16, total_timesteps=16)
    with pytest.raises(ValueError, match="total_steps must be a whole number"):
        agent.learn(total_timesteps=0.5, reset_num_timesteps=False)


def test_a_progress_bar_is_the_progress_that_is_shown():
    for shown in (True, False):
        assert own_arguments({"progress": None}, {"progress_bar": shown}) == {"progress": shown}
    with pytest.raises(TypeError, match="progress_bar is progress here: give one of them"):
        PPO("Counter-v0", **SMALL).learn(16, progress=False, progress_bar=True)


def test_the_run_of_who_does_not_reset_the_count_has_all_of_its_steps(tmp_path):
    agent = PPO("Counter-v0", **SMALL, learning_rate_schedule="linear").learn(16, run_dir=tmp_path / "run")
    agent.learn(total_timesteps=16, reset_num_timesteps=False, run_dir=tmp_path / "run")
    plan = open_run(tmp_path / "run").description.plan
    assert plan is not None
    assert (plan.total_steps, agent.goal) == (32, Goal(0, 32))


def test_who_does_not_reset_the_count_goes_on_in_the_schedule():
    agent = PPO("Counter-v0", **SMALL, learning_rate_schedule="linear", learning_rate=1e-3).learn(32)
    agent.learn(total_timesteps=32, reset_num_timesteps=False)
    assert (agent.steps, agent.goal) == (64, Goal(0, 64))
    assert agent.metrics["train/learning_rate"] == pytest.approx(1e-3 * 0.25)  # of the last quarter
    agent.learn(total_timesteps=32, reset_num_timesteps=True)
    assert agent.goal == Goal(64, 32)


def test_a_loop_of_short_calls_does_not_use_up_the_default_rate():
    """It falls over each call, also where the count goes on; a schedule that somebody asked for goes on with it."""
    rates = {}
    for schedule in (None, "linear", "warmup(0.5) linear(each_call=true)"):
        asked = {} if schedule is None else {"learning_rate_schedule": schedule}
        agent = PPO("Counter-v0", **SMALL, **asked, learning_rate=1.0)
        rates[schedule] = [agent.learn(16, reset_num_timesteps=False).metrics["train/learning_rate"] for _ in range(3)]
        assert (agent.goal.stop, agent.steps) == (48, 48)
    assert rates[None] == [1, 1, 1]
    assert rates["linear"] == pytest.approx([1, 1 / 2, 1 / 3])
    assert rates["warmup(0.5) linear(each_call=true)"] == [0, 0, 0]
    agent = PPO("Counter-v0", **SMALL, learning_rate=1.0)
    seen = []
    for _ in range(2):
        agent.learn(64, lambda agent: seen.append(agent.metrics["train/learning_rate"]), reset_num_timesteps=False)
    assert seen == [1, 0.75, 0.5, 0.25] * 2


def test_tables_understand_what_learn_does():
    agent = QLearning("CliffWalking-v1", seed=0).learn(total_timesteps=1000, callback=None, progress_bar=False)
    assert agent.finished


@pytest.fixture
def their_callback(monkeypatch):
    """A class as Stable-Baselines3 has it."""
    module = ModuleType("stable_baselines3.common.callbacks")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return type("BaseCallback", (), {"__module__": module.__name__})


def test_callbacks_of_stable_baselines3_say_what_to_use_instead(their_callback):
    agent = PPO("Counter-v0", **SMALL)
    evaluating = type("EvalCallback", (their_callback,), {})
    with pytest.raises(TypeError, match=r"EvalCallback is a callback of Stable-Baselines3.*use velocirl.Evaluate\("):
        agent.learn(16, callback=evaluating())
    own = type("Mine", (their_callback,), {"__module__": "mine"})
    with pytest.raises(TypeError, match=r"Mine is a callback of .*use a subclass of velocirl.Callback or a function"):
        agent.learn(16, callback=[own()])
    with pytest.raises(TypeError, match="is called with the agent alone: let it take one argument"):
        agent.learn(16, callback=lambda its_locals, its_globals: True)
    assert agent.steps == 0


def test_help_says_which_names_are_understood():
    told = " ".join(PPO.__doc__.split())
    assert "Names of Stable-Baselines3 that are understood: n_envs (num_envs), n_steps (horizon)" in told
    assert "policy_delay (actor_every, target_every)" in " ".join(TD3.__doc__.split())
    assert "Stable-Baselines3" not in velocirl.QLearning.__doc__
