"""The benchmarks of PPO at small sizes: that each contestant does the work that its figure is divided by."""

import importlib.util
import json

import gymnasium
import numpy as np
import pytest

from velocirl.bench.comparison import UnavailableError
from velocirl.bench.machine.facts import Machine
from velocirl.bench.measuring import QUICK
from velocirl.bench.peers import process
from velocirl.bench.peers.process import SERVING, Peer
from velocirl.bench.processes import run_python
from velocirl.bench.registry import Benchmark, find_benchmarks
from velocirl.bench.results import NOT_MEASURED
from velocirl.bench.session import run_benchmarks
from velocirl.bench.suite.training import gae, policy_latency, ppo, solving

SMALL = ppo.Work(num_envs=16, horizon=8, epochs=2, minibatch_size=32)


def needs(package):
    return pytest.mark.skipif(importlib.util.find_spec(package) is None, reason=f"{package} is not installed")


class Silent:
    def begin(self, benchmark): ...
    def advance(self, share): ...
    def finish(self, result): ...


@pytest.fixture
def without_peers(monkeypatch):
    monkeypatch.setattr(process.importlib.util, "find_spec", lambda name: None)


@pytest.fixture
def peers():
    """Starts peers, and ends them after the test."""
    started = []

    def start(*arguments, **settings):
        started.append(Peer(*arguments, **settings))
        return started[-1]

    yield start
    for peer in started:
        peer.close()


def test_what_is_claimed():
    claims = {
        (one.name, claim.by, claim.of, claim.to, claim.at_least, claim.at_most)
        for one in find_benchmarks(["ppo", "policy_latency", "solving"])
        for claim in one.define().claims
        if claim.at_least is not None or claim.at_most is not None
    }
    ours, training = "velocirl, 2 threads", "velocirl, training on 2 threads"
    assert claims == {
        ("ppo_4_epochs", "ratio", ours, "JAX, one jitted program", 3.0, None),
        ("ppo_4_epochs", "ratio", ours, "Stable-Baselines3, 64 copies", 40.0, None),
        ("ppo_1_epoch", "ratio", ours, "JAX, one jitted program", 2.5, None),
        ("ppo_share_of_peak", "ratio", training, "NumPy, matrix product on 2 cores", 0.45, None),
        ("predict_one", "value", "velocirl", "", None, 10e-6),
        ("forward_one", "value", "velocirl", "", None, 10e-6),
        ("time_to_solve", "value", "velocirl", "", None, 2.5),
        ("training_start", "value", "cold cache", "", None, 8.0),
        ("training_start", "value", "warm cache", "", None, 1.0),
    }


def test_operations_of_an_iteration():
    forward = 2 * (4 * 64 + 64 * 64 + 64 * 3)
    backward = 2 * (4 * 64) + 4 * (64 * 64 + 64 * 3)  # gradients of weights, and of all but the first layer's input
    assert ppo.FOUR_EPOCHS.operations == 4096 * 32 * (forward + 4 * (forward + backward))
    assert ppo.ONE_EPOCH.operations == 4096 * 32 * (2 * forward + backward)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_call_of_ours_is_some_iterations_of_that_work(threads):
    timed = ppo.velocirl_training(SMALL, threads)
    agent = timed.call()
    assert SMALL.steps == 128
    assert agent.steps == timed.amount == ppo.ITERATIONS * 128
    assert agent.iterations == ppo.ITERATIONS
    assert agent.metrics["train/n_updates"] == ppo.ITERATIONS * SMALL.epochs * 128 // SMALL.minibatch_size
    assert agent.metrics["train/learning_rate"] == 1e-3
    assert agent.config.threads == threads
    assert agent.config.shared
    assert agent.network.num_parameters == 4 * 64 + 64 + 64 * 64 + 64 + 64 * 3 + 3
    assert timed.call().metrics["train/learning_rate"] == 1e-3
    assert ppo.velocirl_training(SMALL, threads, amount=SMALL.operations).amount == ppo.ITERATIONS * SMALL.operations


def test_missing_peers_only_drop_out(monkeypatch, without_peers):
    monkeypatch.setattr(ppo, "FOUR_EPOCHS", SMALL)
    machine = Machine("a processor", 2, 2**34, "a system", 0.1, "", {})
    suite = [Benchmark("ppo", ppo.ppo_4_epochs)]
    (result,) = run_benchmarks(suite, QUICK, machine, Silent(), "a command").results
    assert [one.unavailable for one in result.contestants] == [
        "", "", "jax is not installed", "stable_baselines3 is not installed"
    ]  # fmt: skip
    assert all(one.estimate.median > 0 for one in result.contestants[:2])
    assert [one.verdict == NOT_MEASURED for one in result.findings] == [True, True, False]


def test_a_peer_times_its_own_calls(peers):
    small, large = (peers("numpy_matmul", "product", size, needs="numpy") for size in (16, 512))
    for peer in (small, large):
        peer.prepare(QUICK)
    assert small.iterations > large.iterations >= 1
    assert large.sample() > 5 * small.sample() > 0


def test_the_peak_is_the_best_of_three(monkeypatch):
    peak, seconds = ppo.matmul_peak(256), [0.3, 0.1, 0.2]
    monkeypatch.setattr(Peer, "_seconds", lambda peer, iterations: seconds.pop(0))
    assert peak.sample() == pytest.approx(2 * 256**3 / 0.1)
    assert seconds == []
    peak.close()


def test_a_peer_that_fails_says_why():
    with pytest.raises(RuntimeError, match="has no attribute 'nothing'"):
        Peer("numpy_matmul", "nothing", needs="numpy")


def test_a_peer_ends_when_it_is_closed():
    peer = Peer("numpy_matmul", "product", 16, needs="numpy")
    assert peer._process.poll() is None
    peer.close()
    assert peer._process.poll() is not None


def test_a_peer_that_hangs_is_given_up(monkeypatch, peers):
    peer = peers("numpy_matmul", "product", 1024, needs="numpy")
    monkeypatch.setattr(process, "TIMEOUT_SECONDS", 0.2)
    with pytest.raises(RuntimeError, match="ended with -9"):
        peer._seconds(1_000_000)


JAX_PROGRAM = f"""
import sys
sys.path.insert(0, {str(SERVING.parent)!r})
import json
import jax.numpy as jnp
import numpy
import jax_ppo

given = json.loads({{given!r}})
states, fallen = jax_ppo.step(jnp.array(given["states"]), jnp.array(given["actions"]))
rollout = [jnp.array(given[name]) for name in ("values", "ended", "last_values")]
training, iterate = jax_ppo.first(64), jax_ppo.iteration(horizon=32, epochs=4, minibatch_size=256)
shares = []
for _ in range(40):
    training, share = iterate(training)
    shares.append(float(share))
advantages = jax_ppo.estimate(*rollout)
print(json.dumps([states.tolist(), fallen.tolist(), advantages.tolist(), shares]))
"""


@needs("jax")
def test_the_jax_program_is_cartpole_and_learns():
    generator = np.random.default_rng(0)
    states = generator.uniform(-1, 1, (32, 4)) * [2.5, 2, 0.22, 2]
    actions = generator.integers(0, 2, 32)
    values, ended, last_values = generator.random((6, 3)), generator.random((6, 3)) < 0.3, generator.random(3)
    given = {"states": states, "actions": actions, "values": values, "ended": ended, "last_values": last_values}
    said = run_python(JAX_PROGRAM.format(given=json.dumps({name: array.tolist() for name, array in given.items()})))
    after, fallen, advantages, shares = json.loads(said)

    expected, expected_fallen = [], []
    env = gymnasium.make("CartPole-v1").unwrapped
    for state, action in zip(states, actions, strict=True):
        env.reset()
        env.state, env.steps_beyond_terminated = state, None
        observation, _, terminated, _, _ = env.step(int(action))
        expected.append(observation)
        expected_fallen.append(terminated)
    np.testing.assert_allclose(after, expected, atol=1e-5)
    assert fallen == expected_fallen
    assert 0 < sum(fallen) < 32

    going_on = ~ended
    advantage, following = np.zeros(3), last_values
    for t in reversed(range(6)):
        delta = 1 + 0.99 * following * going_on[t] - values[t]
        advantage = delta + 0.99 * 0.95 * going_on[t] * advantage
        np.testing.assert_allclose(advantages[t], advantage, rtol=1e-5)
        following = values[t]

    assert np.mean(shares[:2]) > 1 / 30  # a random policy's episodes are about 22 steps long
    assert np.mean(shares[-5:]) < 1 / 60


@needs("stable_baselines3")
def test_stable_baselines3_trains(peers):
    peer = peers("sb3_ppo", "training", 4, 8, 1, 16, needs="stable_baselines3", amount=4 * 8)
    assert 1 < peer.sample() < 1e6


@needs("torch")
def test_all_implementations_of_gae_agree():
    import torch

    from velocirl.bench.peers import torch_gae

    records = gae.random_rollout(37, 11)
    samples = records[:, :-1]
    assert 0 < np.count_nonzero(samples["ended"]) < samples.size
    columns = gae.as_columns(records)
    by_numpy = gae.numpy_gae(*columns)
    by_torch = torch_gae.gae(*(torch.tensor(array) for array in columns), gae.GAMMA, gae.GAE_LAMBDA)
    for threads in (1, 2):
        records["advantage"], records["target"] = np.nan, np.nan
        timed = gae.velocirl_gae(records, threads)
        timed.call()
        assert timed.amount == 37 * 11
        for name, of_numpy, of_torch in zip(("advantage", "target"), by_numpy, by_torch, strict=True):
            np.testing.assert_allclose(samples[name].T, of_numpy, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(samples[name].T, of_torch.numpy(), rtol=1e-5, atol=1e-6)


@needs("torch")
def test_latencies_are_of_one_row(peers):
    assert policy_latency.velocirl_forward().call().shape == (1, 16)
    action, _ = policy_latency.velocirl_predict().call()
    assert action in (0, 1)
    assert np.ndim(action) == 0
    peer = peers("torch_network", "forward", 1, *policy_latency.SIZES, needs="torch")
    assert 1e-7 < peer.sample() < 1


def test_every_seed_has_its_turn(monkeypatch):
    runs = []
    monkeypatch.setattr(solving, "run_python", lambda code: runs.append(code) or "solved\n")
    counted = solving.velocirl_solving(solving.SOLVE, solving.SEEDS)
    assert len(runs) == solving.SEEDS  # each has to solve before anything is measured
    runs.clear()
    assert all(0 < counted.sample() < 1 for _ in range(6))
    assert [f"seed={seed})" in code for seed, code in zip([0, 1, 2, 3, 4, 0], runs, strict=True)] == [True] * 6


def test_a_seed_that_does_not_solve_is_named(monkeypatch):
    def run_python(code):
        return "300000\n" if "seed=3" in code else "solved\n"

    monkeypatch.setattr(solving, "run_python", run_python)
    with pytest.raises(UnavailableError, match="not solved in 300000 steps with seed 3"):
        solving.velocirl_solving(solving.SOLVE, solving.SEEDS)


def test_a_peer_that_does_not_solve_is_not_compared_with(monkeypatch):
    monkeypatch.setattr(solving.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(solving, "run_python", lambda code: "solved\n")
    counted = solving.stable_baselines3_solving(solving.SOLVE_BY_STABLE_BASELINES3)
    assert counted.sample() == counted.sample() < 1
    monkeypatch.setattr(solving, "run_python", lambda code: "")
    with pytest.raises(UnavailableError, match="not solved in 0 s"):
        solving.stable_baselines3_solving(solving.SOLVE_BY_STABLE_BASELINES3)


def test_the_start_of_training_is_told_in_seconds():
    assert 0.001 < float(run_python(solving.START.format(environment="CartPole-v1"))) < 100
