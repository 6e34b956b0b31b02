"""Settings that change in training: as functions, names and points, saved, resumed, and of every kind of learner."""

import pytest
from choosing import on_cuda

from velocirl import DQN, PPO, SAC, TD3, QLearning
from velocirl.algorithms import load_algorithms
from velocirl.training.deep_agent import DeepAgent
from velocirl.training.persistence import ALGORITHMS, Goal
from velocirl.training.settings.config import build_config

TINY = {"hidden": (4,), "threads": 1, "seed": 1, "device": "python"}
KINDS = {
    PPO: ("Counter-v0", {**TINY, "num_envs": 2, "horizon": 8, "minibatch_size": 16, "epochs": 1}),
    DQN: ("Counter-v0", {**TINY, "num_envs": 2, "learning_starts": 4, "batch_size": 4, "train_every": 8}),
    SAC: ("Pendulum-v1", {**TINY, "num_envs": 2, "learning_starts": 4, "batch_size": 4, "train_every": 8}),
    TD3: ("Pendulum-v1", {**TINY, "num_envs": 2, "learning_starts": 4, "batch_size": 4, "train_every": 8}),
    QLearning: ("FrozenLake-v1", {"seed": 1}),
}
STEPS = {PPO: 128, DQN: 512, SAC: 512, TD3: 512, QLearning: 200_000}
HALF = [(0.0, 8e-3), (0.5, 4e-3), (1.0, 0.0)]
RATE = "train/learning_rate"


def make(kind, **settings):
    environment, small = KINDS[kind]
    return kind(environment, **{**small, **settings})


def course(agent, steps=None, metric=RATE, **options):
    """What a metric was at each number of steps."""
    seen = {}
    agent.learn(steps, lambda agent: seen.update({agent.steps: agent.metrics[metric]}), **options)
    return seen


def progress_seen(kind, agent, steps):
    """The progress by which a rate of these steps was: where an iteration of a network begins, where a table's ends."""
    if kind is QLearning:
        return steps / STEPS[kind]
    batch = {PPO: 16}.get(kind) or agent.steps_of_iteration * agent.config.num_envs
    return (steps - batch) / STEPS[kind]


@pytest.mark.parametrize("kind", [PPO, DQN, SAC, QLearning])
@pytest.mark.parametrize(
    "schedule", [HALF, "0:8e-3,0.5:4e-3,1:0", lambda left: 8e-3 * left], ids=["list", "text", "function"]
)
def test_a_learning_rate_that_changes(kind, schedule):
    """All three are the line from 8e-3 to 0, whatever the preset's own schedule is."""
    agent = make(kind, learning_rate=schedule)
    assert agent.config.learning_rate == 8e-3
    rates = course(agent, STEPS[kind])
    assert len(rates) >= 4
    for steps, rate in rates.items():
        assert rate == pytest.approx(8e-3 * (1 - progress_seen(kind, agent, steps)), abs=1e-12)


@pytest.mark.parametrize("kind", [PPO, DQN, SAC, QLearning])
def test_a_saved_agent_goes_on_with_its_function(kind, tmp_path):
    """A function is saved as points: what was interrupted and loaded ends as what was not."""
    schedule = {"learning_rate": lambda left: 8e-3 * left**2}
    whole = make(kind, **schedule).learn(STEPS[kind])
    part = make(kind, **schedule)
    part.learn(STEPS[kind], lambda agent: agent.steps < STEPS[kind] / 2)
    assert not part.finished
    part.save(tmp_path / "part")
    loaded = kind.load(tmp_path / "part").learn()
    assert loaded.steps == whole.steps
    assert loaded.metrics[RATE] == whole.metrics[RATE]
    assert loaded.parameters.tobytes() == whole.parameters.tobytes()


def test_a_schedule_by_name_keeps_the_number():
    agent = make(PPO, learning_rate="cosine(end=0.1)")
    assert agent.config.learning_rate == make(PPO).config.learning_rate
    assert agent.config.learning_rate_schedule == "cosine(end=0.1)"


def test_exploration_of_a_table():
    agent = make(QLearning, exploration_rate=[(0.0, 0.5), (0.5, 0.25), (1.0, 0.25)])
    rates = course(agent, STEPS[QLearning], "rollout/exploration_rate")
    assert rates[STEPS[QLearning]] == 0.25
    assert max(rates.values()) < 0.5
    assert min(rates.values()) == 0.25


def test_a_number_replaces_points_and_keeps_a_multiplier(tmp_path):
    make(PPO, learning_rate=HALF).save(tmp_path / "points")
    make(PPO, learning_rate="step").save(tmp_path / "step")
    config = PPO.load(tmp_path / "points", learning_rate=1e-4).config
    assert (config.learning_rate, config.learning_rate_schedule) == (1e-4, "constant")
    config = PPO.load(tmp_path / "step", learning_rate=1e-4).config
    assert (config.learning_rate, config.learning_rate_schedule) == (1e-4, "step")
    config = PPO.load(tmp_path / "step", learning_rate=HALF).config
    assert (config.learning_rate, config.learning_rate_schedule) == (8e-3, "0.0:0.008, 0.5:0.004, 1.0:0.0")


@pytest.mark.parametrize("device", ["python", pytest.param("cpu", id="threads"), pytest.param("cuda", marks=on_cuda())])
@pytest.mark.parametrize(("name", "high", "low"), [("ent_coef", 0.5, 0.0), ("clip_range", 0.2, 0.01)])
def test_a_jump_in_a_schedule_is_as_a_setting_that_changes_between_calls(name, high, low, device):
    """Trained parameters are the same bit for bit: of half a run each by two numbers, and of a schedule of both."""
    own = {"ent_coef": "entropy_coefficient", "clip_range": "clip"}[name]
    steady = {"learning_rate_schedule": "constant", "learning_rate": 0.1, "device": device, "epochs": 4}
    whole = make(PPO, **steady, **{name: [(0.0, high), (0.5, high), (0.5, low), (1.0, low)]})
    values = course(whole, 128, f"train/{own}")
    assert values == pytest.approx({steps: high if steps <= 64 else low for steps in range(16, 129, 16)})
    parts = make(PPO, **steady, **{name: high}).learn(64)
    setattr(parts, name, low)
    assert getattr(parts, name) == getattr(parts.config, own) == low
    parts.learn(64)
    assert parts.parameters.tobytes() == whole.parameters.tobytes()
    assert parts.parameters.tobytes() != make(PPO, **steady, **{name: high}).learn(128).parameters.tobytes()


@pytest.mark.parametrize(
    "schedule",
    [[(0.0, 1.0), (0.25, 0.5), (1.0, 0.0)], lambda left: 1 - 2 * (1 - left) if left > 0.75 else left * 2 / 3],
)
def test_exploration_of_dqn_follows_points(schedule):
    agent = make(DQN, exploration_rate=schedule)
    assert agent.config.exploration_initial == 1.0
    rates = course(agent, 512, "rollout/exploration_rate")
    for steps, rate in rates.items():
        done = steps / 512
        assert rate == pytest.approx(1 - 2 * done if done <= 0.25 else 2 / 3 * (1 - done), abs=1e-4)
    first = agent.exploration_over(128, 192)
    assert first[0] == pytest.approx(2 / 3, abs=1e-4)  # where the line of those steps meets the beginning
    assert make(DQN, exploration_rate=0.3).exploration == (0.3, 0.3, 0.1, 0.3)


def test_noise_of_td3_follows_a_schedule():
    agent = make(TD3, noise="linear", target_policy_noise=[(0.0, 0.4), (1.0, 0.0)])
    noise = course(agent, 512, "train/noise")
    assert len(noise) >= 4
    assert noise[512] == pytest.approx(agent.config.noise * (1 - progress_seen(TD3, agent, 512)))
    assert agent.metrics["train/smoothing"] == pytest.approx(0.4 * (1 - progress_seen(TD3, agent, 512)))


def test_schedules_are_saved_as_points_and_go_on(tmp_path):
    schedule = {"clip_range": lambda left: 0.1 + 0.2 * left**2}
    whole = make(PPO, **schedule).learn(128)
    part = make(PPO, **schedule)
    part.learn(128, lambda agent: agent.steps < 64)
    part.save(tmp_path / "part")
    loaded = PPO.load(tmp_path / "part").learn()
    assert loaded.config == part.config
    assert (loaded.steps, loaded.metrics["train/clip"]) == (whole.steps, whole.metrics["train/clip"])
    assert loaded.parameters.tobytes() == whole.parameters.tobytes()
    assert PPO.load(tmp_path / "part", clip_range=0.1).config.schedules is None
    again = PPO.load(tmp_path / "part", clip_range="linear(end=0.5)")
    assert (again.config.schedules, again.config.clip) == ({"clip": "linear(end=0.5)"}, 0.2)


def test_schedules_of_several_calls_go_on_with_the_count():
    """As in Stable-Baselines3: each call runs over its own steps, or with reset_num_timesteps=False over all."""
    seen = {}
    for anew in (True, False):
        agent = make(PPO, clip=[(0.0, 0.4), (1.0, 0.2)])
        for _ in range(2):
            seen[anew] = agent.learn(64, reset_num_timesteps=anew).metrics["train/clip"]
        assert agent.goal == (Goal(64, 64) if anew else Goal(0, 128))
    assert seen == {True: pytest.approx(0.4 - 0.2 * 48 / 64), False: pytest.approx(0.4 - 0.2 * 112 / 128)}


def test_every_scheduled_setting_is_one_that_something_reads():
    load_algorithms()
    for name, kind in ALGORITHMS.items():
        if issubclass(kind, DeepAgent):
            assert kind.Config.scheduled.keys() <= vars(kind.Config()).keys(), name


def test_rates_are_set_on_the_agent():
    for kind in (PPO, DQN, QLearning):
        agent = make(kind)
        schedule = agent.config.learning_rate_schedule
        agent.learning_rate = 2e-3
        assert (agent.learning_rate, agent.config.learning_rate_schedule) == (2e-3, schedule)
        agent.learning_rate = HALF
        assert course(agent, STEPS[kind])[STEPS[kind]] <= 1.01e-3
        agent.learning_rate = 5e-3  # in the place of the points
        rates = course(agent, STEPS[kind])
        assert set(rates.values()) == {5e-3}
        with pytest.raises(ValueError, match="learning_rate must be above 0"):
            agent.learning_rate = -1.0
        with pytest.raises(AttributeError, match=r"gamma stays as it was when the agent was made: .*learning_rate"):
            agent.gamma = 0.5
        assert agent.gamma == agent.config.gamma != 0.5


def test_schedules_by_name_are_for_files_and_commands():
    config = build_config(PPO.Config, {"schedules": {"clip": "linear(end=0.1)"}})
    assert config.schedules == {"clip": "linear(end=0.1)"}
    agent = make(PPO, schedules={"clip": "linear(end=0.5)"}, entropy_coefficient=[(0.0, 0.1), (1.0, 0.0)])
    assert agent.config.schedules == {"clip": "linear(end=0.5)", "entropy_coefficient": "0.0:0.1, 1.0:0.0"}


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (PPO, {"schedules": {"gamma": "linear"}}, "schedules: 'gamma' has no schedule; there are learning_rate"),
        (PPO, {"schedules": {"learning_rate": "linear"}}, "schedule of learning_rate is learning_rate_schedule: give"),
        (PPO, {"schedules": {"clip": "liner"}}, "clip: there is no schedule 'liner': did you mean 'linear'"),
        (PPO, {"schedules": {"clip": "linear"}, "clip": HALF}, "clip is given as a schedule: leave it out of sch"),
        (PPO, {"clip": [(0, 0.2), (0.5, 0)]}, "clip=0 turns it off, at 0.5 of its schedule: go down to a small number"),
        (PPO, {"clip": "warmup(0.1)"}, "clip=0 turns it off, at 0.0 of its schedule"),
        (PPO, {"gae_lambda": [(0, 2.0)]}, "gae_lambda must be .*at most 1, got 2.0|gae_lambda must be from 0 to 1"),
        (PPO, {"vf_coef": HALF}, "vf_coef: give the schedule to value_coefficient=, with values 2 times as large"),
        (PPO, {"learning_rate": "liner"}, "learning_rate: there is no schedule 'liner': did you mean 'linear'"),
        (PPO, {"learning_rate": [(0.0, 1.0), (1.0, -1.0)]}, "learning_rate must be at least 0, got -1.0 at 1.0"),
        (PPO, {"learning_rate": [0.1, 0.2]}, r"write points as \[\(0.0, 3e-4\), \(1.0, 0.0\)\], got \[0.1, 0.2\]"),
        (PPO, {"learning_rate": []}, "learning_rate: a schedule has from 1 to 10,000 points, got 0"),
        (PPO, {"gamma": "linear"}, "gamma='linear': give a number; those that change in training are"),
        (QLearning, {"learning_rate": [(0.0, 2.0)]}, "learning_rate must be .*at most 1, got 2.0"),
        (QLearning, {"exploration_rate": [(0.0, 2.0)]}, "exploration_rate must be from 0 to 1"),
        (QLearning, {"gamma": lambda left: left}, "gamma=.*: give a number; those that change in training are"),
    ],
)  # fmt: skip
def test_what_is_no_schedule_is_refused(kind, settings, message):
    with pytest.raises(ValueError, match=message):
        make(kind, **settings)
