"""Training with collectors: what they bring is right, paced ones change nothing, and no failure of theirs is lost."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from busy import Counting, Showing, gone
from costly import Costly

import velocirl
from velocirl.buffers.records import GOES_ON, TERMINATED, TRUNCATED
from velocirl.buffers.replay import FILLED, PLACE
from velocirl.engine.errors import DefinitionError
from velocirl.program.pace import GROUP, check_group, group_of
from velocirl.vector.host.worker_handle import WorkerError

SMALL = {
    "seed": 3, "num_envs": 4, "hidden": (8,), "batch_size": 8, "learning_starts": 16, "train_every": 4,
    "gradient_steps": 1, "threads": 1, "buffer_size": 400,
}  # fmt: skip
PYTHON, THREADS = {"device": "python"}, {"device": "cpu"}
FAULTS = ["raise", "kill", "exit", "hang"]


def agent_for(environment, algorithm=velocirl.DQN, **settings):
    return algorithm(environment, **{**SMALL, **settings})


def trained(environment=Counting, steps=64, **settings):
    return agent_for(environment, **settings).learn(steps, progress=False)


def memory_of(agent):
    """The records of a memory, the oldest first, as (groups, copies of a group)."""
    learner = agent.learner
    ring = getattr(learner, "buffer", None) or learner.ring
    rows, counts = np.asarray(ring.rows), np.asarray(ring.counts)
    filled = int(counts[FILLED])
    order = (int(counts[PLACE]) - filled + np.arange(filled)) % len(rows)
    return rows[order].reshape(-1, group_of(agent.config))


def check_counting(agent):
    """Every transition counts on by one, and what follows a step that goes on is the step after it."""
    rows = memory_of(agent)
    seen, following = rows["observation"][..., 0], rows["next_observation"][..., 0]
    assert (rows["reward"] == seen).all()
    assert (following == seen + 1).all()
    assert ((rows["ended"] == TERMINATED) == (following == 10)).all()
    assert np.isin(following[rows["ended"] == GOES_ON], np.arange(1, 10)).all()
    goes_on = rows["ended"][:-1] == GOES_ON
    assert (seen[1:][goes_on] == following[:-1][goes_on]).all()
    assert (seen[1:][~goes_on] == 0).all() or agent.config.collect_mode == "free"
    return rows


def collected_of(agent):
    learner = agent.learner
    return learner.collected if hasattr(learner, "collected") else learner.steps.collected


CASES = {
    "in Python": (velocirl.DQN, Counting, {**PYTHON, "n_step": 2, "priority": "proportional"}),
    "on threads": (velocirl.DQN, Counting, {**THREADS, "n_step": 3}),
    "pictures": (velocirl.DQN, Showing, {**PYTHON, "n_step": 2, "buffer_size": 60, "priority": "proportional"}),
    "limits": (velocirl.SACLagrangian, Costly, {**PYTHON, "cost_limit": 1.0, "multiplier_episodes": 5}),
    "limits, on threads": (velocirl.SACLagrangian, Costly, {**THREADS, "cost_limit": 1.0, "multiplier_episodes": 5}),
    "an actor": (velocirl.SAC, "gym:Pendulum-v1", {**THREADS, "train_every": 2}),
    "torch": (velocirl.DQN, Counting, {**THREADS, "network": "mlp(8, norm=layer)"}),
}
SLOW = {"pictures", "limits", "limits, on threads", "an actor", "torch"}


@pytest.mark.parametrize("case", [pytest.param(one, marks=pytest.mark.slow) if one in SLOW else one for one in CASES])
def test_one_paced_collector_computes_what_none_does(case):
    algorithm, environment, settings = CASES[case]
    alone, collected = (
        trained(environment, algorithm=algorithm, **settings, **more) for more in ({"workers": 0}, {"collectors": 1})
    )
    assert (alone.parameters == collected.parameters).all()
    mine, theirs = alone.arrays(), collected.arrays()
    assert mine.keys() == theirs.keys()
    for name, array in mine.items():
        assert np.array_equal(array[:], theirs[name][:]), name
    assert list(alone.recent.returns) == list(collected.recent.returns)
    assert alone.metrics["train/n_updates"] == collected.metrics["train/n_updates"] > 0


@pytest.mark.slow
def test_several_paced_collectors_are_ahead_and_yet_give_one_result_for_a_seed():
    first, again = (trained(collectors=2, **PYTHON) for _ in range(2))
    assert (first.parameters == again.parameters).all()
    check_counting(first)
    gauges = collected_of(first).gauges()
    assert gauges["collector/given"] == 64
    assert gauges["collector/dropped"] == 0


@pytest.mark.parametrize("device", ["cpu", pytest.param("python", marks=pytest.mark.slow)])
def test_what_free_collectors_bring_is_consistent(device):
    agent = trained(
        collectors=2, collect_mode="free", device=device, steps=3000 if device == "cpu" else 300, buffer_size=1000,
        n_step=3, ring_size=4096,
    )  # fmt: skip
    rows = check_counting(agent)
    assert rows.shape[1] == 2
    assert agent.steps == (3000 if device == "cpu" else 300)
    gauges = collected_of(agent).gauges()
    assert gauges["collector/waiting_seconds"] == 0
    assert set(agent.recent.returns) <= {45.0, 21.0}
    stepped = gauges["collector/given"] + gauges["collector/dropped"]
    time.sleep(0.3)
    before = collected_of(agent).gauges()
    time.sleep(0.3)
    after = collected_of(agent).gauges()
    assert stepped <= before["collector/given"] + before["collector/dropped"]
    assert before == after  # nothing is collected once training is over


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", "python"])
def test_what_episodes_of_free_collectors_cost_is_added_up(device):
    """Each of three steps costs half of its number: 3 in all."""
    settings = {"cost_limit": 1.0, "multiplier_episodes": 10**6, "device": device}
    agent = trained(Costly, 300, algorithm=velocirl.SACLagrangian, collectors=2, collect_mode="free", **settings)
    count, cost = agent.arrays()["policy.episodes"].T
    assert 80 <= count.sum() <= 100
    assert (cost == 3.0 * count).all()


def test_a_slow_learner_lets_free_collectors_drop_and_leaves_updates_out():
    agent = agent_for(Counting, collectors=1, collect_mode="free", ring_size=1020, buffer_size=1000, **THREADS)
    dropped = [0.0]

    def until_more_is_dropped(agent):
        until = time.monotonic() + 30
        while (now := collected_of(agent).gauges()["collector/dropped"]) <= dropped[-1] and time.monotonic() < until:
            time.sleep(0.01)
        dropped.append(now)

    agent.learn(4096, until_more_is_dropped, progress=False)
    assert dropped == sorted(set(dropped))  # more in each iteration
    assert dropped[-1] > 0
    check_counting(agent)


def test_the_paced_ratio_is_exact_over_a_long_run():
    agent = agent_for(Counting, collectors=2, train_every=3, gradient_steps=2, learning_starts=100, **THREADS)
    agent.learn(2400, progress=False)
    assert agent.metrics["train/n_updates"] == sum(2 * (step // 3 - (step - 4) // 3) for step in range(104, 2401, 4))
    gauges = collected_of(agent).gauges()
    assert gauges["collector/given"] == 2400
    assert gauges["collector/dropped"] == 0
    assert gauges["collector/age_of_weights"] <= 2 * 3 * 3  # two steps ahead


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["paced", "free"])
def test_collectors_that_rested_for_long_are_not_taken_to_hang(mode):
    agent = agent_for(Counting, collectors=1, collect_mode=mode, collector_timeout=2.0, collector_restarts=0, **PYTHON)
    agent.learn(64, progress=False)
    time.sleep(2.5)
    agent.learn(64, progress=False)
    assert collected_of(agent).gauges()["restarts"] == 0


def faulty(fail, flag, mode, faults):
    """Train while so many collectors fail, one after the other."""

    def plant(agent):
        if not flag.exists() and collected_of(agent).gauges()["restarts"] >= plant.planted:
            if plant.planted == faults:
                return False
            plant.planted += 1
            flag.touch()
        return True

    plant.planted = 0
    agent = agent_for(
        partial(Counting, str(flag), fail), collectors=2, collect_mode=mode, collector_restarts=100, n_step=3,
        ring_size=2048, collector_timeout=2.0 if fail == "hang" else 60.0, **PYTHON,
    )  # fmt: skip
    with pytest.warns(RuntimeWarning, match="It is replaced, and its episodes are left unfinished"):
        agent.learn(1_000_000, plant, progress=False)
    return agent


MANY = [pytest.param(fail, mode, 10, marks=pytest.mark.slow) for fail in FAULTS for mode in ("paced", "free")]
MANY += [pytest.param("kill", "free", 1, marks=pytest.mark.slow)]


@pytest.mark.parametrize(("fail", "mode", "faults"), [("raise", "paced", 1), *MANY])
def test_collectors_that_fail_are_replaced_and_their_episodes_cut_off(fail, mode, faults, tmp_path):
    agent = faulty(fail, tmp_path / "flag", mode, faults)
    assert collected_of(agent).gauges()["restarts"] >= faults  # a busy machine may make one more seem to hang
    rows = check_counting(agent)
    broken = (rows["ended"] == TRUNCATED) & (rows["next_observation"][..., 0] != 7)
    assert broken.any() or agent.steps > len(rows) * 4


@pytest.mark.slow
def test_pictures_of_a_collector_that_failed_are_not_learnt_from(tmp_path):
    flag = tmp_path / "flag"
    flag.touch()
    settings = {**PYTHON, "n_step": 2, "buffer_size": 200, "priority": "proportional"}
    agent = agent_for(partial(Showing, str(flag), "kill"), collectors=2, **settings)
    with pytest.warns(RuntimeWarning, match="was killed by SIGKILL"):
        agent.learn(120, progress=False)
    ring = agent.learner.ring
    for _ in range(50):
        ring.draw()
        drawn = ring.drawn
        now = np.asarray(ring.frames._store.frames)[np.asarray(ring.frames.now.newest)][:, 0].astype(int)
        after = np.asarray(ring.frames._store.frames)[np.asarray(ring.frames.after.newest)][:, 0].astype(int)
        steps = 1 + (np.asarray(drawn.lasts) != np.asarray(drawn.places))
        goes_on = np.asarray(drawn.rows["discount"]) > 0
        assert (after == now + steps)[goes_on].all()


def test_the_last_failure_is_told_with_its_traceback(tmp_path):
    flag = tmp_path / "flag"
    flag.touch()
    agent = agent_for(partial(Counting, str(flag), "raise"), collectors=1, collector_restarts=0, **PYTHON)
    with pytest.raises(WorkerError, match=r"collector 0, which has copies 0 to 3, raised:(?s:.*)the arm is stuck"):
        agent.learn(64, progress=False)


@pytest.mark.slow
def test_a_number_that_is_none_stops_training():
    agent = agent_for(partial(Infinite, at=5), collectors=2, **PYTHON)
    with pytest.raises(DefinitionError, match="Infinite: step returns the reward inf; a reward must be finite"):
        agent.learn(64, progress=False)
    assert gone(collected_of(agent).processes)
    with pytest.raises(RuntimeError, match="this agent's collectors ended with a training that failed: make the agent"):
        agent.learn(64, progress=False)


class Infinite(Counting):
    """Pays infinity in one step."""

    def step(self, action):
        seen, reward, *rest = super().step(action)
        return seen, np.inf if reward == self.at else reward, *rest


@pytest.mark.parametrize("settings", [{"collectors": 1}, pytest.param({"collectors": 2}, marks=pytest.mark.slow)])
def test_a_run_goes_on_as_one_without_collectors_does(settings, tmp_path):
    def interrupted(**more):
        agent = trained(steps=40, **PYTHON, **more)
        agent.save(tmp_path / "agent.velocirl")
        loaded = velocirl.DQN.load(tmp_path / "agent.velocirl", Counting)
        loaded.learn(40, progress=False)
        return loaded

    alone, collected = interrupted(workers=0), interrupted(**settings, collect_ahead=0)
    assert (alone.parameters == collected.parameters).all()
    check_counting(collected)


@pytest.mark.parametrize(
    ("filled", "settings", "said"),
    [
        ({GROUP: np.array([2])}, {"collectors": 2, "collect_mode": "free"}, None),
        (
            {GROUP: np.array([2])},
            {"collectors": 4, "collect_mode": "free"},
            "filled by 2 free collectors, and n_step=3",
        ),
        (
            {GROUP: np.array([2])},
            {"collectors": 2},
            "filled by 2 free collectors, and n_step=3 cannot follow its steps",
        ),
        ({GROUP: np.array([2])}, {"collectors": 2, "n_step": 1}, None),
        ({}, {"collectors": 2, "collect_mode": "free"}, "filled by steps of all copies, and n_step=3 cannot follow"),
        ({}, {"collectors": 2}, None),
    ],
)
def test_a_memory_is_followed_as_it_was_filled_or_not_at_all(filled, settings, said):
    config = agent_for(Counting, **{**PYTHON, "n_step": 3, **settings}).config
    with nullcontext() if said is None else pytest.raises(ValueError, match=said):
        check_group(config, filled)


@pytest.mark.slow
@pytest.mark.parametrize("device", ["python", "cpu"])
def test_a_saved_memory_of_free_collectors_is_refused_by_others(device, tmp_path):
    file, free = tmp_path / "agent.velocirl", {"collectors": 2, "collect_mode": "free", "device": device, "n_step": 3}
    trained(steps=100, **free).save(file)
    check_counting(velocirl.DQN.load(file, Counting).learn(100, progress=False))
    for others in ({"collectors": None}, {"collectors": 4}, {"collect_mode": "paced"}):
        with pytest.raises(ValueError, match="filled by 2 free collectors, and n_step=3 cannot follow its steps"):
            velocirl.DQN.load(file, Counting, **others)
    alone = velocirl.DQN.load(file, Counting, collectors=None, workers=0, n_step=1).learn(100, progress=False)
    assert alone.steps == 200
    trained(steps=40, workers=0, device=device, n_step=3).save(file)
    with pytest.raises(ValueError, match="filled by steps of all copies, and n_step=3 cannot follow its steps"):
        velocirl.DQN.load(file, Counting, collectors=2, collect_mode="free", workers=None)


def test_nothing_is_left_behind():
    def opened():
        return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()

    trained(workers=0, **PYTHON)  # whatever is opened once
    gc.collect()
    before = opened()
    agent = trained(collectors=2, collect_mode="free", ring_size=2048, **PYTHON)
    processes = collected_of(agent).processes
    assert len(processes) == 2
    del agent
    gc.collect()
    assert gone(processes)
    assert all(now <= then for now, then in zip(opened(), before, strict=True))


SCRIPT = """
import sys, time
import velocirl
from busy import Counting
agent = velocirl.DQN(Counting, collectors=2, device="python", num_envs=4, hidden=(8,), seed=1)
print("made", flush=True)
agent.learn(10_000_000, lambda _: print("learns", flush=True), progress=False)
"""


def children_of(process):
    return [int(one) for one in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def started(until):
    """A process that trains, once it has said so, and the collectors that it has by then."""
    paths = [str(Path(__file__).parents[2]), *sys.path]
    learner = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(one for one in paths if one)},
    )  # fmt: skip
    assert learner.stdout is not None
    while until not in learner.stdout.readline():
        assert learner.poll() is None
    over = time.monotonic() + 60
    while len(found := children_of(learner.pid)) < 2:
        assert time.monotonic() < over
    return learner, found


@pytest.mark.parametrize(
    ("number", "status", "until"),
    [
        (signal.SIGKILL, -9, "learns"),
        pytest.param(signal.SIGINT, 1, "made", marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, 143, "learns", marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, 1, "learns", marks=pytest.mark.slow),
    ],
)
def test_a_learner_that_ends_leaves_no_collector_behind(number, status, until):
    learner, collectors = started(until)
    learner.send_signal(number)
    learner.communicate(timeout=30)
    assert learner.returncode in (status, -number)
    assert gone(collectors)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"collectors": 3}, "num_envs=4 copies cannot be shared out evenly to collectors=3"),
        ({"collectors": 0}, "collectors must be at least 1, got 0"),
        ({"collectors": 2, "ring_size": 100}, "ring_size=100 is smaller than a batch"),
        ({"collectors": 2, "ring_size": 2000, "batch_size": 3000}, "ring_size=2000 is smaller than a batch"),
        ({"collectors": 2, "workers": 2}, "workers and collectors are both processes"),
        ({"collectors": 2, "collect_mode": "fast"}, "Invalid enum value 'fast' - at collect_mode"),
        ({"collectors": 2, "collector_timeout": 0.0}, "collector_timeout must be above 0"),
    ],
)
def test_settings_that_collectors_cannot_have_are_refused(settings, said):
    with pytest.raises(ValueError, match=said):
        agent_for(Counting, **settings, **PYTHON)


def test_environments_that_cannot_be_carried_are_refused():
    lock = threading.Lock()

    class Locked(Counting):
        def reset(self, **options):
            with lock:
                return super().reset(**options)

    with pytest.raises(ValueError, match="cannot be carried into the processes of collectors"):
        agent_for(Locked, collectors=2, **PYTHON)
    with pytest.raises(
        ValueError, match=r"CartPole-v1 is compiled, .* leave collectors out, and on a GPU give overlap=T"
    ):
        agent_for("CartPole-v1", collectors=2, **PYTHON)
    ready = velocirl.make_vec("gym:CartPole-v1", 4)
    with pytest.raises(ValueError, match="leave collectors out"):
        agent_for(ready, collectors=2, **PYTHON)
    ready.close()


def test_more_collectors_than_memory_allows_are_refused():
    agent = agent_for(Counting, num_envs=1024, collectors=1024, ring_size=2**30, buffer_size=2000, **PYTHON)
    with pytest.raises(MemoryError, match=r"1024 collectors with rings of .* would take .* GiB"):
        agent.learn(64, progress=False)


def test_collectors_of_native_networks_import_no_torch(tmp_path, monkeypatch):
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    agent = trained(partial(Importing, str(tmp_path / "modules")), collectors=1, **THREADS)
    assert agent.steps == 64
    modules = (tmp_path / "modules").read_text().split()
    assert "velocirl" in modules
    assert "torch" not in modules
    assert (tmp_path / "modules.threads").read_text() == "1"


class Importing(Counting):
    """Writes down which modules its process has imported, and how many threads libraries may have there."""

    def step(self, action):
        if "worker_process" in sys.argv[0]:
            Path(self.file).write_text(" ".join(sys.modules))
            Path(self.file + ".threads").write_text(os.environ.get("OPENBLAS_NUM_THREADS", ""))
        return super().step(action)

    def _first(self):
        return False
