"""Frames on a GPU, whose rows many threads draw, against the CPU: every array of a fleet must be the same."""

import numpy as np
import pytest
from choosing import on_cuda
from pictures import KINDS, LEARNERS, define, stacks_of

import velocirl
from velocirl.engine.disk.saved import within
from velocirl.engine.fleets.lifecycle import ARRAYS

pytestmark = on_cuda()

COPIES = 300  # more than a block of threads, and not several whole ones
LENGTHS = np.arange(COPIES) % 14 + 1


def host(array):
    return array.copy_to_host() if hasattr(array, "copy_to_host") else np.asarray(array)


def assert_same(cpu, gpu):
    for name in ARRAYS:
        one, other = getattr(cpu.copies, name), host(getattr(gpu.copies, name))
        if name == "final_observation":  # of a copy that has not ended an episode yet, anything
            ended = cpu.copies.episode_length > 0
            one, other = one[ended], other[ended]
        np.testing.assert_array_equal(other, one, err_msg=name)


@pytest.mark.parametrize("draws", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_every_array_is_that_of_the_cpu(kind, draws):
    seen, frames = KINDS[kind]
    environment = define("Frames-v0", **seen, **frames)
    params = {"tint": velocirl.uniform(0, 99), "length": velocirl.uniform(1, 14)} if draws else {"length": LENGTHS}
    cpu, gpu = (
        velocirl.make_vec(environment, COPIES, seed=3, device=device, params=params) for device in ("cpu", "cuda")
    )
    np.testing.assert_array_equal(host(gpu.reset()[0]), cpu.reset()[0])
    rng = np.random.default_rng(0)
    for t in range(24):
        if t == 11:
            chosen = rng.random(COPIES) < 0.3
            for fleet in (cpu, gpu):
                fleet.reset(options={"reset_mask": chosen})
        elif t % 3:
            actions = rng.integers(0, 2, COPIES)
            for fleet in (cpu, gpu):
                fleet.step(actions)
        else:
            for fleet in (cpu, gpu):
                fleet.run_randomly(2)
        assert_same(cpu, gpu)
    gpu.set_state(cpu.get_state())
    for fleet in (cpu, gpu):
        fleet.run_randomly(5)
    assert_same(cpu, gpu)


@pytest.mark.parametrize("kind", ["whole", "rows", "stacked rows"])
@pytest.mark.parametrize("graphs", ["1", "0"])
@pytest.mark.parametrize(("algorithm", "settings"), LEARNERS.items())
def test_learners_step_them_as_fleets_do(algorithm, settings, graphs, kind, monkeypatch):
    monkeypatch.setenv("VELOCIRL_CUDA_GRAPHS", graphs)
    seen, frames = KINDS[kind]
    environment = define("Frames-v0", **seen, **frames)
    agent = getattr(velocirl, algorithm)(environment, device="cuda", **settings)
    agent.learn(512)
    state = within("fleet", agent.arrays())
    np.testing.assert_array_equal(state["observation"], stacks_of(environment, state))
