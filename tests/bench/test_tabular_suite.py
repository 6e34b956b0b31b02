"""The benchmarks of tables: that everybody plays the same game, learns it, and does the work that is measured."""

import time

import gymnasium
import numpy as np
import pytest
import tic_tac_toe_oracle as oracle
from ranks import needs_mpi

from velocirl.bench.measuring import QUICK
from velocirl.bench.peers import list_q_learning, numpy_q_learning
from velocirl.bench.peers.process import Peer
from velocirl.bench.registry import find_benchmarks
from velocirl.bench.suite.tables import tabular, tabular_scaling, tabular_tables

EVERYTHING = np.array([oracle.cells_of(code) for code in range(oracle.CODES)])
PEERS = {
    "lists": (list_q_learning.Learner, 30_000),
    "numpy": (numpy_q_learning.Learner, 30_000),
    "numpy fleet": (lambda: numpy_q_learning.FleetLearner(64), 64 * 1000),
}


def test_what_is_claimed():
    claims = {
        (one.name, claim.by, claim.of, claim.to, claim.at_least, claim.at_most)
        for one in find_benchmarks(["tabular", "tabular_scaling", "tabular_tables"])
        for claim in one.define().claims
        if claim.at_least is not None or claim.at_most is not None
    }
    dense, sparse = "velocirl, dense table", "velocirl, sparse table"
    assert all(one.define().workers for one in find_benchmarks(["tabular_scaling"]))
    assert {
        ("q_learning", "value", dense, "", 20e6, None),
        ("q_learning", "ratio", dense, "NumPy", 200.0, None),
        ("q_learning_million", "value", dense, "", None, 0.05),
        ("q_learning_memory", "value", dense, "", None, 10.0),
        ("q_learning_memory", "value", sparse, "", None, 10.0),
        ("q_learning_threads", "ratio", "2 threads", "serial", 1.5, None),
        ("q_learning_processes", "ratio", "2 processes", "1 process", 1.6, None),
        ("q_learning_ranks", "ratio", "2 ranks", "1 rank", 1.6, None),
        ("sparse_table", "value", "sparse table", "", 4e6, None),
    } <= claims


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_learns_the_game(name):
    """A random policy earns 0, a perfect one 0.960; and only boards of the game are met."""
    make, steps = PEERS[name]
    learner = make()
    learner.run(steps)
    values = np.array(learner.table)
    _, reachable, _ = oracle.exact()
    assert set(np.flatnonzero(values.any(axis=1)).tolist()) <= set(reachable.tolist())
    assert not values[EVERYTHING != 0].any()  # no illegal move was ever learnt from
    assert np.abs(values).max() <= 1.0
    greedy = np.where(EVERYTHING == 0, values, -np.inf).argmax(axis=1)
    assert oracle.value_of_policy(greedy) > 0.6


def test_a_peer_learns_from_every_game_that_is_in_the_same_state():
    learner = numpy_q_learning.FleetLearner(64)
    learner.table[:] = -1.0
    learner.boards[:] = (1, 1, 0, 2, 2, 0, 1, 2, 2)  # two moves are left: the first one wins, the other may not
    learner.run(64)
    moved = learner.table[oracle.code_of((1, 1, 0, 2, 2, 0, 1, 2, 2))]
    assert (moved[[0, 1, 3, 4, 6, 7, 8]] == -1).all()
    # Games that won move it by 0.1 * (1 - -1) each; there are about 32 of them.
    wins = (moved[2] + 1) / 0.2
    assert wins == pytest.approx(round(wins), abs=1e-4)
    assert 16 <= round(wins) <= 48


@pytest.mark.parametrize(
    ("program", "function", "arguments"),
    [
        ("list_q_learning", "training", (200,)),
        ("numpy_q_learning", "training", (200,)),
        ("numpy_q_learning", "fleet_training", (64, 640)),
    ],
    ids=["lists", "numpy", "numpy fleet"],
)
def test_peers_run_in_processes_of_their_own(program, function, arguments):
    peer = Peer(program, function, *arguments, needs="numpy", amount=arguments[-1])
    assert 1e3 < peer.sample() < 1e7
    peer.close()


def test_velocirl_trains():
    for storage in ("dense", "sparse"):
        timed = tabular.velocirl_training(16_384, storage=storage)
        timed.prepare(QUICK)
        assert timed.amount == 16_384
        assert timed.sample() > 1e5


def test_velocirl_plays_by_the_same_settings_as_the_peers():
    for peer in (list_q_learning, numpy_q_learning):
        assert tabular.SETTINGS["learning_rate"] == peer.LEARNING_RATE
        assert tabular.SETTINGS["gamma"] == peer.GAMMA
        assert tabular.SETTINGS["exploration_rate"] == peer.EPSILON


def test_the_memory_of_a_peer():
    """19,683 lists of nine references, and the values that were learnt."""
    counted = tabular.peer_memory("list_q_learning")
    assert 19_683 * 9 * 8 / 1e6 < counted.sample() < 20


@pytest.mark.slow
def test_the_memory_of_velocirl():
    assert 0.05 < tabular.velocirl_memory(storage="dense").sample() < 10


@pytest.mark.parametrize("storage", [pytest.param("dense", marks=pytest.mark.slow), "sparse"])
def test_the_plain_is_walked_through(storage):
    agent = tabular_tables.agent_of(storage, side=16, stored=100 if storage == "sparse" else None, num_envs=64)
    if storage == "sparse":
        rows, columns = np.divmod(agent.table.keys, tabular_tables.SIDE)
        assert len(agent.table) == len(set(agent.table.keys.tolist())) == 100
        assert rows.max() < 16
        assert columns.max() < 16
    agent.learn(200_000)
    cells = np.array([tabular_tables.SIDE * row + column for row in range(16) for column in range(16)])
    met = agent.table.look_up(cells)[:, 0].any(axis=1)
    assert met[1:].all()
    if storage == "sparse":
        assert set(agent.table.keys.tolist()) == set(cells.tolist())
    assert agent.q_values([1, 0])[0] == pytest.approx(1, abs=0.01)  # beside the goal, up


def test_cells_are_in_no_order():
    cells = tabular_tables.scattered_cells(32)
    assert sorted(cells.tolist()) == list(range(1024))
    assert (np.abs(np.diff(cells)) > 32).mean() > 0.8


def test_bytes_per_state():
    """Rows of 24 bytes, slots of 8; 10M take 2^24 slots and have room for 2^24 rows."""
    used, allocated = tabular_tables.bytes_per_state(10_000_000)
    assert used == pytest.approx(24 + 8 * 2**24 / 1e7)
    assert allocated == pytest.approx(32 * 2**24 / 1e7)


def test_the_slow_walk_takes_its_time():
    env = gymnasium.make(tabular_scaling.SLOW)
    assert env.reset(seed=0)[0] == 32
    began = time.perf_counter()
    for steps in range(1, 32):
        observation, reward, terminated, _, _ = env.step(1)
        assert (observation, reward, terminated) == (32 + steps, float(steps == 31), steps == 31)
    assert time.perf_counter() - began >= 31 * tabular_scaling.SLOW_SECONDS


@pytest.mark.slow
@pytest.mark.parametrize(
    "make", [tabular_scaling.processes_training, tabular_scaling.ranks_training], ids=["processes", "ranks"]
)
def test_workers_of_a_benchmark_train(make):
    sampler = make(2)
    sampler.prepare(QUICK)
    assert sampler.sample() > 1e3
    sampler.close()


@needs_mpi
@pytest.mark.parametrize("runtime", [pytest.param("mpi", marks=pytest.mark.slow), "mpi-async"])
def test_ranks_of_a_benchmark_train(runtime):
    rates = tabular_scaling.run_ranks(2, runtime, steps=400_000)
    assert len(rates) == 3
    assert min(rates) > 1e4


def test_rates_are_found_in_whatever_a_job_prints():
    output = f"compiled in 8.1 s\n\x1b[?25h\x1b[2K\x1b[1A 3.5 {tabular_scaling.MARK}[1.5e6, 2e6]\x1b[0m\r\n7 8 9\n"
    assert tabular_scaling.rates_in(output) == [1.5e6, 2e6]
    with pytest.raises(RuntimeError, match="printed no rates:\n1 2 3"):
        tabular_scaling.rates_in("1 2 3")
