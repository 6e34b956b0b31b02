"""Data sets: their columns, the transitions made of them, and their files, bit for bit."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from hypothesis import given, settings
from hypothesis import strategies as some
from safetensors.numpy import load_file

import velocirl
from velocirl.buffers.data import file
from velocirl.buffers.data.columns import DatasetError
from velocirl.buffers.data.dataset import Dataset
from velocirl.buffers.data.info import DatasetInfo
from velocirl.buffers.data.spaces import space_document, space_from

NUMBERS = Box(-np.inf, np.inf, (2,), np.float32)
PLANT = DatasetInfo(
    NUMBERS,
    Box(-1.0, 1.0, (1,), np.float32),
    environment="Toy-v0",
    params={"gain": 0.5},
    signals={"level": "m", "flow": "m3/s"},
    actuators={"valve": "%"},
    constraints=("dry", "flood"),
    level="operator",
    seed=3,
    references={"random": -10.0, "operator": 1.0, "expert": 10.0},
)
SPACES = {
    "numbers": NUMBERS,
    "bounded": Box(np.array([0.0, -1.0], np.float64), np.array([np.inf, 2.0]), dtype=np.float64),
    "picture": Box(0, 255, (4, 5, 3), np.uint8),
    "choice": Discrete(4, start=-1),
    "choices": MultiDiscrete([2, 3]),
    "bits": MultiBinary(3),
    "dict": Dict(camera=Box(0, 255, (2, 2), np.uint8), motor=Dict(speed=Box(-1, 1, (), np.float32))),
    "tuple": Tuple((Discrete(2), Box(-1, 1, (2,), np.float32))),
}


def counted(lengths, terminated=(), info=PLANT):
    """Episodes in which every number says where it belongs: observation i of episode k is [k, i], action i is i."""
    episodes = []
    for k, steps in enumerate(lengths):
        ended = np.zeros(steps, bool)
        ended[-1] = True
        over = k in terminated
        episodes.append(
            {
                "observations": np.stack([np.full(steps + 1, k), np.arange(steps + 1)], 1).astype(np.float32),
                "actions": (np.arange(steps)[:, None] / 100).astype(np.float32),
                "rewards": np.full(steps, k + 1, np.float32),
                "costs": np.stack([np.arange(steps) % 2, np.zeros(steps)], 1),
                "terminations": ended & over,
                "truncations": ended & (not over),
            }
        )
    return Dataset.from_episodes(episodes, info)


def drawn(space, other, lengths, seed=0):
    """Random values of spaces."""
    rng = np.random.default_rng(seed)
    info = DatasetInfo(space, other)
    columns = {"starts": np.cumsum([0, *lengths]).astype(np.int64)}
    for name, column in velocirl.buffers.data.columns.columns_of(info).items():
        rows = sum(lengths) + (len(lengths) if name.startswith("observations") else 0)
        space_of = None if column.part is None else column.part.space
        if space_of is not None:
            space_of.seed(seed)
            columns[name] = np.array([space_of.sample() for _ in range(rows)], column.dtype).reshape(-1, *column.shape)
        else:
            columns[name] = rng.normal(size=(rows, *column.shape)).astype(column.dtype)
    columns["terminations"] = np.zeros(sum(lengths), bool)
    columns["truncations"] = np.isin(np.arange(sum(lengths)), columns["starts"][1:] - 1)
    return Dataset(info, columns)


def same(one, other):
    assert set(one.columns) == set(other.columns)
    for name, column in one.columns.items():
        assert column.dtype == other.columns[name].dtype, name
        assert column.tobytes() == other.columns[name].tobytes(), name
    assert one.info == other.info


@settings(max_examples=60, deadline=None)
@given(some.lists(some.integers(1, 7), min_size=1, max_size=6), some.integers(1, 12), some.sets(some.integers(0, 5)))
def test_no_pair_crosses_an_episode(lengths, block, terminated):
    data = counted(lengths, terminated)
    rows = [
        (k, i, i + 1 < steps, k in terminated and i + 1 == steps, k not in terminated and i + 1 == steps)
        for k, steps in enumerate(lengths)
        for i in range(steps)
    ]
    found = []
    for one in data.transitions(block):
        assert len(one) <= block
        np.testing.assert_array_equal(one.next_observations - one.observations, np.tile([0, 1], (len(one), 1)))
        later = np.where(one.has_next[:, None], one.actions + np.float32(0.01), one.actions)
        np.testing.assert_allclose(one.next_actions, later, rtol=1e-6)
        flags = zip(one.has_next, one.terminations, one.truncations, strict=True)
        found += [
            (int(seen[0]), int(seen[1]), *map(bool, some)) for seen, some in zip(one.observations, flags, strict=True)
        ]
    assert found == rows


def test_episodes_are_what_went_in():
    data = counted([3, 1, 2], terminated={1})
    assert (len(data), data.episodes, data.starts.tolist()) == (6, 3, [0, 3, 4, 6])
    assert data.returns().tolist() == [3.0, 2.0, 6.0]
    assert data.episode_costs().tolist() == [[1.0, 0.0], [0.0, 0.0], [1.0, 0.0]]
    assert data.lengths().tolist() == [3, 1, 2]
    one = data.episode(-2)
    assert one.observations.tolist() == [[1.0, 0.0], [1.0, 1.0]]
    assert one.terminated
    assert not data.episode(2).terminated
    with pytest.raises(IndexError, match="no episode 3: the data set has 3"):
        data.episode(3)


def test_what_is_not_said_of_an_episode_is_that_it_was_cut_off_and_cost_nothing():
    data = Dataset.from_episodes([velocirl.Episode(np.zeros((3, 2)), np.zeros((2, 1)), [1, 2])], PLANT)
    assert data.truncations.tolist() == [False, True]
    assert not data.terminations.any()
    assert data.costs.shape == (2, 2)
    assert data.rewards.dtype == np.float32


@pytest.mark.parametrize("seen", SPACES)
def test_a_file_gives_back_every_bit_of_every_space(tmp_path, seen):
    acted = SPACES["choice"] if seen in ("dict", "numbers") else SPACES[seen]
    data = drawn(SPACES[seen], acted, [3, 4])
    path = data.save(tmp_path / "data.vds")
    found = Dataset.load(path)
    same(data, found)
    assert found.checksum == data.checksum
    assert space_from(space_document(SPACES[seen])) == SPACES[seen]


def test_any_reader_of_safetensors_opens_the_file(tmp_path):
    data = counted([3, 2])
    tensors = load_file(data.save(tmp_path / "data.vds"))
    np.testing.assert_array_equal(tensors["observations"], data.observations)
    assert tensors["starts"].tolist() == [0, 3, 5]


def test_dicts_and_tuples_come_as_they_are_given(tmp_path):
    data = drawn(SPACES["dict"], SPACES["tuple"], [2, 2])
    block = next(data.transitions(3))
    assert block.observations["camera"].shape == (3, 2, 2)
    assert block.next_observations["motor"]["speed"].shape == (3,)
    choice, numbers = block.next_actions
    assert choice.shape == (3,)
    assert numbers.shape == (3, 2)
    same(Dataset.from_episodes([data.episode(0), data.episode(1)], data.info), data)


def test_loaded_columns_are_mapped_and_cannot_be_changed(tmp_path):
    found = Dataset.load(counted([3]).save(tmp_path / "data.vds"))
    with pytest.raises(ValueError, match="read-only"):
        found.rewards[0] = 1.0


def test_a_file_of_many_chunks_is_checked_in_each(tmp_path, monkeypatch):
    monkeypatch.setattr(file, "CHUNK", 256)
    data = counted([40, 30])
    path = data.save(tmp_path / "data.vds")
    same(Dataset.load(path), data)
    content = bytearray(path.read_bytes())
    content[-300] ^= 1
    path.write_bytes(content)
    with pytest.raises(DatasetError, match=r"checksum of its bytes \d+ to \d+ does not match"):
        Dataset.load(path)
    assert len(Dataset.load(path, check=False)) == 70


def test_concatenated_data_are_one_after_the_other():
    both = Dataset.concatenate([counted([3, 2]), counted([4], {0})], level="mixed")
    same(both, Dataset(both.info, both.columns))
    assert both.starts.tolist() == [0, 3, 5, 9]
    assert both.info.level == "mixed"
    both.validate()
    other = Dataset.from_episodes([], DatasetInfo(SPACES["picture"], Discrete(2)))
    with pytest.raises(ValueError, match="another observation space do not go together"):
        Dataset.concatenate([counted([2]), other])


def test_scores_are_0_for_random_and_100_for_the_expert():
    assert PLANT.normalised([-10.0, 0.0, 10.0, 20.0]).tolist() == [0.0, 50.0, 100.0, 150.0]
    with pytest.raises(ValueError, match="reference return of expert"):
        DatasetInfo(NUMBERS, NUMBERS, references={"random": 1.0}).normalised(1.0)
