"""Threads: they finish what they began, tell what went wrong, and survive interrupts and forks."""

import os
import signal
import threading
import time

import numpy as np
import pytest

import velocirl
from velocirl.engine.targets.threads import run_together


def fail(message):
    raise ValueError(message)


def after(seconds, done, what):
    time.sleep(seconds)
    done.append(what)


def test_every_share_is_worked_off_in_a_thread_of_its_own():
    done = []
    run_together([[(lambda k=k: done.append((k, threading.current_thread().name)), ())] * 3 for k in range(4)])
    assert sorted(k for k, _ in done) == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3
    threads = [{name for k, name in done if k == share} for share in range(4)]
    assert all(len(names) == 1 for names in threads)
    assert len(set.union(*threads)) == 4
    assert threads[0] == {threading.current_thread().name}


def test_a_single_share_starts_no_thread():
    before = threading.active_count()
    done = []
    run_together([[(done.append, (1,)), (done.append, (2,))]])
    assert done == [1, 2]
    assert threading.active_count() == before


def test_threads_are_kept_for_the_next_run():
    run_together([[(len, ("",))]] * 3)
    count = threading.active_count()
    for _ in range(50):
        run_together([[(len, ("",))]] * 3)
    assert threading.active_count() == count


@pytest.mark.parametrize("share", [0, 1, 2])
def test_an_exception_reaches_the_caller_after_the_others_have_finished(share):
    done = []
    shares = [[(after, (0.05, done, k))] for k in range(3)]
    shares[share] = [(fail, (f"share {share}",)), (after, (0, done, "never"))]
    with pytest.raises(ValueError, match=f"share {share}"):
        run_together(shares)
    assert sorted(done) == sorted({0, 1, 2} - {share})
    run_together([[(after, (0, done, "next"))]] * 3)
    assert done.count("next") == 3


def test_an_interrupt_leaves_no_answer_to_the_next_run():
    """After Ctrl-C during a run, the next run still waits for all of its own work."""
    done = []

    def interrupt(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        main = threading.main_thread().ident
        threading.Timer(0.1, signal.pthread_kill, (main, signal.SIGUSR1)).start()
        with pytest.raises(KeyboardInterrupt):
            run_together([[], [(after, (0.4, done, "interrupted"))]])
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert done == []
    run_together([[], [(after, (0.2, done, "next"))]])
    assert done == ["interrupted", "next"]


def test_several_callers_may_share_the_threads():
    done = []

    def call(k):
        for step in range(20):
            run_together([[(done.append, ((k, step, share),))] for share in range(3)])

    in_threads(*[(call, k) for k in range(4)])
    assert len(done) == len(set(done)) == 4 * 20 * 3


def overheat(state, params, action, rng):
    state.value += 1.0
    if state.value > 100.0:
        raise ValueError("overheated")
    return state.value, False


@pytest.mark.parametrize("hot", [0, 4])
def test_an_exception_in_a_copy_reaches_the_caller_from_any_thread(define, hot):
    """Copy 0 belongs to the caller's own share, copy 4 to another thread's."""
    envs = velocirl.make_vec(define(step=overheat), 5, seed=1, threads=2)
    envs.reset()
    envs.copies.state["value"][hot] = 98.0
    assert envs.step(np.zeros(5, int))[1][hot] == 99.0
    assert envs.step(np.zeros(5, int))[1][hot] == 100.0
    with pytest.raises(ValueError, match="overheated"):
        envs.step(np.zeros(5, int))
    envs.reset()
    envs.copies.state["value"][:] = 10.0
    np.testing.assert_array_equal(envs.step(np.zeros(5, int))[1], 11.0)


def in_threads(*calls):
    """Make calls in threads of their own and wait for them; none may hang."""
    callers = [threading.Thread(target=function, args=arguments, daemon=True) for function, *arguments in calls]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(timeout=30)
    assert not any(caller.is_alive() for caller in callers)


def make(copies=501, threads=2, seed=1):
    envs = velocirl.make_vec("CartPole-v1", copies, seed=seed, threads=threads)
    envs.reset()
    return envs


def step_often(envs, times):
    for _ in range(times):
        envs.step(np.ones(envs.num_envs, np.int32))


def test_fleets_in_several_threads_of_a_program_do_not_disturb_each_other():
    fleets, expected = [make() for _ in range(3)], make(threads=1)
    in_threads(*[(step_often, fleet, 100) for fleet in fleets])
    in_threads(*[(fleet.run_randomly, 200) for fleet in fleets])
    step_often(expected, 100)
    expected.run_randomly(200)
    for fleet in fleets:
        for name, array in expected.get_state().items():
            np.testing.assert_array_equal(fleet.get_state()[name], array, err_msg=name)


def test_fleets_that_take_turns_do_not_disturb_each_other():
    fleets, expected = [make(), make(threads=3)], make(threads=1)
    for _ in range(100):
        for fleet in fleets:
            step_often(fleet, 1)
    step_often(expected, 100)
    for fleet in fleets:
        np.testing.assert_array_equal(fleet.get_state()["state"], expected.get_state()["state"])


def test_a_fleet_that_steps_without_pause_does_not_starve_another():
    busy, other = make(), make()
    stop = threading.Event()
    steps = []

    def keep_stepping():
        while not stop.is_set() and len(steps) < 20_000:
            step_often(busy, 1)
            steps.append(1)

    thread = threading.Thread(target=keep_stepping)
    thread.start()
    step_often(other, 50)
    stop.set()
    thread.join()
    assert len(steps) < 20_000


def test_a_thread_that_fell_asleep_wakes_up_again():
    envs, expected = make(), make(threads=1)
    for _ in range(5):
        step_often(envs, 3)
        step_often(expected, 3)
        time.sleep(0.02)
        np.testing.assert_array_equal(envs.get_state()["state"], expected.get_state()["state"])


def test_more_threads_than_copies_are_not_started():
    envs = velocirl.make_vec("CartPole-v1", 2, seed=1, threads=16)
    assert envs.target.threads == 2
    envs.run_randomly(5)
    np.testing.assert_array_equal(envs.copies.elapsed, 5)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_fork_after_use_works_in_the_child_and_in_the_parent(tmp_path, run_script):
    script = tmp_path / "fork.py"
    script.write_text(
        """
import os
import signal
import warnings
import numpy as np
import velocirl

warnings.simplefilter("ignore")  # Python warns of any fork of a process with threads
envs = velocirl.make_vec("Counter-v0", 5, seed=1, threads=2)
for fork in range(8):
    envs.reset()
    for _ in range(5):
        envs.step(np.zeros(5, int))
    envs.target.advance()
    child = os.fork()  # while the other thread is still awake
    if child == 0:
        signal.alarm(5)
        envs.step(np.zeros(5, int))
        envs.run_randomly(2)
        os._exit(int(envs.copies.observation.sum()))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(status, envs.step(np.zeros(5, int))[0].ravel().tolist())
"""
    )
    assert run_script(script).splitlines() == ["45 [7.0, 7.0, 7.0, 7.0, 7.0]"] * 8
