"""The team of threads: it finishes what it began, tells what went wrong, and survives interrupts and forks."""

import os
import signal
import threading
import time

import numpy as np
import pytest

import velocirl
from velocirl.engine.threads import ThreadTeam


def fail(message):
    raise ValueError(message)


def after(seconds, done, what):
    time.sleep(seconds)
    done.append(what)


def test_every_share_is_worked_off_in_a_thread_of_its_own():
    team, done = ThreadTeam(), []
    shares = [[(lambda k=k: done.append((k, threading.current_thread().name)), ())] * 3 for k in range(4)]
    team.run(shares)
    assert sorted(k for k, _ in done) == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3
    threads = [{name for k, name in done if k == share} for share in range(4)]
    assert all(len(names) == 1 for names in threads)
    assert len(set.union(*threads)) == 4
    assert threads[0] == {threading.current_thread().name}


def test_a_single_share_starts_no_thread():
    before = threading.active_count()
    done = []
    ThreadTeam().run([[(done.append, (1,)), (done.append, (2,))]])
    assert done == [1, 2]
    assert threading.active_count() == before


def test_threads_are_kept_for_the_next_run():
    team = ThreadTeam()
    team.run([[(len, ("",))]] * 3)
    count = threading.active_count()
    for _ in range(50):
        team.run([[(len, ("",))]] * 3)
    assert threading.active_count() == count


@pytest.mark.parametrize("share", [0, 1, 2])
def test_an_exception_reaches_the_caller_after_the_others_have_finished(share):
    team, done = ThreadTeam(), []
    shares = [[(after, (0.05, done, k))] for k in range(3)]
    shares[share] = [(fail, (f"share {share}",)), (after, (0, done, "never"))]
    with pytest.raises(ValueError, match=f"share {share}"):
        team.run(shares)
    assert sorted(done) == sorted({0, 1, 2} - {share})
    team.run([[(after, (0, done, "next"))]] * 3)
    assert done.count("next") == 3


def test_an_interrupt_leaves_no_answer_to_the_next_run():
    """After Ctrl-C during a run, the next run still waits for all of its own work."""
    team, done = ThreadTeam(), []

    def interrupt(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        main = threading.main_thread().ident
        threading.Timer(0.1, signal.pthread_kill, (main, signal.SIGUSR1)).start()
        with pytest.raises(KeyboardInterrupt):
            team.run([[], [(after, (0.4, done, "interrupted"))]])
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert done == []
    team.run([[], [(after, (0.2, done, "next"))]])
    assert done == ["interrupted", "next"]


def test_several_callers_may_use_it_at_once():
    team, done = ThreadTeam(), []

    def call(k):
        for step in range(20):
            team.run([[(done.append, ((k, step, share),))] for share in range(3)])

    callers = [threading.Thread(target=call, args=(k,)) for k in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(timeout=20)
    assert len(done) == len(set(done)) == 4 * 20 * 3


def test_fleets_in_several_threads_of_a_program_do_not_disturb_each_other():
    fleets = [velocirl.make_vec("CartPole-v1", 501, seed=1, threads=2) for _ in range(3)]
    expected = velocirl.make_vec("CartPole-v1", 501, seed=1, threads=1)
    callers = [threading.Thread(target=fleet.run_randomly, args=(200,)) for fleet in fleets]
    for caller in callers:
        caller.start()
    expected.run_randomly(200)
    for caller in callers:
        caller.join(timeout=60)
    for fleet in fleets:
        np.testing.assert_array_equal(fleet.get_state()["state"], expected.get_state()["state"])


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
import warnings
import numpy as np
import velocirl

warnings.simplefilter("ignore")  # Python warns of any fork of a process with threads
envs = velocirl.make_vec("Counter-v0", 5, seed=1, threads=2)
envs.reset()
envs.step(np.zeros(5, int))
child = os.fork()
seen = envs.step(np.zeros(5, int))[0].ravel().tolist()
if child == 0:
    envs.run_randomly(3)
    print("child", seen, envs.copies.elapsed.tolist(), flush=True)
    os._exit(0)
status = os.waitpid(child, 0)[1]
print("parent", seen, status)
"""
    )
    home = os.environ.get("VELOCIRL_HOME", tmp_path / "home")
    assert run_script(script, home=home).splitlines() == [
        "child [2.0, 2.0, 2.0, 2.0, 2.0] [5, 5, 5, 5, 5]",
        "parent [2.0, 2.0, 2.0, 2.0, 2.0] 0",
    ]
