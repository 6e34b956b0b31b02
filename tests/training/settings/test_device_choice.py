"""Which device is chosen: the rule, with and without a GPU, and what an agent says of it."""

import importlib.util

import pytest

from velocirl import PPO, QLearning
from velocirl.engine.targets.device_names import kind_of, number_of
from velocirl.scale.launching import Launch
from velocirl.training.settings import device_choice, rank_devices
from velocirl.training.settings.device_choice import WORK, choose_device, no_cuda, require_device
from velocirl.training.source import Source

SMALL = {"num_envs": 6, "horizon": 16, "hidden": (16, 16), "shared": True, "threads": 1, "seed": 1}


@pytest.fixture
def gpu(monkeypatch):
    """As if there were one; nothing here trains on it."""
    monkeypatch.setattr(device_choice, "no_cuda", lambda: None)


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(device_choice, "no_cuda", lambda: "there is no CUDA device")


@pytest.mark.parametrize("wanted", ["cpu", "cuda", "cuda:1"])
def test_what_is_asked_for_is_taken(wanted, gpu):
    assert choose_device(wanted, Source("Counter-v0"), 1, 1, native=True) == (wanted, f"{wanted}, as asked")


def test_without_a_gpu_everything_is_on_the_cpu(no_gpu):
    for native in (True, False):
        chosen = choose_device("auto", Source("Counter-v0"), 10**9, 10**9, native=native)
        assert chosen == ("cpu", "cpu")


def test_a_gpu_is_for_tensors_that_are_there(gpu, monkeypatch):
    monkeypatch.setattr(Source, "tensors_on", "cuda")
    chosen = choose_device("auto", Source("Counter-v0"), 1, 1, native=True)
    assert chosen == ("cuda", "cuda: the observations of Counter-v0 are there")


def test_a_gpu_is_for_enough_work(gpu):
    """Parameters times samples decide; the limit itself is enough."""
    source, samples = Source("Counter-v0"), 10_000
    most = int(WORK) // samples
    assert choose_device("auto", source, most, samples, native=True)[0] == "cuda"
    device, reason = choose_device("auto", source, most - 1, samples, native=True)
    assert device == "cpu"
    assert reason == f"cpu: 10,000 samples through {most - 1:,} parameters in each iteration keep no GPU busy"
    assert choose_device("auto", source, samples, most, native=True)[0] == "cuda"


def test_torch_networks_take_the_gpu_for_any_work(gpu):
    device, reason = choose_device("auto", Source("Counter-v0"), 10, 96, native=False)
    assert device == "cuda"
    assert reason == "cuda: 96 samples through 10 parameters in each iteration"


def test_environments_in_python_stay_on_the_cpu(gpu):
    device, reason = choose_device("auto", Source("gym:CartPole-v1"), 10**9, 10**9, native=True)
    assert device == "cpu"
    assert reason.startswith("cpu: gym:CartPole-v1 steps in Python")


@pytest.mark.parametrize(("package", "extra"), [("torch", "torch"), ("numba_cuda", "cuda")])
def test_a_missing_package_is_named(package, extra, monkeypatch):
    find_spec = importlib.util.find_spec
    found = {"torch": find_spec("torch"), "numba_cuda": find_spec("torch"), package: None}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: found.get(name, find_spec(name, *rest)))
    monkeypatch.setattr(device_choice, "has_driver", lambda: True)
    device_choice.no_kernels.cache_clear()
    assert no_cuda.__wrapped__() == f"{package} is not installed (velocirl[{extra}])"
    device_choice.no_kernels.cache_clear()


def test_without_a_driver_nothing_is_missing(monkeypatch, tmp_path):
    monkeypatch.setattr(device_choice, "DRIVER", tmp_path / "version")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert no_cuda.__wrapped__() == "there is no CUDA device"
    monkeypatch.setattr(device_choice, "no_cuda", no_cuda.__wrapped__)
    assert PPO("Counter-v0", **SMALL).device_reason == "cpu"
    (tmp_path / "version").write_text("NVRM")
    assert device_choice.has_driver()


def test_a_gpu_that_is_not_there_is_refused_when_the_agent_is_made(no_gpu, monkeypatch, tmp_path):
    with pytest.raises(ValueError, match='device="cuda" cannot be used: there is no CUDA device; give device="cpu"'):
        PPO("Counter-v0", device="cuda", **SMALL)
    monkeypatch.setattr(device_choice, "has_driver", lambda: False)
    device_choice.no_kernels.cache_clear()
    with pytest.raises(ValueError, match='runtime="cuda" cannot be used: there is no CUDA device; give another'):
        QLearning("CliffWalking-v1", runtime="cuda")
    device_choice.no_kernels.cache_clear()


@pytest.mark.parametrize(
    ("count", "message"), [(1, "there is one CUDA device, cuda:0"), (3, "there are 3 CUDA devices, cuda:0, cuda:1 and")]
)
def test_a_gpu_that_is_not_there_is_refused_with_those_that_are(count, message, gpu, monkeypatch):
    monkeypatch.setattr(device_choice, "gpus", lambda: count)
    require_device("cuda")
    require_device(f"cuda:{count - 1}")
    with pytest.raises(ValueError, match=f'device="cuda:{count}" cannot be used: {message}'):
        require_device(f"cuda:{count}")


def test_without_a_gpu_none_is_named(no_gpu):
    with pytest.raises(ValueError, match='device="cuda:1" cannot be used: there is no CUDA device; give device="cpu"'):
        require_device("cuda:1")


def test_devices_have_names():
    assert [kind_of(name) for name in ("cpu", "cuda", "cuda:12", "cuda:", "cuda:x")] == [
        "cpu", "cuda", "cuda", "cuda:", "cuda:x",
    ]  # fmt: skip
    assert [number_of(name) for name in ("cpu", "cuda", "cuda:0", "cuda:12")] == [None, None, 0, 12]
    for name in ("gpu", "cuda:", "cuda:-1", "cuda 1"):
        with pytest.raises(ValueError, match="device must be auto, cpu, cuda, cuda:N for GPU number N, or python"):
            PPO("Counter-v0", device=name)


def test_a_saved_agent_goes_on_on_another_gpu_where_its_own_is_not_there(gpu, monkeypatch, tmp_path):
    """Which of several GPUs it was decides nothing."""
    monkeypatch.setattr(device_choice, "gpus", lambda: 2)
    path = PPO("Counter-v0", **SMALL, device="cuda:1").save(tmp_path / "agent")
    assert PPO.load(path).config.device == "cuda:1"
    monkeypatch.setattr(device_choice, "gpus", lambda: 1)
    with pytest.warns(UserWarning, match="trained on cuda:1, and there is one CUDA device, cuda:0: it goes on on cuda"):
        again = PPO.load(path)
    assert again.config.device == "cuda"
    assert PPO.load(path, device="cuda:0").config.device == "cuda:0"


class Rank:
    rank, size = 1, 2


@pytest.mark.parametrize(("device", "count", "expected"), [("cuda", 4, 3), ("cuda", 2, 1), ("cuda:0", 4, 0)])
def test_each_rank_of_a_machine_takes_its_own_gpu(device, count, expected, gpu, monkeypatch):
    """What is saved, and compared among ranks, says nothing of it."""
    for module in (device_choice, rank_devices):
        monkeypatch.setattr(module, "gpus", lambda: count)
    agent, ranks = PPO("Counter-v0", **SMALL, device=device), Rank()
    task = rank_devices.task_of_rank(agent.task(), ranks, Launch("mpi", 1, 2, 2, "mpirun", 3))
    assert (task.config.device, task.reducer) == (f"cuda:{expected}", ranks)
    assert agent.config.device == device


def test_an_agent_says_where_it_trains_and_why(no_gpu):
    agent = PPO("Counter-v0", **SMALL)
    assert agent.config.device == "cpu"  # decided, so that the run can be repeated
    assert agent.device_reason == "cpu"
    assert PPO("Counter-v0", device="cpu", **SMALL).device_reason == "cpu, as asked"


def test_an_agent_takes_the_gpu_where_it_is_faster(gpu):
    """Which way it goes depends on its batch and its network alone."""
    parameters = PPO("Counter-v0", device="cpu", **SMALL).parameters.size
    copies = int(WORK) // (parameters * 16) + 1
    large = PPO("Counter-v0", **{**SMALL, "num_envs": copies})
    assert large.config.device == "cuda"
    assert f"{copies * 16:,} samples through {parameters:,} parameters" in large.device_reason
    assert PPO("Counter-v0", **{**SMALL, "num_envs": copies // 2}).config.device == "cpu"
