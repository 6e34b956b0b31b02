"""Minari's layout, with Minari itself: it reads what we write, and we read what it writes."""

import json

import gymnasium
import h5py
import minari
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from minari.data_collector.episode_buffer import EpisodeBuffer
from minari.dataset.minari_storage import MinariStorage

from velocirl.buffers.data.columns import DatasetError, columns_of
from velocirl.buffers.data.dataset import Dataset
from velocirl.buffers.data.info import DatasetInfo
from velocirl.datasets.minari.exporting import export_minari
from velocirl.datasets.minari.importing import import_minari
from velocirl.datasets.minari.layout import space_from_text, space_text

SPACES = {
    "numbers": Box(-np.inf, np.inf, (2,), np.float32),
    "bounded": Box(np.array([0.0, -1.0], np.float64), np.array([np.inf, 2.0]), dtype=np.float64),
    "picture": Box(0, 255, (4, 5, 3), np.uint8),
    "choice": Discrete(4, start=-1),
    "choices": MultiDiscrete([2, 3]),
    "bits": MultiBinary(3),
    "dict": Dict(camera=Box(0, 255, (2, 2), np.uint8), motor=Dict(speed=Box(-1, 1, (), np.float32))),
    "tuple": Tuple((Discrete(2), Box(-1, 1, (2,), np.float32))),
}


def recorded(seen="numbers", acted="bounded", lengths=(3, 1, 4), constraints=("hot", "cold")):
    rng = np.random.default_rng(0)
    references = {"random": -3.0, "expert": 5.0}
    more = {"environment": "ChemicalReactor-v0", "level": "medium", "policy": "PID"}
    info = DatasetInfo(SPACES[seen], SPACES[acted], constraints=constraints, references=references, **more)
    steps = sum(lengths)
    columns = {"starts": np.cumsum([0, *lengths]).astype(np.int64)}
    for name, column in columns_of(info).items():
        rows = steps + len(lengths) * name.startswith("observations")
        if column.part is None:
            columns[name] = rng.random((rows, *column.shape)).astype(column.dtype)
        else:
            column.part.space.seed(1)
            columns[name] = np.array([column.part.space.sample() for _ in range(rows)], column.dtype)
    columns["terminations"] = np.arange(steps) == columns["starts"][2] - 1
    columns["truncations"] = np.isin(np.arange(steps), columns["starts"][[1, 3]] - 1)
    return Dataset(info, columns)


def same(one, other):
    for name, column in one.columns.items():
        assert column.dtype == other.columns[name].dtype, name
        assert column.tobytes() == other.columns[name].tobytes(), name
    assert one.info == other.info


def equal_values(ours, theirs):
    if isinstance(ours, dict):
        assert set(ours) == set(theirs)
        for key, one in ours.items():
            equal_values(one, theirs[key])
    elif isinstance(ours, tuple):
        for one, other in zip(ours, theirs, strict=True):
            equal_values(one, other)
    else:
        np.testing.assert_array_equal(ours, theirs)
        assert ours.dtype == theirs.dtype


@pytest.mark.parametrize("seen", SPACES)
def test_minari_reads_ours_and_it_comes_back_bit_for_bit(tmp_path, seen):
    data = recorded(seen, "choice" if seen == "dict" else seen)
    path = export_minari(data, tmp_path / "plant-v0")
    theirs = minari.MinariDataset(path / "data")
    assert theirs.observation_space == data.info.observation_space
    assert (theirs.total_episodes, theirs.total_steps) == (3, 8)
    for number, one in enumerate(theirs):
        own = data.episode(number)
        equal_values(own.observations, one.observations)
        equal_values(own.actions, one.actions)
        for name in ("rewards", "terminations", "truncations"):
            np.testing.assert_array_equal(getattr(own, name), getattr(one, name))
        np.testing.assert_array_equal(one.infos["costs"][1:], own.costs)
    same(import_minari(path), data)
    same(import_minari(path, tmp_path / "back.vds"), data)
    assert space_from_text(space_text(SPACES[seen])) == SPACES[seen]


def test_minari_finds_ours_by_its_id_and_knows_the_environment_and_scores(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    (tmp_path / "plant").mkdir()
    export_minari(recorded(), tmp_path / "plant" / "medium-v0", "plant/medium-v0")
    theirs = minari.load_dataset("plant/medium-v0")
    assert theirs.spec.env_spec.id == "velocirl/ChemicalReactor-v0"
    assert list(minari.list_local_datasets()) == ["plant/medium-v0"]
    assert minari.get_normalized_score(theirs, np.array([1.0])) == 0.5


def collected(tmp_path, monkeypatch):
    """A data set that Minari wrote; steps are taken here, as its own collector needs jax."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    env = gymnasium.make("CartPole-v1", max_episode_steps=12)
    env.action_space.seed(0)
    episodes = []
    for seed in range(3):
        seen, steps, done = [env.reset(seed=seed)[0]], [], False
        while not done:
            action = env.action_space.sample()
            observation, reward, terminated, truncated, _ = env.step(action)
            done = terminated or truncated
            seen.append(observation)
            steps.append((action, reward, terminated, truncated))
        actions, rewards, terminations, truncations = map(list, zip(*steps, strict=True))
        episodes.append(EpisodeBuffer(seed, seed, None, seen, actions, rewards, terminations, truncations))
    made = minari.create_dataset_from_buffers(
        "pole/random-v0", episodes, env=env, algorithm_name="dice", ref_min_score=9.0, ref_max_score=500.0
    )
    env.close()
    return made, tmp_path / "minari" / "pole" / "random-v0"


@pytest.mark.filterwarnings("ignore")
def test_we_read_what_minari_wrote(tmp_path, monkeypatch):
    theirs, path = collected(tmp_path, monkeypatch)
    data = import_minari(path, tmp_path / "pole.vds")
    assert (data.episodes, len(data)) == (3, theirs.total_steps)
    assert data.info.environment == "gym:CartPole-v1"
    assert data.info.references == {"random": 9.0, "expert": 500.0}
    assert (data.info.observation_space, data.info.action_space) == (theirs.observation_space, theirs.action_space)
    for number, one in enumerate(theirs):
        own = data.episode(number)
        np.testing.assert_array_equal(own.observations, one.observations)
        np.testing.assert_array_equal(own.actions, one.actions)
        np.testing.assert_array_equal(own.rewards, one.rewards)
        np.testing.assert_array_equal(own.terminations, one.terminations)
        np.testing.assert_array_equal(own.truncations, one.truncations)
    json.loads(json.dumps(data.info.document()))


def test_costs_of_others_are_kept(tmp_path):
    directory = tmp_path / "data"
    directory.mkdir()
    spaces = {"observation_space": SPACES["numbers"], "action_space": SPACES["choice"]}
    MinariStorage.new(directory, **spaces)
    description = json.loads((directory / "metadata.json").read_text())
    with h5py.File(directory / "main_data.hdf5", "w") as file:
        group = file.create_group("episode_0")
        for name, values in (
            ("observations", np.zeros((3, 2), np.float32)),
            ("actions", np.zeros(2, np.int64)),
            ("rewards", np.ones(2)),
            ("terminations", np.zeros(2, bool)),
            ("truncations", np.zeros(2, bool)),
            ("infos/cost", np.array([9.0, 0.0, 2.0])),
        ):
            group.create_dataset(name, data=values)
    (directory / "metadata.json").write_text(json.dumps(description | {"total_episodes": 1, "total_steps": 2}))
    data = import_minari(tmp_path)
    assert data.info.constraints == ("cost",)
    assert data.costs.tolist() == [[0.0], [2.0]]
    assert data.truncations.tolist() == [False, True]


def hostile(change):
    def spoil(directory):
        with h5py.File(directory / "main_data.hdf5", "a") as file:
            change(file["episode_0"])

    return spoil


def put(name, values):
    def change(group):
        del group[name]
        group.create_dataset(name, data=values)

    return hostile(change)


def external(group):
    del group["rewards"]
    group["rewards"] = h5py.ExternalLink("/etc/hostname", "/rewards")


def bomb(group):
    del group["rewards"]
    group.create_dataset("rewards", shape=(2**40,), dtype="f4", chunks=(2**20,))


def described(**changes):
    def spoil(directory):
        path = directory / "metadata.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return spoil


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda at: (at / "main_data.hdf5").write_bytes(b"no"), "damaged, or no HDF5 file"),
        (lambda at: (at / "main_data.hdf5").unlink(), "no data set in Minari's layout"),
        (lambda at: (at / "metadata.json").write_text("{"), "not one that Minari writes"),
        (lambda at: (at / "metadata.json").write_text("[" * 10_000), "not one that Minari writes"),
        (described(data_format="arrow"), "stored as 'arrow'; velocirl reads hdf5"),
        (described(total_episodes=-1), "has -1 episodes"),
        (described(total_episodes=9), "/episode_3 is missing"),
        (described(velocirl="{}"), "cannot be understood: its description has unknown or missing keys"),
        (put("rewards", np.array(["a", "b", "c"], "S1")), "data are numbers"),
        (put("rewards", np.array([1.0, np.nan, 2.0], np.float32)), r"rewards is nan at \[1\]"),
        (put("observations", np.zeros((3, 2), np.float32)), r"has the shape \(3, 2\), and must have \(4, 2\)"),
        (put("terminations", np.array([True, False, False])), "within episode 0"),
        (hostile(external), "/episode_0/rewards is a link, which may lead anywhere"),
        (hostile(bomb), "which are not there"),
    ],
)
def test_hostile_directories_are_refused_and_nothing_is_written(tmp_path, spoil, reason):
    path = export_minari(recorded(), tmp_path / "plant-v0")
    spoil(path / "data")
    with pytest.raises(DatasetError, match=reason) as raised:
        import_minari(path, tmp_path / "into.vds")
    assert str(path) in str(raised.value)
    assert [one.name for one in tmp_path.iterdir()] == ["plant-v0"]


def test_an_export_is_whole_or_not_there(tmp_path, monkeypatch):
    data = recorded()
    with pytest.raises(FileNotFoundError, match="no directory"):
        export_minari(data, tmp_path / "nowhere" / "x-v0")
    with pytest.raises(ValueError, match="with a version at the end"):
        export_minari(data, tmp_path / "x", "no version")

    def interrupted(number, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export_minari(data, tmp_path / "x", progress=interrupted)
    assert list(tmp_path.iterdir()) == []
    export_minari(data, tmp_path / "x")
    with pytest.raises(FileExistsError, match="there already"):
        export_minari(data, tmp_path / "x")
