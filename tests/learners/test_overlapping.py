"""Collecting while learning: that both really go on at once, with the policy of one update earlier, and safely."""

import gc
import importlib.util
import os
import signal
import threading
import time

import gymnasium
import numpy as np
import pytest

import velocirl
from velocirl import PPO, NumericalError
from velocirl.bench.suite.training import overlap
from velocirl.monitor.gauges import gauges_of
from velocirl.training.persistence import Goal

SMALL = {
    "num_envs": 4, "horizon": 8, "minibatch_size": 16, "epochs": 2, "hidden": (16, 16), "shared": True, "threads": 1,
    "seed": 3, "learning_rate": 0.01, "overlap": True, "estimator": "vtrace", "workers": 0, "layer_norm": False,
}  # fmt: skip
BATCH = 32


class Walk(gymnasium.Env):
    """Random numbers to look at; episodes of 5 steps. It may take its time, or go wrong in its step number `at`."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    taken = 0  # steps of all copies

    def __init__(self, seconds=0.0, at=-1, raises=1):
        self.seconds, self.at, self.raises = seconds, at, raises
        self.count = self.length = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.length = 0
        return self.look(), {}

    def step(self, action):
        time.sleep(self.seconds)
        Walk.taken += 1
        self.count += 1
        self.length += 1
        reward = float(action)
        if self.count == self.at:
            if self.raises:
                raise OSError("the simulator is gone")
            reward = np.nan
        return self.look(), reward, self.length == 5, False, {}

    def look(self):
        return self.np_random.normal(2.0, 3.0, 4).astype(np.float32)


@pytest.fixture(autouse=True)
def _registered():
    gymnasium.register("Walk-v0", Walk, disable_env_checker=True)
    yield
    gymnasium.registry.pop("Walk-v0")


def prepared(environment="gym:Walk-v0", **changes):
    agent = PPO(environment, **{**SMALL, **changes})
    agent.goal = Goal(0, 10**6)
    agent.prepare()
    return agent


def learnt_from(agent):
    """The samples of the rollout that the learner has, one copy after another."""
    return agent.learner.recorded.records[:, :-1].reshape(-1)


def log_probabilities(agent, parameters, samples):
    """Of the samples' actions, under a policy with these parameters."""
    values = samples["observation"].astype(np.float64)
    *hidden, (weights, biases) = agent.network.layers(parameters)
    for inner, offset in hidden:
        values = np.tanh(values @ inner + offset)
    logits = (values @ weights + biases)[:, :2]
    logits -= np.log(np.exp(logits).sum(1, keepdims=True))
    return logits[np.arange(len(samples)), samples["action"][:, 0]]


def assert_nobody_collects(before):
    """All threads that were started since have ended, or end now."""
    gc.collect()
    deadline = time.monotonic() + 10.0
    while started := [one for one in threading.enumerate() if one not in before and "collecting" in one.name]:
        assert time.monotonic() < deadline, started
        time.sleep(0.01)


@pytest.mark.parametrize(("threads", "learning"), [(1, 1), (2, 1), (4, 3)])
def test_a_rollout_is_by_the_policy_of_one_update_earlier(threads, learning):
    agent = prepared(threads=threads, shares=2)
    assert agent.learner.device.team.threads == learning  # one thread is for Python
    policies, rollouts = [agent.parameters.copy()], []
    for _ in range(5):
        agent.iterate()
        policies.append(agent.parameters.copy())
        rollouts.append(learnt_from(agent).copy())
    for k, rollout in enumerate(rollouts):
        behaviour = policies[max(k - 1, 0)]  # the first two rollouts are those of the first policy
        np.testing.assert_allclose(rollout["log_probability"], log_probabilities(agent, behaviour, rollout), atol=1e-5)
        if k > 0:
            later = log_probabilities(agent, policies[k], rollout)
            assert np.abs(rollout["log_probability"] - later).max() > 1e-3
    assert len(np.unique([rollout["observation"][:, 0] for rollout in rollouts])) == 5 * BATCH  # each learnt from once


def test_results_do_not_depend_on_timing():
    agents = [prepared(threads=4, shares=2, params={"seconds": seconds}) for seconds in (0.0, 1e-3)]
    for _ in range(4):
        for agent in agents:
            agent.iterate()
    assert agents[0].parameters.tobytes() == agents[1].parameters.tobytes()


def test_who_waits_is_said():
    agent = prepared(params={"seconds": 2e-3})
    assert gauges_of(agent) == {
        "queue/length": 0.0, "learner/waiting_seconds": 0.0, "collector/waiting_seconds": 0.0,
    }  # fmt: skip
    began = time.monotonic()
    for _ in range(3):
        agent.iterate()
    elapsed = time.monotonic() - began
    waited = gauges_of(agent)["learner/waiting_seconds"]
    # For the first rollout, which takes this long, and a good part of the others.
    assert 2e-3 * BATCH < waited <= elapsed
    agent.learner.wait()
    time.sleep(0.05)
    gauges = gauges_of(agent)
    assert gauges["queue/length"] == 1.0
    assert gauges["collector/waiting_seconds"] >= 0.05
    assert gauges["learner/waiting_seconds"] == waited


@pytest.mark.slow  # what it measures needs a quiet machine
def test_both_go_on_at_once():
    slow = {"params": {"seconds": 200e-6}, "horizon": 64, "minibatch_size": 64, "hidden": (64, 64)}
    apart = prepared(overlap=False, epochs=4, **slow)
    apart.iterate()
    spent = []
    for _ in range(4):
        apart.phases.clear()
        apart.iterate()
        spent.append((apart.phases["rollout"], apart.phases["estimate"] + apart.phases["update"]))
    rollout, four_epochs = np.min(spent, axis=0)
    assert rollout >= 4 * 64 * 200e-6
    epochs = max(round(4 * rollout / four_epochs), 1)  # that take as long as the rollout
    both = [prepared(overlap=overlaps, epochs=epochs, **slow) for overlaps in (False, True)]
    seconds = [], []
    for _ in range(8):
        for agent, measured in zip(both, seconds, strict=True):
            start = time.perf_counter()
            agent.iterate()
            agent.drain()
            measured.append(time.perf_counter() - start)
    one_after_the_other, together = (min(measured[1:]) for measured in seconds)
    assert together < 0.8 * one_after_the_other


@pytest.mark.slow
def test_cartpole_of_gymnasium_is_learnt():
    """A random policy earns about 22; 500 is perfect."""
    agent = PPO(
        "gym:CartPole-v1", seed=0, overlap=True, estimator="vtrace", num_envs=16, horizon=32, minibatch_size=128,
        epochs=8, learning_rate=2e-3, gamma=0.98, gae_lambda=0.9, entropy_coefficient=0.0, threads=2, shared=True,
    ).learn(120_000)  # fmt: skip
    assert velocirl.evaluate(agent, episodes=50, seed=1).mean_return >= 300


def test_a_saved_rollout_is_learnt_from_after_a_resume(tmp_path):
    """What is learnt from it is the very same as without an interruption, normalisers and episodes included."""
    agent = prepared(threads=4, shares=2, normalise_observations=True, normalise_rewards=True)
    for _ in range(3):
        agent.iterate()
    loaded = PPO.load(agent.save(tmp_path / "agent"))
    loaded.prepare()
    waiting = loaded.arrays()["waiting.records"]
    for one in (agent, loaded):
        one.iterate()
    records = loaded.learner.recorded.records
    saved = waiting.view(records.dtype).T
    for name in ("observation", "action", "log_probability", "ended"):
        np.testing.assert_array_equal(records[:, :-1][name], saved[:, :-1][name])
    np.testing.assert_array_equal(records["value"], saved["value"])  # with those after the last steps
    agent.learner.settle()
    scale = float(agent.reward_moments.inverse_deviation[0])
    np.testing.assert_allclose(records["reward"][:, :-1], np.clip(saved["reward"][:, :-1] * scale, -10, 10), rtol=1e-6)
    assert loaded.parameters.tobytes() == agent.parameters.tobytes()
    assert loaded.recent.returns == agent.recent.returns
    assert len(loaded.recent.returns) == 4 * 6  # of each copy, every fifth of 32 steps was an end
    for name in ("observation.moments", "reward.moments"):
        np.testing.assert_array_equal(loaded.arrays()[name], agent.arrays()[name])
        assert loaded.arrays()[name][0, 0] == 4 * BATCH  # the rollout that waits does not count yet
    loaded.iterate()  # and it goes on with episodes of its own
    assert len(np.unique(np.concatenate([learnt_from(loaded), learnt_from(agent)])["observation"])) == 8 * BATCH


@pytest.mark.parametrize("devices", [("cpu", "python"), ("python", "cpu")])
def test_a_saved_rollout_goes_on_on_another_device(devices, tmp_path):
    first, second = devices
    agent = prepared(device=first, normalise_observations=True)
    agent.iterate()
    loaded = PPO.load(agent.save(tmp_path / "agent"), device=second, threads=1, shares=1)
    loaded.prepare()
    for one in (agent, loaded):
        one.iterate()
    for name in ("observation", "action", "log_probability", "ended"):
        np.testing.assert_array_equal(learnt_from(loaded)[name], learnt_from(agent)[name])
    np.testing.assert_allclose(loaded.parameters, agent.parameters, atol=1e-5)


def test_a_rollout_of_another_size_is_not_learnt_from(tmp_path):
    agent = prepared()
    agent.iterate()
    loaded = PPO.load(agent.save(tmp_path / "agent"), horizon=4)
    loaded.learn(16)
    assert len(learnt_from(loaded)) == 16
    assert loaded.steps == BATCH + 16


def test_an_interrupt_waits_for_the_rollout():
    agent = PPO("gym:Walk-v0", **SMALL, params={"seconds": 1e-3})
    Walk.taken = 0

    def interrupt(agent):
        if agent.iterations == 2:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        agent.learn(10 * BATCH, interrupt)
    taken = Walk.taken
    assert (agent.steps, taken) == (2 * BATCH, 3 * BATCH)
    assert "waiting.records" in agent.arrays()
    agent.learn(2 * BATCH)
    assert Walk.taken == taken + 2 * BATCH  # the rollout that waited was learnt from


@pytest.mark.parametrize("device", ["cpu", "python"])
def test_what_an_environment_raises_reaches_the_caller(device, tmp_path):
    agent = prepared(params={"at": 20.0}, device=device)  # in the third rollout
    for _ in range(2):
        agent.iterate()
    path = agent.save(tmp_path / "agent")  # when that has happened
    parameters = agent.parameters.copy()
    with pytest.raises(OSError, match="the simulator is gone") as raised:
        agent.iterate()
    assert raised.value.__notes__ == ["raised by copy 0 of Walk-v0"]
    assert agent.steps == 2 * BATCH
    assert agent.parameters.tobytes() == parameters.tobytes()
    loaded = PPO.load(path)
    assert not any(name.startswith("waiting.") for name in loaded.arrays())
    loaded.learn(BATCH)
    assert loaded.steps == 3 * BATCH


@pytest.mark.parametrize("device", ["cpu", "python"])
def test_a_fault_is_told_where_it_would_be_learnt_from(device, tmp_path):
    agent = prepared(params={"at": 36.0, "raises": 0.0}, device=device)  # beyond the steps whose contract is checked
    for _ in range(4):
        agent.iterate()
    path = agent.save(tmp_path / "agent")
    parameters = agent.parameters.copy()
    message = r"a reward of the environment is not finite: copy 0, step 140 of the run \(3 of this rollout\)"
    with pytest.raises(NumericalError, match=message):
        agent.iterate()
    agent.learner.settle()
    assert agent.parameters.tobytes() == parameters.tobytes()  # nothing was learned from it
    assert not any(name.startswith("waiting.") for name in PPO.load(path).arrays())


def test_no_thread_outlives_its_agent():
    before = threading.enumerate()
    agent = PPO("gym:Walk-v0", **SMALL).learn(3 * BATCH)
    assert sum("collecting" in one.name for one in threading.enumerate() if one not in before) == 1
    agent.learn(3 * BATCH)
    assert sum("collecting" in one.name for one in threading.enumerate() if one not in before) == 1
    del agent
    assert_nobody_collects(before)
    agent = prepared(params={"seconds": 5e-3})
    agent.iterate()
    del agent  # in the middle of a rollout
    assert_nobody_collects(before)


SCRIPT = f"""
import os
import warnings
from velocirl import PPO

agent = PPO("gym:CartPole-v1", **{SMALL!r}).learn(64)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of a fork beside threads
    child = os.fork()
agent.learn(64)
if child == 0:
    os._exit(3 if agent.steps == 128 else 4)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), agent.steps)

def fail(agent):
    raise RuntimeError("a callback failed")

try:
    agent.learn(64, fail)
except RuntimeError as error:
    print(error)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_process_forks_and_ends_in_peace(run_script, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    assert run_script(script) == "3 128\na callback failed\n"


def test_worker_processes_collect_meanwhile():
    agent = PPO("gym:CartPole-v1", **{**SMALL, "workers": 2})
    try:
        agent.learn(4 * BATCH)
        assert agent.steps == 4 * BATCH
        assert np.isfinite(agent.parameters).all()
        assert len(learnt_from(agent)) == BATCH
    finally:
        agent.learner.collector.envs.close()


@pytest.mark.skipif(importlib.util.find_spec("mujoco") is None, reason="mujoco is not installed")
@pytest.mark.slow
@pytest.mark.parametrize("manner", overlap.MANNERS)
def test_the_benchmark_does_the_work_that_its_figure_is_divided_by(manner, monkeypatch):
    monkeypatch.setitem(overlap.SETTINGS, "epochs", 1)
    monkeypatch.setattr(overlap, "require_cores", lambda count: None)
    timed = overlap.training(manner)
    agent = timed.call()
    assert agent.steps == timed.amount == overlap.ITERATIONS * 8 * 64
    assert (agent.config.overlap, agent.config.threads) == (manner == overlap.TOGETHER, 2)
    returns = [overlap.learnt(manner, steps=1).sample() for _ in range(2)]
    assert returns[0] == returns[1] > 1


def test_refusals():
    with pytest.raises(ValueError, match=r"overlap is for gym: environments and for GPUs; .* already use every core"):
        PPO("CartPole-v1", **{**SMALL, "device": "cpu"}).learn(BATCH)
    with pytest.raises(ValueError, match="estimator must be vtrace with overlap, got 'gae'"):
        PPO("gym:CartPole-v1", overlap=True, estimator="gae")
