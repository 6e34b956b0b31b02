"""Settings that change in training: as functions, names and points, saved, resumed, and of every kind of learner."""

import pytest

from velocirl import DQN, PPO, SAC, QLearning

TINY = {"hidden": (4,), "threads": 1, "seed": 1, "device": "python"}
KINDS = {
    PPO: ("Counter-v0", {**TINY, "num_envs": 2, "horizon": 8, "minibatch_size": 16, "epochs": 1}),
    DQN: ("Counter-v0", {**TINY, "num_envs": 2, "learning_starts": 4, "batch_size": 4, "train_every": 8}),
    SAC: ("Pendulum-v1", {**TINY, "num_envs": 2, "learning_starts": 4, "batch_size": 4, "train_every": 8}),
    QLearning: ("FrozenLake-v1", {"seed": 1}),
}
STEPS = {PPO: 128, DQN: 512, SAC: 512, QLearning: 200_000}
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


@pytest.mark.parametrize("kind", KINDS)
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


@pytest.mark.parametrize("kind", KINDS)
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


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
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
