"""The benchmarks of scaling, devices and compiling: that everybody does the work that is measured."""

import pytest

from velocirl.bench.comparison import UnavailableError
from velocirl.bench.measuring import QUICK
from velocirl.bench.suite.cuda import device_sizes
from velocirl.bench.suite.cuda.cuda_ppo import require_cuda
from velocirl.bench.suite.fleets import scaling
from velocirl.bench.suite.starting import compiling


def has_device():
    try:
        require_cuda()
    except UnavailableError:
        return False
    return True


@pytest.mark.parametrize(
    ("make", "copies"),
    [(scaling.fleet_steps, scaling.COPIES), (scaling.worker_steps, scaling.WORKED_COPIES)],
    ids=["threads", "processes"],
)
def test_all_copies_are_stepped(make, copies):
    sampler = make(1)
    observations, *_ = sampler.call()
    assert len(observations) == sampler.amount == copies
    sampler.prepare(QUICK)
    assert sampler.sample() > 1e3
    sampler.close()


@pytest.mark.skipif(has_device(), reason="there is a GPU")
@pytest.mark.parametrize("define", [device_sizes.device_networks, device_sizes.device_ppo, device_sizes.device_copies])
def test_without_a_gpu_nobody_is_measured(define):
    for contestant in define().contestants.values():
        with pytest.raises(UnavailableError):
            contestant()


@pytest.mark.skipif(not has_device(), reason="there is no GPU")
@pytest.mark.parametrize("define", [device_sizes.device_networks, device_sizes.device_ppo, device_sizes.device_copies])
def test_on_a_gpu_everybody_is_measured(define):
    for contestant in define().contestants.values():
        sampler = contestant()
        sampler.prepare(QUICK)
        assert sampler.sample() > 0
        sampler.close()


def test_the_gpu_stands_beside_the_cpu_at_every_size():
    for define in (device_sizes.device_networks, device_sizes.device_ppo):
        comparison = define()
        for claim in comparison.claims:
            assert (claim.of.partition(", ")[0], claim.to.partition(", ")[0]) == ("GPU", "CPU")
            assert claim.of.partition(", ")[2] == claim.to.partition(", ")[2]
        assert 2 * len(comparison.claims) == len(comparison.contestants)
    for copies in device_sizes.FLEETS:
        work = device_sizes.work_of(copies)
        assert (work.steps, work.steps // work.minibatch_size) == (32 * copies, 4)


@pytest.mark.parametrize("name", compiling.SETTINGS)
def test_the_code_of_a_start_is_whole(name):
    compile(compiling.START.format(**compiling.SETTINGS[name]), name, "exec")
    assert set(compiling.comparison(name).contestants) == {"cold cache", "warm cache"}


@pytest.mark.slow
def test_a_warm_cache_is_faster_than_a_cold_one():
    script = compiling.START.format(**compiling.SETTINGS["Q-learning"])
    warm = compiling.cached(script)
    assert 0 < 2 * warm.sample() < compiling.cold(script)
    warm.close()
