"""What is refused: files that are damaged, foreign or mean no good, and data that cannot be learnt from."""

import hashlib
import json
import os
from textwrap import dedent

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete

from velocirl.buffers.data import file
from velocirl.buffers.data.columns import DatasetError
from velocirl.buffers.data.dataset import Dataset
from velocirl.buffers.data.info import DatasetInfo
from velocirl.buffers.data.spaces import space_from
from velocirl.buffers.data.writer import DatasetWriter
from velocirl.runs.state_file import write_state

INFO = DatasetInfo(Box(-np.inf, np.inf, (2,), np.float32), MultiDiscrete([2, 3]), environment="Toy-v0")


def columns(lengths=(3, 2)):
    steps, episodes = sum(lengths), len(lengths)
    starts = np.cumsum([0, *lengths]).astype(np.int64)
    return {
        "observations": np.arange(2 * (steps + episodes), dtype=np.float32).reshape(-1, 2),
        "actions": np.ones((steps, 2), np.int64),
        "rewards": np.arange(steps, dtype=np.float32),
        "costs": np.zeros((steps, 0), np.float32),
        "terminations": np.zeros(steps, bool),
        "truncations": np.isin(np.arange(steps), starts[1:] - 1),
        "starts": starts,
    }


def changed(name, place, value):
    found = columns()
    found[name][place] = value
    return found


def written(path, given, info=INFO):
    """A whole file with valid checksums, whatever is in it."""
    file.write_columns(path, info, {name: file.Stored.of(np.asarray(one)) for name, one in given.items()})
    return path


BAD = [
    (columns() | {"rewards": np.arange(5.0)}, r"rewards is float64 \(5,\), and must be float32 \(5,\)"),
    (columns() | {"observations": np.zeros((5, 2), np.float32)}, r"must be float32 \(7, 2\) \(5 steps, 2 episodes\)"),
    (columns() | {"extra": np.zeros(3)}, "the column 'extra' does not belong to it"),
    ({name: one for name, one in columns().items() if name != "actions"}, "there is no column 'actions'"),
    (columns() | {"starts": np.zeros(0, np.int64)}, "starts is int64"),
    (changed("starts", 0, 1), "starts goes from 1 to 5, and must go from 0 to 5"),
    (changed("starts", 1, 5), "episode 1 begins at step 5 and ends at 5: each has a step"),
    (changed("starts", 1, 2**60), "episode 1 begins at step"),
    (changed("starts", 1, 2), "truncations is true at step 2, within episode 1"),
    (changed("terminations", 1, True), "terminations is true at step 1, within episode 0"),
    (changed("truncations", 4, False), "episode 1 ends at step 4 neither terminated nor truncated"),
    (changed("observations", (6, 1), np.nan), r"observations is nan at \[6, 1\]; data must be finite"),
    (changed("rewards", 2, np.inf), r"rewards is inf at \[2\]"),
    (changed("actions", (3, 1), 3), r"actions is 3 at \[3, 1\], which is none of MultiDiscrete"),
    (changed("actions", (3, 0), -1), r"actions is -1 at \[3, 0\]"),
]


@pytest.mark.parametrize(("given", "reason"), BAD)
def test_a_whole_file_that_cannot_be_learnt_from_is_refused(tmp_path, given, reason):
    path = written(tmp_path / "bad.vds", given)
    with pytest.raises(DatasetError, match=reason) as raised:
        Dataset.load(path)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize(("given", "reason"), BAD)
def test_it_is_not_saved_either_and_nothing_is_left(tmp_path, given, reason):
    with pytest.raises(DatasetError, match=reason):
        Dataset(INFO, given).save(tmp_path / "bad.vds")
    with pytest.raises(DatasetError, match=reason), DatasetWriter(tmp_path / "bad.vds", INFO) as writer:
        writer.add(given)
    assert list(tmp_path.iterdir()) == []


def test_flags_that_are_neither_true_nor_false_are_refused(tmp_path):
    odd = columns()
    odd["terminations"] = np.full(5, 2, np.uint8).view(np.bool_)
    with pytest.raises(DatasetError, match="neither true nor false"):
        Dataset.load(written(tmp_path / "bad.vds", odd))


def test_objects_are_refused():
    with pytest.raises(DatasetError, match="rewards has objects, and data are numbers"):
        Dataset(INFO, columns() | {"rewards": np.array([None] * 5)})
    episode = {"observations": np.zeros((2, 2)), "actions": [[1, 1]], "rewards": ["a"]}
    with pytest.raises(DatasetError, match="rewards of episode 0 has values of the type <U1"):
        Dataset.from_episodes([episode], INFO)
    with pytest.raises(DatasetError, match="actions of episode 0 has values of float64 that int64 does not have"):
        Dataset.from_episodes([episode | {"rewards": [1.0], "actions": [[0.5, 1.0]]}], INFO)
    with pytest.raises(DatasetError, match="episode 0 has 'dones'; an episode has observations"):
        Dataset.from_episodes([episode | {"dones": [1]}], INFO)


def test_every_truncation_and_anything_appended_is_noticed(tmp_path):
    path = written(tmp_path / "data.vds", columns())
    content = path.read_bytes()
    for size in [*range(0, len(content), 7), len(content) - 1]:
        path.write_bytes(content[:size])
        with pytest.raises(DatasetError):
            Dataset.load(path)
    path.write_bytes(content + b"\0")
    with pytest.raises(DatasetError, match="bytes"):
        Dataset.load(path)


def test_every_flipped_bit_is_noticed(tmp_path):
    path = written(tmp_path / "data.vds", columns())
    content = path.read_bytes()
    for place in range(0, len(content), 3):
        spoilt = bytearray(content)
        spoilt[place] ^= 1 << (place % 8)
        path.write_bytes(spoilt)
        with pytest.raises(DatasetError):
            Dataset.load(path)


def test_foreign_files_are_refused_by_what_they_are(tmp_path):
    model = tmp_path / "model.safetensors"
    write_state(model, {"weights": np.zeros(3)}, {})
    cases = {
        model: "of the format 'velocirl', and not of 'velocirl data'",
        tmp_path: "not a plain file",
    }
    (tmp_path / "text.vds").write_text("time,pressure\n0,1\n" * 100)
    cases[tmp_path / "text.vds"] = "no safetensors file"
    os.mkfifo(tmp_path / "pipe")
    cases[tmp_path / "pipe"] = "not a plain file"
    for path, reason in cases.items():
        with pytest.raises(DatasetError, match=reason):
            Dataset.load(path)
    with pytest.raises(FileNotFoundError):
        Dataset.load(tmp_path / "nothing.vds")


def remade(path, change):
    """Change the description of a file, and give it valid checksums again."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    document = json.loads(header["__metadata__"]["document"])
    change(document)
    header["__metadata__"] |= {"document": json.dumps(document, separators=(",", ":")), "sha256": file.NOTHING}

    def encoded():
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        return len(text).to_bytes(8, "little") + text

    header["__metadata__"]["sha256"] = hashlib.sha256(encoded()).hexdigest()
    path.write_bytes(encoded() + content[8 + length :])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda document: document.update(code="import os"), "unknown or missing keys: code"),
        (lambda document: document.pop("seed"), "unknown or missing keys: seed"),
        (lambda document: document.update(level="best"), "level of a data set is one of"),
        (lambda document: document.update(seed="1"), "seed of a data set is a whole number"),
        (lambda document: document.update(references={"random": "1"}), "reference returns are numbers"),
        (lambda document: document.update(references=[1]), "references of a data set is a dict"),
        (lambda document: document.update(reference_episodes={"random": 3}), "give the episodes of a reference"),
        (lambda document: document.update(reference_intervals={"random": [1]}), "give the two ends"),
        (lambda document: document.update(time_step=-1.0), "time step of a data set is in seconds, above 0"),
        (lambda document: document.update(time_step=10**400), "time step of a data set is in seconds, above 0"),
        (lambda document: document.update(signals=[["a", 1]]), "named by texts"),
        (lambda document: document["action_space"].update(type="os.system"), "space of the type 'os.system'"),
        (lambda document: document["action_space"].update(nvec=[-1, 2]), "have to be positive"),
        (lambda document: document["observation_space"].update(shape=[2**30, 2**30]), "values of the shape"),
        (lambda document: document["observation_space"].update(dtype="object"), "Box of object"),
        (lambda document: document.update(observation_space={"type": "Discrete", "n": 2}), "space that is none"),
    ],
)
def test_descriptions_that_lie_are_refused(tmp_path, change, reason):
    path = written(tmp_path / "data.vds", columns())
    remade(path, lambda document: None)
    assert len(Dataset.load(path)) == 5
    remade(path, change)
    with pytest.raises(DatasetError, match=reason):
        Dataset.load(path)


def test_spaces_of_no_fixed_size_are_refused():
    with pytest.raises(ValueError, match="words that velocirl does not use"):
        space_from({"type": "Discrete", "n": 2, "start": 0, "dtype": "int64", "more": 1})
    slashed = DatasetInfo(Dict({"a/b": Discrete(2)}), Discrete(2))
    with pytest.raises(ValueError, match="cannot be a name"):
        slashed.document()


def test_an_interrupted_writer_leaves_what_was_there(tmp_path):
    path = written(tmp_path / "data.vds", columns())
    before = path.read_bytes()

    def interrupted():
        with DatasetWriter(path, INFO, overwrite=True) as writer:
            writer.add(columns())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_exists_is_kept_unless_it_is_to_be_replaced(tmp_path):
    path = written(tmp_path / "data.vds", columns())
    before = path.read_bytes()
    other = Dataset(INFO, columns((4,)))
    with pytest.raises(FileExistsError, match=r"data\.vds exists: choose another path, or say overwrite=True"):
        other.save(path)
    with pytest.raises(FileExistsError, match="exists"):
        DatasetWriter(path, INFO)
    assert path.read_bytes() == before
    assert len(Dataset.load(other.save(path, overwrite=True))) == 4
    with DatasetWriter(path, INFO, overwrite=True) as writer:
        writer.add(columns((2, 1)))
    assert len(Dataset.load(path)) == 3


def test_a_file_without_later_fields_is_read(tmp_path):
    path = written(tmp_path / "data.vds", columns())

    def older(document):
        for name in ("reference_episodes", "reference_intervals", "scenario", "time_step"):
            document.pop(name)

    remade(path, older)
    info = Dataset.load(path).info
    assert (info.reference_episodes, info.scenario, info.time_step) == ({}, None, None)


def test_a_writer_gives_the_file_that_save_gives(tmp_path, monkeypatch):
    monkeypatch.setattr(file, "CHUNK", 64)
    with DatasetWriter(tmp_path / "grown.vds", INFO) as writer:
        for lengths in ((3, 2), (1,), (4, 4)):
            writer.add(columns(lengths))
    parts = [Dataset(INFO, columns(lengths)) for lengths in ((3, 2), (1,), (4, 4))]
    Dataset.concatenate(parts).save(tmp_path / "saved.vds")
    assert (tmp_path / "grown.vds").read_bytes() == (tmp_path / "saved.vds").read_bytes()


def test_a_full_disk_keeps_the_old_file_and_says_so(tmp_path, run_script):
    path = written(tmp_path / "data.vds", columns())
    before = path.read_bytes()
    script = tmp_path / "fill.py"
    script.write_text(
        dedent("""
        import resource, signal, sys
        import numpy as np
        from gymnasium.spaces import Box
        from velocirl.buffers.data.dataset import Dataset
        from velocirl.buffers.data.info import DatasetInfo
        from velocirl.buffers.data.writer import DatasetWriter

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
        info = DatasetInfo(Box(-1, 1, (100,), np.float32), Box(-1, 1, (1,), np.float32))
        episode = {"observations": np.zeros((1001, 100)), "actions": np.zeros((1000, 1)), "rewards": np.zeros(1000)}
        data = Dataset.from_episodes([episode], info)
        def grow():
            with DatasetWriter(sys.argv[1], info, overwrite=True) as writer:
                writer.add(data.columns)
        for write in (lambda: data.save(sys.argv[1], overwrite=True), grow):
            try:
                write()
            except OSError as error:
                print(error)
        """)
    )
    said = run_script(script, str(path))
    assert said.count("File too large); what was there before is untouched") == 2
    assert said.count(str(path)) == 2
    assert sorted(tmp_path.iterdir()) == sorted([script, path])
    assert path.read_bytes() == before
