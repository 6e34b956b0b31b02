"""Timed training: what is added up, and what is left out."""

from types import SimpleNamespace

import pytest

from velocirl import PPO
from velocirl.bench.profiling import watching
from velocirl.bench.profiling.watching import CLOCK, Watch, watch_training
from velocirl.runs.callback import Callback

SMALL = {"num_envs": 8, "horizon": 16, "minibatch_size": 64, "epochs": 1, "threads": 1, "seed": 3}


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(watching.time, "perf_counter", lambda: clock.now)
    return clock


def play(watch, agent, clock, iterations):
    """Call a watch as `learn` does; each iteration is (seconds, seconds of rollout, steps)."""
    agent.phases.clear()
    watch.start(agent)
    for seconds, rollout, steps in iterations:
        clock.now += seconds
        agent.phases["rollout"] = agent.phases.get("rollout", 0.0) + rollout
        agent.steps += steps
        if watch.step(agent) is False:
            break
    watch.finish(agent)


def test_the_first_iteration_is_kept_apart_and_calls_of_learn_add_up(clock):
    watch, agent = Watch(), SimpleNamespace(phases={}, steps=40, stopping=None)
    play(watch, agent, clock, [(5.0, 4.0, 10), (1.0, 0.5, 10), (2.0, 0.75, 10)])
    clock.now += 1000.0  # between two calls
    play(watch, agent, clock, [(1.0, 0.5, 10)])
    training = watch.training
    assert (training.seconds, training.steps, training.iterations) == (4.0, 30, 3)
    assert training.phases == {"rollout": 1.75}
    assert training.first_seconds == 5.0
    assert training.rate == 7.5


def test_where_there_was_one_iteration_only_it_counts(clock):
    watch, agent = Watch(), SimpleNamespace(phases={}, steps=0, stopping=None)
    play(watch, agent, clock, [(5.0, 4.0, 10)])
    training = watch.training
    assert (training.seconds, training.steps, training.iterations, training.phases) == (5.0, 10, 1, {"rollout": 4.0})
    play(watch, agent, clock, [(1.0, 0.5, 20)])  # of two, the second
    assert (watch.training.seconds, watch.training.steps, watch.training.iterations) == (1.0, 20, 1)


def test_training_stops_when_its_time_is_over(clock):
    watch, agent = Watch(3.0), SimpleNamespace(phases={}, steps=0, stopping=None)
    play(watch, agent, clock, [(1.0, 1.0, 10)] * 10)
    assert watch.expired
    assert agent.stopping == CLOCK
    assert agent.steps == 30


def test_by_the_clock_a_short_training_begins_again():
    agent = PPO("CartPole-v1", **SMALL)
    training = watch_training(agent, 1024, seconds=0.4)
    assert agent.steps > 10 * 256
    assert training.steps == agent.steps - 128  # all but the first iteration
    assert 0.1 < training.seconds < 2.0  # without what is around so short a training
    assert 0.0 < sum(spent for path, spent in training.phases.items() if "/" not in path) <= training.seconds
    assert not training.interrupted


def test_by_steps_it_trains_once_and_an_interrupt_gives_back_what_there_was():
    agent = PPO("CartPole-v1", **SMALL)
    assert watch_training(agent, 256).steps == 128
    assert agent.steps == 256

    class Interrupt(Callback):
        def step(self, agent):
            if agent.steps >= 256 + 3 * 128:
                raise KeyboardInterrupt

    training = watch_training(agent, 10**9, callbacks=[Interrupt()])
    assert training.interrupted
    assert training.steps == 2 * 128
