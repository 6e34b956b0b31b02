"""What a GPU does: the table of kernels, and a real trace where there is a device."""

import gzip
import json
from types import SimpleNamespace

import pytest

from velocirl import PPO
from velocirl.bench.profiling.trace import Trace, compressed, kernels_of, on_gpu, trace_gpu


def event(key, microseconds, count, device="DeviceType.CUDA"):
    return SimpleNamespace(key=key, self_device_time_total=microseconds, count=count, device_type=device)


def test_kernels_by_their_time():
    events = [event("copy", 1000, 4), event("aten::mm", 9000, 2, "DeviceType.CPU"), event("gemm", 3000, 2)]
    events += [event(f"small{i}", 0.0, 1) for i in range(20)]
    kernels, spent = kernels_of(events)
    assert spent == pytest.approx(4e-3)  # what the CPU waited for is not counted again
    assert [(one.name, one.calls, one.share) for one in kernels[:2]] == [
        ("gemm", 2, pytest.approx(0.75)),
        ("copy", 4, pytest.approx(0.25)),
    ]
    assert len(kernels) == 10
    assert kernels_of([]) == ((), 0.0)
    assert Trace("f", 3, spent, 16e-3, kernels).busy == pytest.approx(0.25)


def test_an_agent_on_the_cpu_is_not_on_a_gpu():
    assert not on_gpu(PPO("CartPole-v1", device="cpu"))


def test_a_large_trace_is_compressed(tmp_path):
    small, large = tmp_path / "small.json", tmp_path / "trace.json"
    for path in (small, large):
        path.write_bytes(b"[1, 2, 3]" * 1000)
    assert compressed(small) == small
    smaller = compressed(large, largest=8999)
    assert {one.name for one in tmp_path.iterdir()} == {"small.json", "trace.json.gz"}
    assert gzip.decompress(smaller.read_bytes()) == small.read_bytes()


@pytest.mark.cuda
def test_a_real_trace(tmp_path):
    agent = PPO("CartPole-v1", num_envs=1024, minibatch_size=2**15, network="mlp(64)", device="cuda", seed=0)
    assert on_gpu(agent)
    agent.learn(2 * agent.config.batch)
    trace = trace_gpu(agent, 1, tmp_path / "trace.json")
    assert trace.iterations >= 3
    assert trace.kernels
    assert 0 < trace.busy <= 1
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
