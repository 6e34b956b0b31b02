"""Agents that ranks train together, which are threads here: what they save is one agent, and they go on from it."""

import numpy as np
import pytest
from recorded import file_of
from threads_as_ranks import train_on

import velocirl
from velocirl import DQN, IQL, PPO, SAC, Checkpoint
from velocirl.buffers import segments
from velocirl.program import sharing
from velocirl.program.reducing import parts_of
from velocirl.program.sharing import sharing_of_data, sharing_of_memory, sharing_of_rollouts
from velocirl.runs import memory_files
from velocirl.runs.checkpoints import Checkpoints
from velocirl.scale import launching
from velocirl.scale.launching import LaunchError
from velocirl.training import offline
from velocirl.training.agent import Agent

COMMON = {"device": "cpu", "threads": 1, "hidden": (8,), "seed": 5}
PRIORITISED = {"num_envs": 5, "priority": "proportional", "n_step": 3, "buffer_size": 400, "learning_starts": 100,
               "train_every": 10, "batch_size": 16}  # fmt: skip


def dqn(environment="CartPole-v1", **more):
    return DQN(environment, **{**COMMON, **PRIORITISED, **more})


def saved(path):
    return lambda steps, *callbacks: lambda agent: agent.learn(steps, *callbacks, progress=False).save(path)


def arrays_of(path):
    return velocirl.load(path).state().arrays


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """So that rows travel in several."""
    monkeypatch.setattr(sharing, "MESSAGE", 2000)


@pytest.mark.parametrize("size", [2, 3])
def test_what_ranks_remember_is_saved_as_one_process_would_have_it(tmp_path, size):
    """Of 5 copies that act at random, whose ring went around: all arrays, bit for bit."""
    made = {"learning_starts": 10**6, "train_every": 10**6}
    train_on(1, lambda: dqn(**made), saved(tmp_path / "one.safetensors")(700))
    train_on(size, lambda: dqn(**made), saved(tmp_path / "ranks.safetensors")(700))
    one, ranks = arrays_of(tmp_path / "one.safetensors"), arrays_of(tmp_path / "ranks.safetensors")
    assert len(one["memory.rows"]) == 400
    assert_same(ranks, one)


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_go_on_exactly_and_others_from_where_they_were(tmp_path, size):
    """With priorities and returns over 3 steps; a checkpoint has the rows of all, and fewer ranks take them over."""
    whole, half, again, one = (tmp_path / f"{name}.safetensors" for name in ("whole", "half", "again", "one"))
    train_on(size, dqn, saved(whole)(3000))
    train_on(size, dqn, saved(half)(3000, lambda agent: agent.steps < 1500))
    train_on(size, lambda: velocirl.load(half), lambda agent: agent.learn(progress=False).save(again))
    assert_same(arrays_of(again), arrays_of(whole))
    assert arrays_of(whole)["learner.updates"][0] > 200
    other = velocirl.load(half)
    with pytest.warns(UserWarning, match=f"was trained by {size} ranks and goes on with 1: from where it was"):
        other.learn(progress=False).save(one)
    assert other.steps == 3000


def test_a_checkpoint_of_ranks_has_their_memory_in_segments_of_which_it_writes_what_is_new(tmp_path, monkeypatch):
    """The bytes that travel for the second are about those of its new rows, and those that it looks at again."""
    monkeypatch.setattr(memory_files, "LARGE", 1)
    monkeypatch.setattr(segments, "BYTES", 8000)
    fetched = []

    def listen(agent):
        fetch = agent.company._fetch
        agent.company._fetch = lambda first, stop: fetched.append((agent.steps, stop - first)) or fetch(first, stop)
        return agent.learn(4000, Checkpoint(tmp_path, every=1000), progress=False)

    def make():
        return dqn(buffer_size=10_000)

    train_on(2, make, listen)
    saved = Checkpoints(tmp_path).latest()
    assert saved.step == 4000
    assert len(saved.state.arrays["memory.rows"]) == 4000
    assert len(list((tmp_path / "memory").glob("*.rows"))) > 10
    steps = sorted({step for step, _ in fetched})
    later = [sum(count for step, count in fetched if step == one) for one in steps[1:]]
    assert max(later) < 4000 // 5 // 2  # of 800 steps of all copies
    again = Agent.from_state(saved.state)
    assert len(again.state().arrays["memory.rows"]) == 4000
    train_on(2, make, lambda agent: agent.learn(4000, progress=False).save(tmp_path / "whole"))
    assert_same(again.state().arrays, arrays_of(tmp_path / "whole.safetensors"))


def test_ranks_learn_from_data_and_one_process_goes_on(tmp_path, monkeypatch):
    monkeypatch.setitem(offline.UPDATES, "cpu", 20)  # of an iteration
    whole, half, again = (tmp_path / f"{name}.safetensors" for name in ("whole", "half", "again"))

    def make():
        return IQL("Pendulum-v1", data=file_of("Pendulum-v1"), batch_size=16, **COMMON)

    parameters = train_on(3, make, lambda agent: agent.learn(50, progress=False).parameters.copy())
    np.testing.assert_array_equal(parameters[0], parameters[1])
    np.testing.assert_array_equal(parameters[0], parameters[2])
    train_on(3, make, saved(whole)(50))
    train_on(3, make, saved(half)(50, lambda agent: False))
    train_on(3, lambda: velocirl.load(half), lambda agent: agent.learn(progress=False).save(again))
    assert_same(arrays_of(again), arrays_of(whole))
    with pytest.warns(UserWarning, match="was trained by 3 ranks and goes on with 1"):
        assert velocirl.load(half).learn(progress=False).steps == 50


def test_a_prefilled_memory_is_shared_out(tmp_path):
    """Of 240 recorded transitions and 7 copies, the newest 238; those of each copy are remembered by whom it is."""

    def make():
        return SAC("Pendulum-v1", num_envs=7, prefill=file_of("Pendulum-v1"), learning_starts=10**6, **COMMON)

    for size in (1, 3):
        train_on(size, make, saved(tmp_path / f"{size}.safetensors")(70))
    one, three = arrays_of(tmp_path / "1.safetensors"), arrays_of(tmp_path / "3.safetensors")
    assert len(one["memory.rows"]) == 238 + 70
    assert_same(three, one)


def test_what_is_shared_out_becomes_whole_again():
    generator = np.random.default_rng(0)
    state = {
        "fleet.rng": generator.random((7, 2)), "policy.noise": generator.random((7, 3)),
        "policy.parameters": generator.random(5), "memory.rows": generator.random(42),
        "memory.priorities": generator.random(70), "memory.counts": np.array([42, 42, 42]),
    }  # fmt: skip
    for size in (1, 2, 3, 4):
        for shared, streams in ((sharing_of_memory(7, 20, size), 20), (sharing_of_rollouts(7, 2, size), None)):
            count = streams or sum(len(one.shares) for one in parts_of(7, 2, size))
            whole = {**state, "learner.rng": generator.random((count, 2))}
            parts = [shared.own(whole, rank) for rank in range(size)]
            out = [{name: one for name, one in part.items() if shared.is_shared_out(name)} for part in parts]
            assert_same({"policy.parameters": state["policy.parameters"], **shared.join(out)}, whole)
    assert sharing_of_memory(7, 20, 3).streams == [(0, 8), (8, 17), (17, 20)]
    assert sharing_of_data(10, 3).streams == [(0, 3), (3, 6), (6, 10)]
    own = sharing_of_memory(3, 20, 3).own({"memory.rows": np.arange(6), "learner.rng": np.zeros((9, 2))}, 1)
    assert own["memory.rows"].tolist() == [1, 4]
    assert len(own["learner.rng"]) == 0  # of another batch


def test_a_memory_whose_records_lie_otherwise_is_not_shared_out():
    def begin(agent):
        agent._waiting = {"memory.rows": np.zeros(4), "memory.counts": np.full(3, 4), "learner.group": np.ones(1)}
        with pytest.raises(LaunchError, match="go on in one process, or load it with memory=False"):
            agent.company._deal(agent._waiting["memory.rows"])
        return True

    assert train_on(2, dqn, begin) == [True, True]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"num_envs": 1}, "num_envs=1 leaves a rank without a share, and mpirun has started 3 .* give num_envs=3, st"),
        ({"num_envs": 4}, "num_envs=4 leaves a rank without a share, .*: give num_envs=6, start one"),
        ({"batch_size": 2}, "batch_size=2 leaves a rank without a share, .*: give batch_size=3, start one"),
        ({"priority": "rank"}, "DQN learns on one rank only where one order of all errors decides what it draws"),
        ({"buffer_file": "ring"}, "where its memory is a file"),
        ({"environment": "gym:CartPole-v1", "collectors": 1}, "where it collects and learns at the same time"),
        ({"device": "python"}, "where its memory has priorities, and its network is torch's"),
    ],
)  # fmt: skip
def test_what_ranks_cannot_do_is_refused_in_one_sentence(monkeypatch, settings, reason):
    for name, value in (("SIZE", "3"), ("RANK", "0"), ("LOCAL_SIZE", "3")):
        monkeypatch.setenv(f"OMPI_COMM_WORLD_{name}", value)
    monkeypatch.setattr(launching, "DEFERENCE", 0.0)
    with pytest.raises(LaunchError, match=reason):
        dqn(**settings).learn(10)


def test_the_first_rank_decides_the_directory_and_what_is_resumed(tmp_path, capsys):
    """Of 2 ranks: a second training takes the next name, and one that is resumed ends where it would have ended."""
    made = {"num_envs": 4, "horizon": 16, "minibatch_size": 32, "epochs": 1, "hidden": (8,), "threads": 1, "seed": 5}

    def make():
        return PPO("CartPole-v1", **made, device="cpu")

    def learn(steps, name, **options):
        return lambda agent: agent.learn(steps, run_dir=tmp_path / name, progress=False, **options)

    first, *_ = train_on(2, make, learn(256, "run"))
    second, follower = train_on(2, make, learn(256, "run"))
    assert (second.run_dir, follower.run_dir) == (tmp_path / "run-2", None)
    assert capsys.readouterr().err.count("is a run already") == 1
    assert second.parameters.tobytes() == first.parameters.tobytes()
    assert sorted(one.name for one in tmp_path.iterdir() if one.name.startswith("run")) == ["run", "run-2"]
    train_on(2, make, learn(128, "stopped"))
    resumed = train_on(2, make, learn(256, "stopped", exist="resume"))
    assert [agent.steps for agent in resumed] == [256, 256]
    assert capsys.readouterr().err == ""
    again = train_on(2, make, learn(256, "stopped", exist="resume"))
    assert [agent.steps for agent in again] == [256, 256]
    assert "is finished, after 256 steps" in capsys.readouterr().err
    assert again[0].parameters.tobytes() == resumed[0].parameters.tobytes() == resumed[1].parameters.tobytes()
