"""A function that loops for ever in its first steps: it is named with its line, in any thread."""

import threading
import time

import pytest
from toys.environments import drifting, step

import velocirl
from velocirl import PPO, DefinitionError
from velocirl.engine.checking.patience import Patience, TookTooLong
from velocirl.engine.checking.rehearsal import rehearse

END = time.monotonic() + 7200  # in case that nobody interrupts


def loops(state, params, action, rng):
    while state.count >= 0:
        if time.monotonic() > END:
            return 0.0, False
    return 0.0, False


def loops_late(state, params, action, rng):
    return loops(state, params, action, rng) if state.count == 5 else step(state, params, action, rng)


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setenv("VELOCIRL_PATIENCE", "0.2")


def told(environment):
    with pytest.raises(DefinitionError) as caught:
        velocirl.make_vec(environment, 2)
    return str(caught.value)


@pytest.mark.parametrize("name", ["reset", "step", "observe"])
def test_a_loop_without_end_is_named(name, impatient):
    function = {
        "reset": lambda state, params, rng: loops(state, params, 0, rng),
        "step": loops_late,
        "observe": lambda state, params, observation: loops(state, params, 0, None),
    }[name]
    message = told(drifting("Endless-v0", **{name: function}))
    assert message.startswith(f"Endless-v0: {name} has not come back for 0 s")
    first = loops.__code__.co_firstlineno
    assert any(f"{__file__}:{line}: " in message for line in range(first + 1, first + 3))


def test_another_thread_than_the_main_one_is_interrupted_too(impatient):
    messages = []
    thread = threading.Thread(target=lambda: messages.append(told(drifting("Endless-v0", step=loops))))
    thread.start()
    thread.join(60)
    assert messages[0].startswith("Endless-v0: step has not come back")


def test_an_algorithm_that_loops_for_ever_is_named(impatient):
    def act(row, rng):
        while True:
            row.action[0] = 0

    with pytest.raises(DefinitionError, match=r"Stuck: act: it has not come back for"):
        type("Stuck", (PPO,), {"act": act})("CartPole-v1", device="python")


def test_many_calls_may_take_long_together(impatient):
    with Patience() as patience:
        for _ in range(8):
            patience.call(time.sleep, 0.05)
        with pytest.raises(TookTooLong):
            patience.call(loops, *[drifting_state()] * 4)


def drifting_state():
    return type("State", (), {"count": 0})()


def test_who_is_slow_can_ask_for_patience(monkeypatch):
    def slow(state, params, action, rng):
        time.sleep(0.01)
        return 0.0, False

    environment = drifting("Slow-v0", step=slow)
    rehearse(environment, environment.params.rows(1, {}))
    monkeypatch.setenv("VELOCIRL_PATIENCE", "nonsense")
    rehearse(environment, environment.params.rows(1, {}))
