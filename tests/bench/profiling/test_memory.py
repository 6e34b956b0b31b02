"""Memory over time: planted leaks are found, and what is none is not taken for one."""

import mmap
import time

import numpy as np
import pytest

from velocirl.bench.profiling.memory import (
    FLAT,
    GROWS,
    MEBIBYTE,
    SHORT,
    Course,
    MemorySampler,
    draw_memory,
    judge_growth,
    warm_from,
)

STEPS = np.linspace(0, 4e6, 160)


def planted(per_million_steps=0.0, noise=0.0, jump=0.0, seed=0):
    resident = 2e8 + per_million_steps * STEPS / 1e6 + noise * np.random.default_rng(seed).normal(size=STEPS.size)
    resident[STEPS > 2e6] += jump
    return resident


@pytest.mark.parametrize("seed", range(5))
def test_a_planted_leak_is_found_with_its_slope(seed):
    leak = 2.0 * MEBIBYTE
    growth = judge_growth(STEPS, planted(leak, noise=0.2 * MEBIBYTE, seed=seed))
    assert growth.verdict == GROWS
    assert growth.per_million_steps == pytest.approx(leak, rel=0.1)
    assert growth.low <= leak <= growth.high
    assert "grows: 2." in growth.say() or "grows: 1.9" in growth.say()


@pytest.mark.parametrize("seed", range(5))
def test_noise_is_no_leak(seed):
    growth = judge_growth(STEPS, planted(noise=0.5 * MEBIBYTE, seed=seed))
    assert growth.verdict == FLAT
    assert growth.low < 0 < growth.high


def test_one_jump_is_no_leak_but_jumps_that_go_on_are():
    assert judge_growth(STEPS, planted(jump=50 * MEBIBYTE)).verdict == FLAT
    pages = 4096 * np.arange(STEPS.size) // 8  # a page now and then: above 0, and nothing to speak of
    assert judge_growth(STEPS, planted(jump=50 * MEBIBYTE) + pages).verdict == FLAT
    stairs = planted() + MEBIBYTE * np.floor(STEPS / 5e5)
    assert judge_growth(STEPS, stairs).verdict == GROWS


def test_what_comes_in_warm_up_does_not_count():
    resident = planted()
    resident[:30] -= np.linspace(100 * MEBIBYTE, 0, 30)
    growth = judge_growth(STEPS, resident)
    assert (growth.verdict, growth.per_million_steps) == (FLAT, 0.0)


def test_the_first_iteration_does_not_count_however_long_it_takes():
    steps = np.concatenate([np.zeros(100), STEPS[1:]])
    resident = np.concatenate([np.linspace(1e8, 2e8, 100), planted()[1:]])  # code is compiled, and kept
    assert warm_from(steps) == 100 + (STEPS.size - 1) // 5
    growth = judge_growth(steps, resident)
    assert (growth.verdict, growth.low, growth.high) == (FLAT, 0.0, 0.0)
    assert judge_growth(steps[:130], resident[:130]).verdict == SHORT


def test_too_little_was_seen():
    for steps, resident in ((STEPS[:30], planted()[:30]), (np.zeros(160), planted()), ([], [])):
        growth = judge_growth(steps, resident)
        assert growth.verdict == SHORT
        assert "2.5 s of training" in growth.say()


@pytest.mark.parametrize("leaking", [True, False])
def test_the_memory_of_a_process_is_seen(leaking):
    kept, steps = [], 0
    with MemorySampler(lambda: steps, every=0.004) as sampler:
        end = time.perf_counter() + 0.6
        while time.perf_counter() < end:
            piece = mmap.mmap(-1, 2**20)  # of the system's own, since a heap may have had it to spare
            piece.write(bytes(2**20))
            if leaking:
                kept.append(piece)
            steps += 1000
            time.sleep(0.01)
    course = sampler.course
    assert len(course.seconds) == len(course.steps) == len(course.bytes) > 60
    growth = judge_growth(course.steps, course.bytes)
    assert growth.verdict == (GROWS if leaking else FLAT)
    if leaking:
        assert growth.per_million_steps == pytest.approx(1000 * MEBIBYTE, rel=0.3)


def test_the_picture(tmp_path):
    course = Course(list(np.linspace(0, 8, 160)), list(map(int, STEPS)), list(map(int, planted(2 * MEBIBYTE))))
    assert draw_memory(course, tmp_path / "memory.png", "A_title-v0: $memory")
    assert (tmp_path / "memory.png").read_bytes().startswith(b"\x89PNG")
