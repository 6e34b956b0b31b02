"""The benchmarks of PPO with torch, on CPU and GPU: that peers do the same work, and that failures only drop out."""

import importlib.util
import json
import re
from contextlib import closing

import gymnasium
import numba
import numpy as np
import pytest

from velocirl.algorithms.online.ppo import PPOConfig
from velocirl.bench import samplers
from velocirl.bench.comparison import Comparison, UnavailableError, value
from velocirl.bench.machine.cost import Cost
from velocirl.bench.machine.facts import Machine
from velocirl.bench.measuring import QUICK, THOROUGH, Timed
from velocirl.bench.peers.process import SERVING, Peer, PeerError, reason
from velocirl.bench.processes import run_python
from velocirl.bench.registry import Benchmark, find_benchmarks
from velocirl.bench.results import NOT_MEASURED
from velocirl.bench.session import run_benchmarks
from velocirl.bench.suite.cuda import cuda_ppo
from velocirl.bench.suite.training import ppo, precision, torch_ppo
from velocirl.bench.suite.training.ppo import Work
from velocirl.bench.units import STEPS
from velocirl.training.settings.config import build_config

MACHINE = Machine("a processor", 2, 2**34, "a system", 0.1, "", {})
SMALL = Work(num_envs=16, horizon=8, epochs=2, minibatch_size=32)
torch = pytest.importorskip("torch")
peer_program = pytest.importorskip("velocirl.bench.peers.torch_ppo")
without_a_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")


@pytest.fixture(autouse=True)
def one_thread():
    """Threads that wait for each other at every small step take long where others use the cores."""
    before = torch.get_num_threads(), numba.get_num_threads()
    torch.set_num_threads(1)
    numba.set_num_threads(1)
    yield
    torch.set_num_threads(before[0])
    numba.set_num_threads(before[1])


class Silent:
    def begin(self, benchmark): ...
    def advance(self, share): ...
    def finish(self, result): ...


def run(define):
    (result,) = run_benchmarks([Benchmark("test", define)], QUICK, MACHINE, Silent(), "a command").results
    return result


def cart_poles(kind, num_envs):
    return (
        peer_program.CompiledCartPoles(num_envs)
        if kind == "compiled"
        else peer_program.TensorCartPoles(num_envs, "cpu")
    )


def certain(actions):
    """Logarithms of probabilities that leave no choice but these actions."""
    return torch.log(torch.nn.functional.one_hot(torch.as_tensor(actions), 2).float())


def test_what_is_claimed():
    claims = {
        (one.name, claim.by, claim.of, claim.at_least, claim.at_most)
        for one in find_benchmarks(["torch_ppo", "cuda_ppo", "precision"])
        for claim in one.define().claims
        if claim.at_least is not None or claim.at_most is not None
    }
    assert claims == {
        ("cuda_ppo_4096", "value", "velocirl", 50e6, None),
        ("cuda_ppo_16384", "value", "velocirl", 120e6, None),
        ("cuda_ppo_65536", "value", "velocirl", 180e6, None),
        ("cuda_time_to_solve", "value", "velocirl", None, 0.5),
    }


@pytest.mark.parametrize("kind", ["compiled", "tensors"])
def test_the_cart_poles_of_the_peer_are_those_of_gymnasium(kind):
    generator = np.random.default_rng(0)
    states = (generator.uniform(-1, 1, (64, 4)) * [2.5, 2, 0.22, 2]).astype(np.float32)
    actions = generator.integers(0, 2, 64)
    envs = cart_poles(kind, 64)
    envs.states.copy_(torch.from_numpy(states))
    taken, chosen, ended = envs.act(certain(actions))
    np.testing.assert_array_equal(taken, actions)
    np.testing.assert_array_equal(chosen, 0.0)

    expected, fallen = [], []
    env = gymnasium.make("CartPole-v1").unwrapped
    for state, action in zip(states, actions, strict=True):
        env.reset()
        env.state, env.steps_beyond_terminated = state.astype(np.float64), None
        observation, _, terminated, _, _ = env.step(int(action))
        expected.append(observation)
        fallen.append(terminated)
    fallen = np.array(fallen)
    np.testing.assert_array_equal(ended, fallen)
    assert 0 < fallen.sum() < 64
    np.testing.assert_allclose(envs.states[~fallen], np.array(expected)[~fallen], atol=1e-5)
    assert envs.states[fallen].abs().max() <= 0.05
    np.testing.assert_array_equal(envs.lengths, ~fallen)


@pytest.mark.parametrize("kind", ["compiled", "tensors"])
def test_the_peer_draws_actions_by_their_probabilities_and_ends_episodes_at_500_steps(kind):
    envs = cart_poles(kind, 20_000)
    probabilities = torch.tensor([0.3, 0.7])
    actions, chosen, _ = envs.act(probabilities.log().expand(20_000, 2).contiguous())
    assert actions.float().mean().item() == pytest.approx(0.7, abs=0.02)
    np.testing.assert_allclose(chosen.exp(), probabilities[actions], rtol=1e-6)

    envs = cart_poles(kind, 2)
    envs.states.zero_()
    envs.lengths.copy_(torch.tensor([498, 499]))
    assert envs.act(certain([0, 1]))[2].tolist() == [False, True]
    assert envs.lengths.tolist() == [499, 0]


def test_advantages_of_the_peer_are_those_of_the_other_estimate():
    from velocirl.bench.peers import torch_gae

    torch.manual_seed(0)
    values, last_values, ended = torch.rand(6, 5), torch.rand(5), torch.rand(6, 5) < 0.3
    expected, _ = torch_gae.gae(
        torch.ones(6, 5), values, torch.zeros(6, 5), ended, last_values, peer_program.GAMMA, peer_program.GAE_LAMBDA
    )
    torch.testing.assert_close(peer_program.estimate(values, ended, last_values), expected)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["compiled", "tensors"])
def test_the_peer_learns(kind):
    learner = peer_program.Training(64, 32, epochs=4, minibatch_size=256, device="cpu")
    learner.envs = cart_poles(kind, 64)
    shares = []
    for _ in range(40):
        learner.iterate()
        shares.append(learner.ended.float().mean().item())
    assert np.mean(shares[:2]) > 1 / 30  # a random policy's episodes are about 22 steps long
    assert np.mean(shares[-5:]) < 1 / 60
    assert int(learner.optimiser.state_dict()["state"][0]["step"]) == 40 * 4 * 64 * 32 // 256


JAX_PROGRAM = f"""
import sys
sys.path.insert(0, {str(SERVING.parent)!r})
import json
import jax
import jax.numpy as jnp
import jax_ppo

given = json.load(open({{path!r}}))
layers = given["layers"]
parameters = {{{{name: tuple(map(jnp.array, pair)) for name, pair in layers.items()}}}}
batch = [jnp.array(column) for column in given["batch"]]
optimiser, losses = jax_ppo.first(1).optimiser, []
for _ in range(3):
    loss, gradient = jax.value_and_grad(jax_ppo.loss)(parameters, batch)
    losses.append(float(loss))
    parameters, optimiser = jax_ppo.descend(parameters, optimiser, gradient)
print(json.dumps([losses, jax.tree.map(lambda leaf: leaf.tolist(), parameters)]))
"""


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed")
def test_the_peers_have_the_same_loss_and_take_the_same_steps(tmp_path):
    learner = peer_program.Training(64, 8, epochs=1, minibatch_size=512, device="cpu")
    with torch.no_grad():
        last_values = learner.collect()
        advantages = peer_program.estimate(learner.values, learner.ended, last_values)
        rollout = (learner.observations, learner.actions, learner.chosen, advantages, advantages + learner.values)
        batch = [tensor.flatten(0, 1) for tensor in rollout]
        batch[2] = batch[2] + 0.4 * torch.rand(512) - 0.2  # so that some ratios are clipped
        for parameter in learner.network.parameters():
            parameter += 0.3 * torch.rand_like(parameter) - 0.15
    linear = dict(zip(("first", "second", "last"), list(learner.network.layers)[::2], strict=True))
    layers = {name: [layer.weight.T.tolist(), layer.bias.tolist()] for name, layer in linear.items()}
    given = tmp_path / "given.json"
    given.write_text(json.dumps({"layers": layers, "batch": [column.tolist() for column in batch]}))
    their_losses, theirs = json.loads(run_python(JAX_PROGRAM.format(path=str(given))))

    losses = []
    for _ in range(3):
        learner.optimiser.zero_grad()
        loss = learner.loss(*batch)
        loss.backward()
        losses.append(loss.item())
        norm = torch.nn.utils.clip_grad_norm_(learner.network.parameters(), peer_program.MAX_GRADIENT_NORM)
        assert norm > peer_program.MAX_GRADIENT_NORM  # so that clipping matters
        learner.optimiser.step()
    # torch's deviation divides by one sample less than JAX's.
    np.testing.assert_allclose(losses, their_losses, rtol=2e-3)
    for name, layer in linear.items():
        np.testing.assert_allclose(layer.weight.T.tolist(), theirs[name][0], atol=2e-4)
        np.testing.assert_allclose(layer.bias.tolist(), theirs[name][1], atol=2e-4)
    assert losses[0] > losses[-1]


def test_the_peer_is_measured_on_the_cpu():
    with closing(torch_ppo.hand_written_training(SMALL)) as peer:
        assert peer.amount == SMALL.steps == 128
        assert 1 < peer.sample() < 1e7


@pytest.mark.slow
def test_a_call_with_a_network_of_torch_is_one_iteration_of_that_work():
    timed = torch_ppo.network_training(SMALL)
    agent = timed.call()
    assert agent.steps == timed.amount == 128
    assert agent.metrics["train/n_updates"] == SMALL.epochs * 128 // SMALL.minibatch_size
    assert (agent.config.device, agent.config.threads, agent.config.network) == ("cpu", 2, "mlp(64, 64)")
    assert agent.parameters.size == 4 * 64 + 64 + 64 * 64 + 64 + 64 * 3 + 3


@without_a_gpu
@pytest.mark.parametrize(("program", "needs", "says"), [("torch_ppo", "torch", "torch"), ("jax_ppo", "jax", "JAX")])
def test_a_peer_without_a_gpu_says_so(program, needs, says):
    if importlib.util.find_spec(needs) is None:
        pytest.skip(f"{needs} is not installed")
    with pytest.raises(UnavailableError, match=f"ended with 1: RuntimeError: {says} finds no GPU here"):
        cuda_ppo.peer_training(program, SMALL, needs=needs)


@without_a_gpu
@pytest.mark.parametrize("one", find_benchmarks(["cuda_ppo", "precision"]), ids=lambda one: one.name)
def test_without_a_gpu_nothing_is_measured_and_the_reason_is_told(one):
    result = run(one.define)
    assert all(
        re.fullmatch("no CUDA device|numba-cuda is not installed", row.unavailable) for row in result.contestants
    )
    assert {finding.verdict for finding in result.findings} == {NOT_MEASURED}


def test_a_contestant_that_fails_drops_out_with_one_line(monkeypatch):
    monkeypatch.setattr(cuda_ppo, "require_cuda", lambda: None)

    def fail():
        raise MemoryError("CUDA out of memory\nand more")

    def missing():
        raise ModuleNotFoundError("No module named 'triton'", name="triton")

    contestants = {
        "fails": cuda_ppo.attempted(fail),
        "missing": cuda_ppo.attempted(missing),
        "broken peer": cuda_ppo.attempted(lambda: Peer("numpy_matmul", "nothing", needs="numpy")),
        "works": cuda_ppo.attempted(lambda: Timed(lambda: None, amount=1)),
    }

    def compare():
        """Some that fail, and one that works."""
        return Comparison(STEPS, contestants, [value("fails"), value("works")])

    result = run(compare)
    assert [one.unavailable for one in result.contestants] == [
        "failed: MemoryError: CUDA out of memory",
        "triton is not installed",
        "a measured peer ended with 1: AttributeError: module 'numpy_matmul' has no attribute 'nothing'",
        "",
    ]
    assert [finding.verdict == NOT_MEASURED for finding in result.findings] == [True, False]
    monkeypatch.setenv("VELOCIRL_DEBUG", "1")
    with pytest.raises(MemoryError):
        cuda_ppo.attempted(fail)()


def test_the_reason_is_the_line_that_names_the_error():
    trace = "Traceback (most recent call last):\n  File ...\njax.errors.JaxRuntimeError: no memory\n\n------\nA hint."
    assert reason(trace) == "jax.errors.JaxRuntimeError: no memory"
    assert reason("Segmentation fault\n") == "Segmentation fault"
    assert reason("") == ""
    assert len(reason("x" * 1000)) == 200
    assert str(PeerError(-9, "")) == "a measured peer ended with -9"


def test_a_peer_that_has_ended_is_told_when_it_is_asked_again():
    with closing(Peer("numpy_matmul", "product", 16, needs="numpy")) as peer:
        peer._process.kill()
        peer._process.wait()
        with pytest.raises(PeerError, match="ended with -9"):
            peer.sample()


def test_samples_on_a_gpu_are_at_least_2_seconds_in_all():
    assert THOROUGH.fewest_rounds * samplers.LONGER_SECONDS >= 2.0
    given = []

    class Recorder:
        iterations, cost = 7, Cost(operations=3)

        def prepare(self, settings):
            given.append(settings)

        def sample(self):
            return 5.0

        def close(self):
            given.append("closed")

    longer = samplers.Longer(Recorder())
    longer.prepare(THOROUGH)
    assert (longer.iterations, longer.sample(), longer.cost) == (7, 5.0, Cost(operations=3))
    longer.close()
    assert (given[0].sample_seconds, given[0].warm_up_seconds, given[1]) == (0.3, 0.3, "closed")


def test_the_sizes_of_the_gpu_benchmarks():
    sizes = [
        (work.num_envs, work.horizon, work.steps // work.minibatch_size)
        for work in (cuda_ppo.SMALL, cuda_ppo.MEDIUM, cuda_ppo.LARGE)
    ]
    assert sizes == [(4096, 32, 8), (16384, 64, 4), (65536, 32, 4)]
    for work in (cuda_ppo.SMALL, cuda_ppo.MEDIUM, cuda_ppo.LARGE, precision.WIDE, precision.PIXELS):
        assert work.epochs == 1
        assert work.steps % work.minibatch_size == 0
        assert build_config(PPOConfig, ppo.settings(work)).num_minibatches == work.steps // work.minibatch_size


@pytest.mark.parametrize("manner", precision.MANNERS)
def test_every_precision_is_a_setting_of_ppo(manner):
    config = build_config(PPOConfig, ppo.settings(SMALL, device="cuda", **precision.MANNERS[manner]))
    assert (config.precision, config.compile) == (manner.partition(",")[0], "compiled" in manner)
    assert (config.hidden, config.shared, config.activation) == ((64, 64), True, "tanh")


@pytest.mark.cuda
@pytest.mark.parametrize("manner", precision.MANNERS)
def test_every_precision_trains_on_a_gpu(manner):
    longer = cuda_ppo.velocirl_training("CartPole-v1", Work(64, 8, 1, 256), **precision.MANNERS[manner])
    assert longer.sample() > 0


def test_the_median_of_all_seeds_is_taken_with_one_of_them_anew():
    times = {seed: iter([9.0, first, again] if seed == 0 else [first, again]) for seed, first, again in (
        (0, 5.0, 1.0), (1, 4.0, 1.0), (2, 3.0, 1.0), (3, 2.0, 1.0), (4, 1.0, 1.0)
    )}  # fmt: skip
    call = cuda_ppo.median_of_seeds(5, lambda seed: next(times[seed]))
    assert [call() for _ in range(3)] == [2.0, 1.0, 1.0]


@pytest.mark.slow
def test_cartpole_is_solved_with_the_settings_of_the_benchmark(monkeypatch):
    assert 0 < cuda_ppo.seconds_to_solve(0, device="cpu") < 60
    monkeypatch.setattr(cuda_ppo, "MOST_STEPS", 40_000)
    with pytest.raises(UnavailableError, match="not solved in 65,536 steps with seed 1"):
        cuda_ppo.seconds_to_solve(1, device="cpu")
