"""The CUDA target against the CPU: the same functions must do the same on both."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from choosing import on_cuda
from hybrid import aiming, forbidding, noting
from tank import tank

import velocirl
from velocirl.engine import registry

pytestmark = on_cuda()

COPIES = 256
COMPARED = (
    "state", "params", "rng", "elapsed", "total", "observation", "mask", "reward", "terminated", "truncated", "costs",
    "cost_total",
)  # fmt: skip


def host(array) -> np.ndarray:
    return array.copy_to_host() if hasattr(array, "copy_to_host") else np.asarray(array)


def assert_same(name: str, one: np.ndarray, other: np.ndarray) -> None:
    if one.dtype.names:
        for field in one.dtype.names:
            assert_same(f"{name}.{field}", one[field], other[field])
    elif one.dtype.kind == "f":
        np.testing.assert_allclose(other, one, rtol=2e-5, atol=2e-5, err_msg=name)
    else:
        np.testing.assert_array_equal(other, one, err_msg=name)


@pytest.mark.parametrize(
    "environment", [name for name in velocirl.list_envs() if registry.find(name).source.startswith(registry.BUILT_IN)]
)
def test_cuda_equals_cpu_in_single_steps_from_the_same_states(environment):
    cpu = velocirl.make_vec(environment, COPIES, seed=3)
    gpu = velocirl.make_vec(environment, COPIES, seed=3, device="cuda")
    first, _ = cpu.reset()
    np.testing.assert_allclose(host(gpu.reset()[0]), first, rtol=1e-6, atol=1e-6)
    for _ in range(10):
        cpu.run_randomly(3)
        gpu.set_state(cpu.get_state())
        cpu.run_randomly(1)
        gpu.run_randomly(1)
        for name in COMPARED:
            assert_same(name, getattr(cpu.copies, name), host(getattr(gpu.copies, name)))


@pytest.mark.parametrize("environment", ["PowerGrid-v0", "Pendulum-v1"])
def test_random_actions_are_those_of_the_cpu_to_the_bit(environment):
    """Else a plant that magnifies the last digit of an action is another one on a GPU."""
    fleets = [velocirl.make_vec(environment, COPIES, seed=3, device=device) for device in ("cpu", "cuda")]
    for fleet in fleets:
        fleet.reset()
        fleet.run_randomly(1)
    np.testing.assert_array_equal(host(fleets[1].copies.action), fleets[0].copies.action)


@pytest.mark.parametrize("environment", [aiming, noting, forbidding], ids=str)
def test_actions_of_several_parts(environment):
    """Random ones, and those that somebody gives: on the host, and on the device."""
    torch = pytest.importorskip("torch")
    fleets = [velocirl.make_vec(environment, COPIES, seed=3, device=device) for device in ("cpu", "cuda", "cuda")]
    for fleet in fleets:
        fleet.reset()
    for _ in range(6):
        actions = fleets[0].action_space.sample()
        on_device = (
            {name: torch.as_tensor(part, device="cuda") for name, part in actions.items()}
            if isinstance(actions, dict)
            else tuple(torch.as_tensor(part, device="cuda") for part in actions)
        )
        for fleet, given in zip(fleets, (actions, actions, on_device), strict=True):
            fleet.step(given)
            fleet.run_randomly(1)
        for name in (*COMPARED, "action"):
            expected = getattr(fleets[0].copies, name)
            for fleet in fleets[1:]:
                assert_same(name, expected, host(getattr(fleet.copies, name)))


@pytest.mark.parametrize("stack", [1, 2])
def test_constraints_cost_what_they_do_on_the_cpu(stack):
    """In infos, of steps and of episodes; with frames that many threads draw, too."""
    fleets = [
        velocirl.make_vec(tank(stack=stack), COPIES, seed=3, device=device, scenario="disturbed")
        for device in ("cpu", "cuda")
    ]
    for fleet in fleets:
        fleet.reset()
    moves = np.random.default_rng(0).uniform(-1, 1.5, (12, COPIES, 1)).astype(np.float32)
    for move in moves:
        fleets[1].set_state(fleets[0].get_state())
        (*_, rewards, terminated, _, told), (*_, gpu_rewards, gpu_terminated, _, gpu_told) = (
            fleet.step(move) for fleet in fleets
        )
        assert_same("reward", rewards, host(gpu_rewards))
        assert_same("terminated", terminated, host(gpu_terminated))
        for name in ("cost", "costs"):
            assert_same(name, told[name], host(gpu_told[name]))
        ended = told.get("_final_info", np.zeros(COPIES, np.bool_))
        assert_same("ended", ended, host(gpu_told["_final_info"]))
        for name in ("cost", "costs"):
            if ended.any():
                episodes = (one["final_info"]["episode"][name] for one in (told, gpu_told))
                assert_same(name, *(host(one)[ended] for one in episodes))
    assert told["costs"].any()


@pytest.mark.parametrize(
    ("environment", "params"),
    [
        ("CartPole-v1", {"gravity": velocirl.uniform(5, 15), "pole_mass": velocirl.log_uniform(0.01, 1)}),
        ("Memory-v0", {"length": velocirl.uniform(1, 4), "delay": velocirl.log_uniform(1, 8)}),
        ("FrozenLake-v1", {"is_slippery": velocirl.uniform(0, 1)}),
    ],
)
def test_draws_are_those_of_the_cpu(environment, params):
    cpu, gpu = (velocirl.make_vec(environment, COPIES, seed=3, params=params, device=one) for one in ("cpu", "cuda"))
    cpu.reset()
    gpu.reset()
    assert_same("params", cpu.copies.params, host(gpu.copies.params))
    for _ in range(10):
        cpu.run_randomly(8)
        gpu.set_state(cpu.get_state())
        cpu.run_randomly(1)
        gpu.run_randomly(1)
        for name in COMPARED:
            assert_same(name, getattr(cpu.copies, name), host(getattr(gpu.copies, name)))
    name, draw = next(iter(params.items()))
    gpu.set_params({name: draw.low})
    gpu.run_randomly(20)
    assert (np.array(gpu.get_attr(name)) == draw.low).all()


@pytest.mark.parametrize("environment", ["CartPole-v1", "Pendulum-v1", "TicTacToe-v1", "FrozenLake-v1"])
def test_step_takes_actions_of_host_and_device_alike(environment):
    torch = pytest.importorskip("torch")
    fleets = [velocirl.make_vec(environment, COPIES, seed=5, device="cuda") for _ in range(2)]
    for fleet in fleets:
        fleet.reset()
    for _ in range(5):
        actions = fleets[0].action_space.sample()
        results = [fleets[0].step(actions), fleets[1].step(torch.as_tensor(actions, device="cuda"))]
        for one, other in zip(results[0][:4], results[1][:4], strict=True):
            np.testing.assert_array_equal(host(one), host(other))


def test_observations_are_shared_with_torch_without_a_copy():
    torch = pytest.importorskip("torch")
    fleet = velocirl.make_vec("CartPole-v1", COPIES, seed=0, device="cuda", copy=False)
    observations, _ = fleet.reset()
    tensor = torch.as_tensor(observations, device="cuda")
    before = tensor.clone()
    assert tensor.data_ptr() == observations.__cuda_array_interface__["data"][0]
    fleet.step(torch.ones(COPIES, dtype=torch.int64, device="cuda"))
    assert not torch.equal(before, tensor)  # the tensor sees the engine's next step


def test_copies_on_the_device_keep_what_they_showed():
    fleet = velocirl.make_vec("CartPole-v1", COPIES, seed=0, device="cuda")
    first, _ = fleet.reset()
    before = host(first).copy()
    fleet.step(np.ones(COPIES, np.int64))
    np.testing.assert_array_equal(host(first), before)


@pytest.mark.parametrize(("environment", "wrong"), [("CartPole-v1", 2), ("CartPole-v1", -1), ("Pendulum-v1", np.nan)])
def test_actions_outside_the_space_are_refused_by_copy(environment, wrong):
    torch = pytest.importorskip("torch")
    fleet = velocirl.make_vec(environment, COPIES, seed=0, device="cuda")
    fleet.reset()
    state = fleet.get_state()
    actions = np.zeros_like(fleet.action_space.sample())
    actions[17] = wrong
    for given in (actions, torch.as_tensor(actions, device="cuda")):
        with pytest.raises(ValueError, match=r"copy 17 is"):
            fleet.step(given)
    for name, array in fleet.get_state().items():
        np.testing.assert_array_equal(array, state[name], err_msg=name)


def test_ends_of_episodes_are_told_with_their_masks():
    fleet = velocirl.make_vec("Counter-v0", 4, seed=0, device="cuda", params={"length": [1, 2, 3, 4]})
    fleet.reset()
    observations, _, terminated, _, infos = fleet.step(np.zeros(4, np.int64))
    np.testing.assert_array_equal(host(terminated), [True, False, False, False])
    np.testing.assert_array_equal(host(infos["_final_obs"]), [True, False, False, False])
    assert host(infos["final_obs"])[0, 0] == 1
    assert host(observations)[0, 0] == 0
    assert host(infos["final_info"]["episode"]["l"])[0] == 1


def test_a_second_process_compiles_no_kernel(tmp_path):
    script = (
        "import velocirl, numpy; fleet = velocirl.make_vec('CartPole-v1', 8, seed=0, device='cuda');"
        "fleet.reset(); fleet.step(numpy.zeros(8, numpy.int64)); fleet.run_randomly(1)"
    )
    files = []
    for _ in range(2):
        subprocess.run([sys.executable, "-c", script], check=True, env={**os.environ, "VELOCIRL_HOME": str(tmp_path)})
        files.append({path: path.stat().st_ino for path in (tmp_path / "compiled").iterdir()})
    assert {path.suffix for path in files[0]} == {".ltoir", ".cubin"}
    assert files[0] == files[1]  # what is written anew is another file
