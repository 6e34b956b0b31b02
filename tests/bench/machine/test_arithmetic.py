"""Operations and bytes that are counted by hand, beside torch's own count."""

from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest

import velocirl
from velocirl.bench.machine.arithmetic import backward_operations, fleet_bytes, forward_operations, phase_facts
from velocirl.bench.machine.cost import Cost
from velocirl.bench.samplers import vector_steps
from velocirl.bench.suite.cuda import cuda_replay
from velocirl.bench.suite.training import dqn, ppo, sac

SIZES = [(4, 64, 64, 3), (64, 256, 256, 16), (3, 7)]


def counted_by_torch(work):
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        work(torch)
    return counter.get_total_flops()


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_a_network_forward_and_backward(sizes):
    pytest.importorskip("torch")
    from velocirl.bench.peers.torch_network import layers_of

    rows, network = 5, layers_of(sizes)

    def forward(torch):
        with torch.inference_mode():
            network(torch.zeros(rows, sizes[0]))

    def both(torch):
        network(torch.zeros(rows, sizes[0])).sum().backward()

    assert counted_by_torch(forward) == rows * forward_operations(sizes)
    assert counted_by_torch(both) == rows * (forward_operations(sizes) + backward_operations(sizes))


def test_an_update_of_dqn():
    pytest.importorskip("torch")
    from velocirl.bench.peers.torch_network import layers_of

    learning, frozen = (layers_of((4, 64, 64, 2)) for _ in range(2))

    def update(torch):
        with torch.no_grad():
            targets = frozen(torch.zeros(32, 4)).max(1).values
        (learning(torch.zeros(32, 4))[:, 0] - targets).square().mean().backward()

    assert counted_by_torch(update) == dqn.operations((4, 64, 64, 2), 32)
    assert cuda_replay.operations("dqn", cuda_replay.DQN_UPDATES) == 16 * dqn.operations((4, 64, 64, 2), 4096)


def test_an_update_of_sac():
    pytest.importorskip("torch")
    from velocirl.bench.peers.torch_network import layers_of

    actor = layers_of((3, 16, 16, 2))
    critics, frozen = ([layers_of((4, 16, 16, 1)) for _ in range(2)] for _ in range(2))

    def update(torch):
        seen = torch.zeros(8, 3)

        def joined(outputs):
            return torch.cat([seen, outputs[:, :1]], 1)

        with torch.no_grad():
            following = joined(actor(seen))
            for critic in frozen:
                critic(following)
        sum(critic(torch.zeros(8, 4)).sum() for critic in critics).backward()
        for critic in critics:
            critic.requires_grad_(False)  # the actor learns through them, they do not
        sum(critic(joined(actor(seen))).sum() for critic in critics[:1]).backward()

    # One critic of two suffices for the last part: its passes are counted once more by hand.
    critic = 4 * 16 + 16 * 16 + 16
    rest = 2 * 8 * 2 * critic  # forward, and back to its input
    assert sac.operations(8, 16) == counted_by_torch(update) + rest
    assert cuda_replay.operations("sac", cuda_replay.SAC_STEPS) == sac.operations(4096, 256)


def test_an_iteration_of_ppo_with_other_layers():
    work = ppo.Work(num_envs=2, horizon=3, epochs=5, minibatch_size=6)
    sizes = (4, 8, 3)
    assert work.operations_of(sizes) == 6 * (forward_operations(sizes) * 6 + backward_operations(sizes) * 5)
    assert work.operations == work.operations_of(ppo.LAYERS)


def test_the_bytes_of_a_step():
    env = velocirl.make_vec("CartPole-v1", 8)
    copies = env.copies
    state, params = copies.state.dtype.itemsize, copies.params.dtype.itemsize
    read = state + params + 4 + 4 + copies.action.dtype.itemsize
    written = state + 4 + 4 + 4 * 4 + 4 + 1 + 1
    assert (copies.elapsed.dtype.itemsize, copies.total.dtype, copies.reward.dtype) == (4, np.float32, np.float32)
    assert fleet_bytes(copies) == read + written
    env.close()


def test_phases_as_facts():
    agent = SimpleNamespace(phases={"rollout": 1.0, "rollout/policy": 0.5, "update": 3.0})
    assert phase_facts(agent) == {"phase:rollout": 0.25, "phase:rollout/policy": 0.125, "phase:update": 0.75}


@pytest.mark.parametrize("threads", [1, 2])
def test_a_fleet_of_ours_has_its_bytes_as_cost(threads):
    timed = vector_steps(lambda: velocirl.make_vec("CartPole-v1", 64, threads=threads))()
    env = velocirl.make_vec("CartPole-v1", 8)
    assert timed.cost == Cost(bytes=fleet_bytes(env.copies), cores=threads)
    for one in (timed, env):
        one.close()


def test_a_fleet_of_others_has_none():
    timed = vector_steps(lambda: gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="sync"))()
    assert timed.cost is None
    timed.close()
