"""Settings that change in training: as functions, names and points, saved, resumed, and of every kind of learner."""

import dataclasses

import pytest
from choosing import on_cuda
from recorded import made_up

from velocirl import BC, CQL, DQN, IQL, PPO, SAC, TD3, TD3BC, DiscreteSAC, QLearning, ReBRAC
from velocirl.algorithms import load_algorithms
from velocirl.training import off_policy, offline
from velocirl.training.deep_agent import DeepAgent
from velocirl.training.persistence import ALGORITHMS, Goal
from velocirl.training.settings.config import build_config
from velocirl.training.settings.scheduled import scheduled_of

TINY = {"hidden": (4,), "threads": 1, "seed": 1, "device": "python"}
KINDS = {
    PPO: ("Counter-v0", {**TINY, "num_envs": 2, "horizon": 8, "minibatch_size": 16, "epochs": 1}),
    DQN: ("Counter-v0", {**TINY, "num_envs": 2, "learning_starts": 4, "batch_size": 4, "train_every": 8}),
    SAC: ("Pendulum-v1", {**TINY, "num_envs": 2, "learning_starts": 4, "batch_size": 4, "train_every": 8}),
    TD3: ("Pendulum-v1", {**TINY, "num_envs": 2, "learning_starts": 4, "batch_size": 4, "train_every": 8}),
    DiscreteSAC: ("CartPole-v1", TINY),
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


# A setting that changes half-way, of online algorithms and of those that learn from data.
STEADY = {"learning_rate_schedule": "constant", "learning_rate": 0.02}
ROLLOUTS = {**STEADY, "epochs": 4, "normalise_rewards": True, "learning_rate": 0.1}
JUMPS = [
    (PPO, "gamma", 0.99, 0.5, ROLLOUTS),
    (PPO, "target_kl", 0.5, 1e-5, ROLLOUTS),
    (PPO, "max_grad_norm", 0.5, 1e-3, {**ROLLOUTS, "optimiser": "sgd"}),
    (SAC, "gamma", 0.99, 0.5, STEADY),
    (SAC, "tau", 0.5, 0.01, STEADY),
    (SAC, "target_entropy", -4.0, 1.0, STEADY),
    (DQN, "tau", 1.0, 0.1, {**STEADY, "target_every": 2, "n_step": 3, "exploration_rate": 0.3}),
    (DQN, "gamma", 0.9, 0.5, {**STEADY, "n_step": 3, "exploration_rate": 0.3}),
    (CQL, "conservatism", 5.0, 0.1, STEADY),
    (CQL, "tau", 0.5, 0.01, STEADY),
    (IQL, "expectile", 0.9, 0.5, STEADY),
    (TD3BC, "alpha", 2.5, 0.1, STEADY),
    (ReBRAC, "actor_penalty", 0.1, 2.0, STEADY),
    (ReBRAC, "gamma", 0.9, 0.5, STEADY),
    (PPO, "max_grad_value", 1.0, 1e-3, {**ROLLOUTS, "optimiser": "sgd"}),
    (BC, "max_grad_norm", 1.0, 1e-4, {**STEADY, "optimiser": "sgd"}),
]  # fmt: skip
QUICK = [(PPO, "gamma"), (SAC, "gamma"), (SAC, "tau"), (CQL, "tau")]  # compiled and of torch each time
LEARNERS = {
    "python": {"device": "python"},
    "threads": {"device": "cpu"},
    "torch": {"device": "cpu", "network": "mlp(4)"},
}
CUDA = {"device": "cuda"}


def jumping():
    for case in JUMPS:
        for learner, settings in {**LEARNERS, "cuda": CUDA}.items():
            marks = on_cuda() if learner == "cuda" else []
            if learner in ("threads", "torch") and case[:2] not in QUICK:
                marks = [pytest.mark.slow]
            yield pytest.param(*case, settings, marks=marks, id=f"{case[0].__name__}-{case[1]}-{learner}")


@pytest.mark.parametrize(("kind", "name", "high", "low", "beside", "learner"), list(jumping()))
def test_any_float_jumps_as_one_that_is_set_between_calls(kind, name, high, low, beside, learner, monkeypatch):
    """Half of the training by each number is the same bit for bit, and neither is all of it by the first."""
    for of_device in (off_policy.STEPS, offline.UPDATES):
        for device in of_device:
            monkeypatch.setitem(of_device, device, 16)

    def made(**settings):
        own = {**beside, **learner, **settings}
        if kind in KINDS:
            return make(kind, **own)
        few = {"samples": 2} if kind is CQL else {}
        return kind(data=made_up("Pendulum-v1"), **{**TINY, **few, "batch_size": 4, **own})

    steps = {PPO: 128, DQN: 256, SAC: 256}.get(kind, 64)
    whole = made(**{name: [(0.0, high), (0.5, high), (0.5, low), (1.0, low)]})
    values = course(whole, steps, f"train/{name}")
    assert len(values) >= 4
    assert values == pytest.approx({at: high if at <= steps / 2 else low for at in values})
    parts = made(**{name: high}).learn(steps // 2)
    setattr(parts, name, low)
    parts.learn(steps // 2)
    assert parts.parameters.tobytes() == whole.parameters.tobytes()
    arrays, theirs = parts.arrays(), whole.arrays()
    assert [one for one in arrays if arrays[one].tobytes() != theirs[one].tobytes()] == []
    steady = made(**{name: high}).learn(steps).arrays()
    assert any(steady[one].tobytes() != theirs[one].tobytes() for one in theirs)


@pytest.mark.parametrize("kind", [SAC, CQL])
def test_settings_of_all_kinds_go_on_where_they_were_saved(kind, tmp_path, monkeypatch):
    monkeypatch.setitem(off_policy.STEPS, "python", 16)
    monkeypatch.setitem(offline.UPDATES, "python", 16)
    given = {"gamma": lambda left: 1 - 0.1 * left, "tau": "linear(end=0.1)", "target_entropy": [(0, -1), (1, -3)],
             "max_grad_norm": [(0.0, 10.0), (1.0, 0.1)]}  # fmt: skip

    def made():
        if kind is SAC:
            return make(SAC, **given)
        return CQL(data=made_up("Pendulum-v1"), **TINY, batch_size=4, samples=2, **given)

    whole, part = made().learn(128), made()
    part.learn(128, lambda agent: agent.steps < 64)
    assert part.steps == 64
    part.save(tmp_path / "part")
    again = {} if kind is SAC else {"data": made_up("Pendulum-v1")}
    loaded = kind.load(tmp_path / "part", **again).learn()
    assert loaded.config.schedules == part.config.schedules
    assert {"gamma", "tau", "target_entropy", "max_grad_norm"} == set(part.config.schedules)
    ours, theirs = loaded.arrays(), whole.arrays()
    assert [one for one in theirs if ours[one].tobytes() != theirs[one].tobytes()] == []
    assert loaded.metrics["train/target_entropy"] == pytest.approx(-1 - 2 * 112 / 128)


def test_a_name_multiplies_the_usual_target_entropy():
    agent = make(SAC, target_entropy="linear(end=3)")
    assert agent.config.target_entropy is None
    targets = course(agent, 512, "train/target_entropy")
    for steps, target in targets.items():
        assert target == pytest.approx(-1 - 2 * progress_seen(SAC, agent, steps))


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
            known = scheduled_of(kind.Config)
            assert known.keys() <= {field.name for field in dataclasses.fields(kind.Config)}, name
            assert known.keys() >= {"learning_rate", "max_grad_norm", "max_grad_value"}, name
            assert ("gamma" in known) == (not hasattr(kind.Config, "episode_steps")), name  # by which costs are told
            assert "cost_limit" not in known, name


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
        stays, least = {QLearning: ("gamma", 0.5)}.get(kind, ("num_envs", 3))
        with pytest.raises(AttributeError, match=rf"{stays} stays as it was when the agent was made: .*learning_rate"):
            setattr(agent, stays, least)
        assert getattr(agent, stays) == getattr(agent.config, stays) != least


@pytest.mark.parametrize(("given", "changed"), [(0.0, 0.01), (0.01, 0.0)])
def test_what_an_agent_is_built_with_or_without_stays_so(given, changed):
    agent = make(PPO, target_kl=given)
    with pytest.raises(
        AttributeError, match=r"target_kl=0 turns it off: give it to PPO\(\.\.\.\), which is made with or"
    ):
        agent.target_kl = changed
    assert agent.target_kl == given


def test_schedules_by_name_are_for_files_and_commands():
    config = build_config(PPO.Config, {"schedules": {"clip": "linear(end=0.1)"}})
    assert config.schedules == {"clip": "linear(end=0.1)"}
    agent = make(PPO, schedules={"clip": "linear(end=0.5)"}, entropy_coefficient=[(0.0, 0.1), (1.0, 0.0)])
    assert agent.config.schedules == {"clip": "linear(end=0.5)", "entropy_coefficient": "0.0:0.1, 1.0:0.0"}


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (PPO, {"schedules": {"horizon": "linear"}}, "schedules: 'horizon' has no schedule; there are learning_rate"),
        (PPO, {"gamma": "linear(end=2)"}, r"gamma must be from 0 to 1, got 1\.9"),
        (PPO, {"gamma": [(0.0, 0.9), (1.0, -0.1)]}, r"gamma must be from 0 to 1, got -0\.1"),
        (PPO, {"rho_limit": [(0.0, 1.0), (1.0, 2.0)]}, "rho_limit: PPO .*does not read it in training: give a number"),
        (PPO, {"target_kl": [(0.0, 0.01), (0.5, 0.0)]}, "target_kl=0 turns it off, at 0.5 of its schedule"),
        (SAC, {"tau": [(0.0, 0.01), (1.0, 0.0)]}, r"tau must be above 0 and at most 1, got 0\.0"),
        (SAC, {"temperature": [(0.0, 0.1), (1.0, 0.01)]}, "temperature=.*: give a number; those that change .* tau, "),
        (SAC, {"ent_coef": "linear"}, "temperature='linear': give a number; those that change in training are"),
        (SAC, {"priority_beta": [(0.0, 0.1)]}, "priority_beta=.*: give a number; those that change in training are"),
        (DiscreteSAC, {"entropy_share": "linear"}, "entropy_share='linear': give a number; .*target_entropy"),
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
        (PPO, {"horizon": "linear"}, "horizon='linear': give a number; those that change in training are"),
        (QLearning, {"learning_rate": [(0.0, 2.0)]}, "learning_rate must be .*at most 1, got 2.0"),
        (QLearning, {"exploration_rate": [(0.0, 2.0)]}, "exploration_rate must be from 0 to 1"),
        (QLearning, {"gamma": lambda left: left}, "gamma=.*: give a number; those that change in training are"),
    ],
)  # fmt: skip
def test_what_is_no_schedule_is_refused(kind, settings, message):
    with pytest.raises(ValueError, match=message):
        make(kind, **settings)
