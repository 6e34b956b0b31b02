"""Collectors of rollouts: one computes what none does, what they bring is consistent, and failures are mended."""

import gc
import time
from functools import partial

import numpy as np
import pytest
from busy import Counting, Showing, gone

import velocirl
from velocirl.buffers.records import GOES_ON, TERMINATED, TRUNCATED
from velocirl.collect.collectors.columns import Columns
from velocirl.engine.errors import DefinitionError

SMALL = {
    "seed": 3, "num_envs": 4, "horizon": 16, "minibatch_size": 32, "epochs": 2, "hidden": (8,), "estimator": "vtrace",
    "threads": 1, "normalise_observations": False, "normalise_rewards": False,
}  # fmt: skip
ROLLOUT = 64
PYTHON, THREADS = {"device": "python"}, {"device": "cpu"}
NORMALISED = {"normalise_observations": True, "normalise_rewards": True}


def agent_for(environment=Counting, algorithm=velocirl.PPO, **settings):
    return algorithm(environment, **{**SMALL, **settings})


def trained(environment=Counting, rollouts=3, **settings):
    return agent_for(environment, **settings).learn(rollouts * ROLLOUT, progress=False)


def check_same(mine, theirs):
    first, second = mine.arrays(), theirs.arrays()
    assert first.keys() == second.keys()
    for name, array in first.items():
        assert np.array_equal(np.asarray(array), np.asarray(second[name])), name
    assert list(mine.recent.returns) == list(theirs.recent.returns)


def check_counting(agent):
    """Every step of the last rollout counts on by one, and ends where Counting does."""
    collector = agent.learner.collector
    records = np.asarray(collector.recorded.records)
    seen, ended = records["observation"][..., 0], records["ended"][:, :-1]
    assert records.shape == (4, 17)
    assert (records["reward"][:, :-1] == seen[:, :-1]).all()
    assert ((ended == TERMINATED) == (seen[:, :-1] == 9)).all()
    assert (seen[:, :-1][ended == TRUNCATED] == 6).all()
    assert (seen[:, 1:] == np.where(ended == GOES_ON, seen[:, :-1] + 1, 0)).all()
    assert (records["log_probability"][:, :-1] < 0).all()
    assert (records["final_value"][:, :-1][ended == TRUNCATED] != 0).all()


CASES = {
    "in Python": (Counting, {**PYTHON, **NORMALISED}),
    "on threads": (Counting, {**THREADS, "normalise_rewards": True}),
    "of numbers": ("gym:Pendulum-v1", {**THREADS, **NORMALISED}),
    "of pictures": (Showing, {**THREADS, "network": "mlp(8, norm=layer)"}),
    "of a network that remembers": ("gym:CartPole-v1", {**THREADS, **NORMALISED, "network": "mlp(8) lstm(4)"}),
    "of a network with statistics": (Counting, {**THREADS, "network": "mlp(8, norm=batch)"}),
    "of A2C": (Counting, {**PYTHON, "algorithm": velocirl.A2C, "epochs": 1}),
}
QUICK = {"in Python", "on threads"}


@pytest.mark.parametrize("case", [one if one in QUICK else pytest.param(one, marks=pytest.mark.slow) for one in CASES])
def test_one_paced_collector_computes_what_none_does(case):
    environment, settings = CASES[case]
    check_same(*(trained(environment, **settings, **more) for more in ({"workers": 0}, {"collectors": 1})))


def test_a_collector_that_is_a_rollout_ahead_computes_what_overlapping_does():
    overlapped = trained(overlap=True, workers=0, **PYTHON)
    ahead = trained(collectors=1, collect_ahead=1, **PYTHON)
    assert (overlapped.parameters == ahead.parameters).all()
    assert list(overlapped.recent.returns) == list(ahead.recent.returns)
    assert ahead.learner.gauges()["collector/age_of_weights"] == 4  # the updates of an iteration


@pytest.mark.slow
def test_several_paced_collectors_give_one_result_for_a_seed():
    first, again = (trained(collectors=2, rollouts=5, **THREADS) for _ in range(2))
    check_same(first, again)
    check_counting(first)
    gauges = first.learner.gauges()
    assert gauges["collector/given"] == 6 * ROLLOUT  # one is ahead
    assert gauges["learner/processed"] == 5 * ROLLOUT
    assert gauges["collector/dropped"] == 0


def test_free_collectors_never_wait_and_what_they_bring_is_consistent():
    def learn_slowly(agent):
        check_counting(agent)
        time.sleep(0.2)

    agent = agent_for(collectors=2, collect_mode="free", **PYTHON)
    agent.learn(5 * ROLLOUT, learn_slowly, progress=False)
    gauges = agent.learner.gauges()
    assert gauges["learner/processed"] == agent.steps == 5 * ROLLOUT
    assert gauges["collector/waiting_seconds"] == 0
    assert gauges["collector/dropped"] > 0
    assert set(agent.recent.returns) <= {45.0, 21.0}
    time.sleep(0.3)
    resting = agent.learner.gauges()
    time.sleep(0.2)
    assert agent.learner.gauges() == resting


def fails_when_told(fail, flag, mode, faults):
    """Train while so many collectors fail, one after the other."""

    def plant(agent):
        check_counting(agent)
        if not flag.exists() and agent.learner.gauges()["restarts"] >= plant.planted:
            if plant.planted == faults:
                return False
            plant.planted += 1
            flag.touch()
        return True

    plant.planted = 0
    agent = agent_for(
        partial(Counting, str(flag), fail), collectors=2, collect_mode=mode, collector_restarts=100,
        collector_timeout=2.0 if fail == "hang" else 60.0, **PYTHON,
    )  # fmt: skip
    with pytest.warns(RuntimeWarning, match="It is replaced, and its episodes are left unfinished"):
        agent.learn(1_000_000, plant, progress=False)
    return agent


MANY = [
    pytest.param(fail, mode, 10, marks=pytest.mark.slow)
    for fail in ("raise", "kill", "exit", "hang")
    for mode in ("paced", "free")
]


@pytest.mark.parametrize(("fail", "mode", "faults"), [("raise", "paced", 1), *MANY])
def test_collectors_that_fail_are_replaced_and_their_rollouts_begun_anew(fail, mode, faults, tmp_path):
    agent = fails_when_told(fail, tmp_path / "flag", mode, faults)
    assert agent.learner.gauges()["restarts"] >= faults  # a busy machine may make one more seem to hang


@pytest.mark.slow
def test_a_rollout_that_takes_longer_than_a_step_may_is_not_taken_to_hang():
    agent = agent_for(
        partial(Counting, pause=0.05), collectors=1, collector_timeout=1.5, collector_restarts=0, **PYTHON
    )
    agent.learn(ROLLOUT, progress=False)  # of 16 steps of 4 x 0.05 s
    assert agent.learner.gauges()["restarts"] == 0


@pytest.mark.slow
def test_collectors_end_in_the_middle_of_a_rollout(monkeypatch):
    monkeypatch.setattr("velocirl.vector.host.worker_handle.GRACE", 100.0)
    agent = agent_for(partial(Counting, pause=0.01), collectors=2, horizon=10_000, **PYTHON)
    agent.prepare()
    collected = agent.learner.collector.collected
    collected.publish()
    collected._give_orders()
    time.sleep(0.5)
    began = time.monotonic()
    collected.close()
    assert time.monotonic() - began < 50  # a rollout takes 200 s


@pytest.mark.slow
def test_nothing_is_left_behind():
    agent = trained(rollouts=1, collectors=2, **PYTHON)
    processes = agent.learner.collector.collected.processes
    assert len(processes) == 2
    del agent
    gc.collect()
    assert gone(processes)


def interrupted(path, **settings):
    trained(**PYTHON, **settings).save(path)
    return velocirl.PPO.load(path, Counting).learn(3 * ROLLOUT, progress=False)


def test_a_run_with_one_paced_collector_goes_on_as_one_without_any(tmp_path):
    check_same(*(interrupted(tmp_path / "agent.velocirl", **more) for more in ({"workers": 0}, {"collectors": 1})))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["paced", "free"])
def test_what_waits_in_rings_is_collected_anew_when_a_run_goes_on(mode, tmp_path):
    agent = interrupted(tmp_path / "agent.velocirl", collectors=2, collect_mode=mode)
    check_counting(agent)
    assert agent.steps == 6 * ROLLOUT
    without = velocirl.PPO.load(tmp_path / "agent.velocirl", Counting, collectors=None, workers=0)
    assert without.learn(ROLLOUT, progress=False).steps == 4 * ROLLOUT


@pytest.mark.slow
def test_a_number_that_is_none_stops_training():
    agent = agent_for(partial(Infinite, at=5), collectors=2, **PYTHON)
    with pytest.raises(DefinitionError, match="Infinite: step returns the reward inf; a reward must be finite"):
        agent.learn(ROLLOUT, progress=False)
    assert gone(agent.learner.collector.collected.processes)


class Infinite(Counting):
    """Pays infinity in one step."""

    def step(self, action):
        seen, reward, *rest = super().step(action)
        return seen, np.inf if reward == self.at else reward, *rest


@pytest.mark.parametrize(
    ("algorithm", "environment", "settings", "said"),
    [
        (velocirl.PPO, Counting, {"estimator": "gae"}, "collectors act by earlier weights, which PPO and A2C"),
        (velocirl.PPO, Counting, {"overlap": True}, "overlap and collectors both collect while the learner learns"),
        (velocirl.PPO, Counting, {"num_envs": 3}, "num_envs=3 copies cannot be shared out evenly to collectors=2"),
        (velocirl.PPO, Counting, {"workers": 2}, "workers and collectors are both processes"),
        (velocirl.PPO, Counting, {"ring_size": 9}, "ring_size"),
        (velocirl.PPO, "CartPole-v1", {}, "CartPole-v1 is compiled"),
        (velocirl.FOCOPS, Counting, {"estimator": ...}, "collectors act by earlier weights, which PPO and A2C"),
        (
            velocirl.PPOLagrangian,
            Counting,
            {"estimator": "gae"},
            "collectors act by earlier weights, which PPO and A2C",
        ),
    ],
)
def test_settings_that_collectors_cannot_have_are_refused(algorithm, environment, settings, said):
    given = {name: value for name, value in {**SMALL, **settings}.items() if value is not ...}
    with pytest.raises((ValueError, TypeError), match=said):
        algorithm(environment, collectors=2, **given)


def test_columns_of_two_collectors_are_those_of_all_copies():
    def columns(copies):
        numbers = np.arange(copies * 3, dtype=np.float32).reshape(copies, 3)
        return Columns(
            records=np.zeros((copies, 4, 8), np.uint8),
            ends=np.full((copies, 3), -1, np.int32), returns=numbers, lengths=numbers.astype(np.int32),
            fault=np.arange(copies, dtype=np.int32), reported=np.zeros((copies, 0, 3), np.float32),
            reward_sums=np.ones((copies, 2)), observation_sums=np.zeros((0, 2, 5)),
            start_state=np.zeros((copies, 0), np.float32), frames=np.zeros((copies, 0, 0), np.uint8),
        )  # fmt: skip

    kinds = [(name, one.dtype, one.shape[1:]) for name, one in columns(2)._asdict().items()]
    rows, own, all_of_them = np.zeros(2, kinds), columns(2), columns(4)
    own.ends[1, 2] = 2 * 2 + 1  # step 2 of copy 1 of 2
    own.write(rows)
    all_of_them.read(rows, slice(2, 4))
    assert all_of_them.ends.tolist() == [[-1] * 3, [-1] * 3, [-1] * 3, [-1, -1, 2 * 4 + 3]]
    assert all_of_them.returns.tolist() == [[0, 1, 2], [3, 4, 5], [0, 1, 2], [3, 4, 5]]
    assert all_of_them.fault.tolist() == [0, 1, 0, 1]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["paced", "free"])
def test_ppo_with_collectors_learns_cartpole(mode):
    agent = velocirl.PPO(
        "gym:CartPole-v1", seed=0, estimator="vtrace", collectors=2, collect_mode=mode, num_envs=8, horizon=64,
        minibatch_size=128, epochs=4, learning_rate=3e-3, learning_rate_schedule="constant", hidden=(32,),
    )  # fmt: skip
    agent.learn(60_000, progress=False)
    assert velocirl.evaluate(agent, episodes=20, seed=1).mean_return >= 400
