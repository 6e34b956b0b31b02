"""Phases: where the time of training goes, as every learner counts it while it trains."""

from math import inf, sin

import gymnasium
import pytest
from choosing import slow_but

from velocirl import DQN, PPO, SAC, Box, Discrete, Environment, QLearning, float32, int32, record
from velocirl.engine.compiler import counters
from velocirl.monitor.phases import is_top, shares, tree_lines

ROLLOUT = ["rollout", "rollout/policy", "rollout/environment", "rollout/buffer"]
PARTS = ["sample", "gather", "forward", "loss", "backward", "optimiser", "waiting"]
UPDATE = ["update", *(f"update/{name}" for name in PARTS)]
ON_POLICY, OFF_POLICY = [*ROLLOUT, "estimate", *UPDATE], [*ROLLOUT, *UPDATE]
TABULAR = ["rollout", "rollout/policy", "rollout/environment", "update"]

PPO_SMALL = {"num_envs": 64, "horizon": 64, "minibatch_size": 512, "epochs": 2, "hidden": (16, 16), "threads": 1,
             "seed": 1, "shared": True, "activation": "tanh"}  # fmt: skip
DQN_SMALL = {"num_envs": 4, "hidden": (16, 16), "seed": 1, "learning_starts": 40, "batch_size": 16, "train_every": 4,
             "target_every": 12, "buffer_size": 3000, "gamma": 0.9, "threads": 1}  # fmt: skip
SAC_SMALL = {"hidden": (16, 16), "batch_size": 32, "learning_starts": 100, "buffer_size": 3000, "seed": 1, "threads": 1}
HOST = {"num_envs": 16, "horizon": 64}
AGENTS = {
    "ppo": (lambda: PPO("Counter-v0", **PPO_SMALL), 40_960, ON_POLICY),
    "ppo, two threads": (lambda: PPO("Counter-v0", **{**PPO_SMALL, "threads": 2}), 40_960, ON_POLICY),
    "ppo, gym": (lambda: PPO("gym:CartPole-v1", **{**PPO_SMALL, **HOST}), 2_048, ON_POLICY),
    "ppo, overlap": (
        lambda: PPO("gym:CartPole-v1", **{**PPO_SMALL, **HOST, "overlap": True, "estimator": "vtrace"}),
        2_048,
        ON_POLICY,
    ),
    "dqn": (lambda: DQN("Identity-v0", **DQN_SMALL), 20_000, OFF_POLICY),
    "dqn, two threads": (lambda: DQN("Identity-v0", **{**DQN_SMALL, "threads": 2}), 4_000, OFF_POLICY),
    "dqn, gym": (lambda: DQN("gym:CartPole-v1", **DQN_SMALL), 2_000, OFF_POLICY),
    "dqn, torch": (
        lambda: DQN("Identity-v0", network="mlp(16, 16)", device="cpu", **DQN_SMALL), 400, ["rollout", "update"],
    ),
    "sac": (lambda: SAC("Pendulum-v1", **SAC_SMALL), 2_000, OFF_POLICY),
    "q-learning": (lambda: QLearning("FrozenLake-v1", seed=1), 1_000_000, TABULAR),
    "q-learning, threads": (
        lambda: QLearning("FrozenLake-v1", seed=1, runtime="threads", workers=2), 1_000_000, TABULAR,
    ),
    "q-learning, processes": (
        lambda: QLearning("FrozenLake-v1", seed=1, runtime="processes", workers=2), 500_000, TABULAR,
    ),
    "q-learning, gym": (lambda: QLearning("gym:FrozenLake-v1", seed=1), 4_000, TABULAR),
}  # fmt: skip
QUICK = {"ppo", "dqn", "q-learning"}
WHOLE = ("ppo", "ppo, gym", "dqn", "dqn, gym", "sac", "q-learning", "q-learning, gym")  # with nobody to wait for

pytestmark = pytest.mark.usefixtures("one_torch_thread")


def parts_of(phases, parent):
    return {path: seconds for path, seconds in phases.items() if path.startswith(f"{parent}/")}


def covered(phases):
    """The least share of a phase that its parts have, of those with parts; what takes no time is of no account."""
    great = [path for path, share in shares(phases).items() if is_top(path) and share > 0.1 and parts_of(phases, path)]
    return min(sum(parts_of(phases, parent).values()) / phases[parent] for parent in great)


@pytest.mark.parametrize("name", slow_but(QUICK, AGENTS))
def test_every_learner_says_where_its_time_goes(name):
    make, steps, expected = AGENTS[name]
    rows = []
    agent = make().learn(steps, lambda agent: rows.append(dict(agent.metrics)))
    phases = agent.phases
    assert sorted(phases) == sorted(expected)
    assert [name for _, name, _, _ in tree_lines(phases)] == [path.rpartition("/")[2] for path in expected]
    assert all(seconds >= 0 for seconds in phases.values())
    assert all(phases[parent] > 0 for parent in phases if is_top(parent))
    for parent in filter(is_top, phases):
        assert sum(parts_of(phases, parent).values()) <= phases[parent] * (1 + 1e-9)
    told = {f"time/{path}_share": round(share, 4) for path, share in shares(phases).items()}
    assert agent.time_metrics(agent.steps).items() >= told.items()
    for row in rows:  # each one names them all
        assert {name for name in row if name.startswith("time/") and name.endswith("_share")} == told.keys()
    assert sum(shares(phases)[path] for path in filter(is_top, phases)) == pytest.approx(1)
    assert sum(phases[path] for path in filter(is_top, phases)) <= agent.metrics["time/time_elapsed"] + 1e-3


@pytest.mark.parametrize("name", slow_but(QUICK, WHOLE))
def test_parts_make_up_most_of_their_phase(name):
    make, steps, _ = AGENTS[name]
    agent = make()
    assert max(covered(agent.learn(steps).phases) for _ in range(3)) > 0.8


def test_each_call_of_learn_begins_at_nothing():
    agent = PPO("Counter-v0", **PPO_SMALL).learn(40_960)
    before = dict(agent.phases)
    agent.learn(4_096)
    assert agent.phases.keys() == before.keys()
    assert sum(agent.phases.values()) < sum(before.values())


@record
class Wave:
    height: float32


@record
class Effort:
    turns: int32 = 0


def begin(state, params, rng):
    state.height = 0.0


def swing(state, params, action, rng):
    """As much work as the parameters ask for, whose result is of no account."""
    height = state.height
    for _ in range(params.turns):
        height = sin(height + 1.0)
    state.height = height
    return float(action), False


def show(state, params, observation):
    observation[0] = state.height


@pytest.mark.parametrize("algorithm", [PPO, pytest.param(DQN, marks=pytest.mark.slow)])
def test_an_environment_that_was_made_slow_is_found_out(algorithm):
    wave = Environment(
        "Wave-v0", state=Wave, params=Effort, observation=Box(-inf, inf, shape=(1,)), action=Discrete(2),
        max_steps=20, reset=begin, step=swing, observe=show,
    )  # fmt: skip
    settings, steps = (PPO_SMALL, 20_480) if algorithm is PPO else (DQN_SMALL, 4_000)
    quick, slow = (
        shares(algorithm(wave, params={"turns": turns}, **settings).learn(steps).phases) for turns in (0, 2_000)
    )
    assert quick["rollout/environment"] < 0.3
    assert slow["rollout/environment"] > 0.7
    assert slow["rollout/environment"] > 0.8 * slow["rollout"]
    assert slow["rollout/policy"] < quick["rollout/policy"]


class Idler(gymnasium.Env):
    """Takes its time for a step, in Python."""

    observation_space, action_space = gymnasium.spaces.Discrete(4), gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        sum(range(20_000))
        return int(self.np_random.integers(4)), 1.0, bool(self.np_random.random() < 0.1), False, {}


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [PPO, DQN, QLearning])
def test_a_slow_environment_in_python_is_found_out(algorithm):
    gymnasium.register("Idler-v7", Idler)
    try:
        settings = {PPO: {**PPO_SMALL, **HOST}, DQN: DQN_SMALL}.get(algorithm, {"seed": 1})
        found = shares(algorithm("gym:Idler-v7", **settings).learn(600).phases)
    finally:
        gymnasium.registry.pop("Idler-v7")
    assert found["rollout/environment"] > 0.7


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ppo, two threads", "dqn", "sac", "q-learning"])
def test_counting_changes_nothing_else(name, monkeypatch):
    """Compiled with counters and without them: bit for bit the same, also after a checkpoint."""
    make, steps, _ = AGENTS[name]
    counted = make().learn(steps)
    monkeypatch.setattr(counters, "COUNTING", False)
    monkeypatch.setenv("VELOCIRL_COUNTERS", "0")  # for the process that compiles ahead
    bare = make().learn(steps)
    assert not any("/" in path for path in bare.phases)
    assert counted.parameters.tobytes() == bare.parameters.tobytes()
    resumed = type(counted).from_state(counted.state())
    monkeypatch.setattr(counters, "COUNTING", True)
    assert resumed.learn(steps).parameters.tobytes() == bare.learn(steps).parameters.tobytes()


PHASES = {"update/forward": 1.0, "rollout": 2.0, "update": 6.0, "other/part": 0.5, "update/loss": 3.0, "other": 2.0,
          "rollout/magic": 1.0, "rollout/policy": 0.5}  # fmt: skip


def test_shares_are_of_all_phases_together():
    found = shares(PHASES)
    assert found == {path: seconds / 10 for path, seconds in PHASES.items()}
    assert sum(share for path, share in found.items() if is_top(path)) == 1
    assert shares({}) == {}
    assert shares({"rollout": 0.0, "rollout/policy": 0.0}) == {"rollout": 0.0, "rollout/policy": 0.0}


def test_lines_come_in_the_order_of_what_happens_with_parts_after_their_phase():
    assert tree_lines(PHASES) == [
        (0, "rollout", 2.0, 0.2),
        (1, "policy", 0.5, 0.05),
        (1, "magic", 1.0, 0.1),
        (0, "update", 6.0, 0.6),
        (1, "forward", 1.0, 0.1),
        (1, "loss", 3.0, 0.3),
        (0, "other", 2.0, 0.2),
        (1, "part", 0.5, 0.05),
    ]
    assert tree_lines({}) == []
