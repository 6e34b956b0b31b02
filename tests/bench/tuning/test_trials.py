import math
import time

import pytest

from velocirl import evaluate
from velocirl.algorithms.tabular.q_learning import QLearning
from velocirl.bench.tuning import trials
from velocirl.bench.tuning.trials import EVALUATION_SEED, EVALUATIONS, run_trial, score

STEPS = 2_000_000  # of which an iteration of a table is a hundredth


def test_a_training_is_looked_at_from_its_beginning_to_its_end():
    agent = QLearning("GridWorld-v0", seed=4)
    found = run_trial(agent, STEPS)
    assert found.seed == 4
    assert found.untrained == pytest.approx(-1.0)  # an empty table walks into the wall until time is up
    assert len(found.steps) == len(found.seconds) == len(found.returns) == EVALUATIONS
    assert found.steps[-1] == agent.steps >= STEPS
    assert all(before < after for before, after in zip(found.seconds, found.seconds[1:], strict=False))
    assert found.final == evaluate(agent, seed=EVALUATION_SEED).mean_return > 0.9
    assert found.steps_to(found.final) == found.steps[found.returns.index(found.final)]
    assert found.steps_to(found.final + 1.0) is None


def test_the_steps_are_those_of_an_agent_that_nobody_looks_at():
    watched, alone = (QLearning("GridWorld-v0", seed=4) for _ in range(2))
    run_trial(watched, 200_000)
    alone.learn(200_000)
    assert watched.parameters.tobytes() == alone.parameters.tobytes()


def test_the_clock_stands_still_while_somebody_looks(monkeypatch):
    monkeypatch.setattr(trials, "score", lambda agent: time.sleep(0.02) or 1.0)
    start = time.perf_counter()
    found = run_trial(QLearning("GridWorld-v0", seed=4), STEPS)
    elapsed = time.perf_counter() - start
    assert elapsed > 0.02 * EVALUATIONS
    assert found.seconds[-1] <= elapsed - 0.02 * EVALUATIONS


def test_after_enough_only_the_end_is_looked_at():
    found = run_trial(QLearning("GridWorld-v0", seed=4), STEPS, enough=-2.0)
    assert len(found.returns) == 2
    assert found.steps[-1] >= STEPS


def test_who_attends_may_end_it_before_it_begins():
    agent = QLearning("GridWorld-v0", seed=4)

    def stop():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_trial(agent, STEPS, attend=stop)
    assert agent.steps == 0


def test_a_policy_that_gets_stuck_is_worth_less_than_any_other(monkeypatch):
    agent = QLearning("GridWorld-v0", seed=4)
    assert score(agent) == pytest.approx(-1.0)  # its episodes end after 100 steps, where time is up
    monkeypatch.setattr(trials, "LONGEST", 99)
    assert score(agent) == -math.inf


def test_an_error_of_the_environment_is_no_stuck_policy(monkeypatch):
    agent = QLearning("GridWorld-v0", seed=4)
    monkeypatch.setattr(agent, "predict", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        score(agent)
