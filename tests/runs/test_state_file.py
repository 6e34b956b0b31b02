"""State files: what is written comes back, what is damaged is refused, what cannot be written leaves nothing behind."""

import fcntl
import json
import os
import stat
import subprocess
import sys
import tempfile
import tracemalloc
from pathlib import Path
from textwrap import dedent

import hypothesis
import hypothesis.extra.numpy as arrays_of
import hypothesis.strategies as st
import numpy as np
import pytest
import safetensors
import safetensors.numpy

import velocirl
from velocirl.engine.disk.files import parse_json
from velocirl.engine.disk.safetensors_layout import MOST_HEADER_BYTES
from velocirl.engine.disk.writing import remove_unfinished, strict_json, write_whole
from velocirl.runs import state_file
from velocirl.runs.state_file import DamagedStateError, read_state, write_state

SCALARS = [np.dtype(name) for name in ["?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8"]]
INNER = np.dtype([("x", "f4"), ("flags", "u1", (3,))], align=True)
RECORD = np.dtype([("alive", "?"), ("position", "f8"), ("board", "i1", (3, 3)), ("inner", INNER, (2,))], align=True)
LETTERS = st.characters(codec="utf-8", exclude_characters="/")
DOCUMENT = {"config": {"gamma": 0.99, "layers": [64, 64], "name": "é\n"}, "big": 2**100, "none": None, "yes": True}


def example():
    generator = np.random.default_rng(0)
    state = np.zeros(5, RECORD)
    state["position"] = generator.normal(size=5)
    state["board"] = generator.integers(-9, 9, (5, 3, 3))
    state["inner"]["x"] = generator.normal(size=(5, 2))
    return {
        "parameters": generator.normal(size=(3, 7)).astype(np.float32),
        "streams": generator.integers(0, 2**64, 4, np.uint64),
        "done": np.array([True, False, True]),
        "nothing": np.zeros((0, 10), np.int32),
        "scalar": np.array(3.5),
        "env.state": state,
    }


def same(first, second):
    assert first.dtype == second.dtype
    assert first.shape == second.shape
    if first.dtype.names is None:
        assert first.tobytes() == second.tobytes()
    else:
        assert first.dtype.isalignedstruct == second.dtype.isalignedstruct
        for name in first.dtype.names:
            same(first[name], second[name])


def same_arrays(first, second):
    assert first.keys() == second.keys()
    for name in first:
        same(first[name], second[name])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state.safetensors"


def test_arrays_and_document_come_back_as_they_were(path):
    write_state(path, example(), DOCUMENT)
    state = read_state(path)
    same_arrays(example(), state.arrays)
    assert state.document == DOCUMENT


def test_an_empty_state_is_a_state(path):
    write_state(path, {}, {})
    assert read_state(path) == state_file.State({}, {})


def record_types(layers=2):
    base = st.sampled_from(SCALARS)
    if layers:
        base = base | st.deferred(lambda: record_types(layers - 1))
    shapes = arrays_of.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3)
    names = st.text(LETTERS, min_size=1, max_size=4)
    fields = st.lists(st.tuples(names, base, shapes), min_size=1, max_size=4, unique_by=lambda field: field[0])
    return st.builds(lambda fields, align: np.dtype(fields, align=align), fields, st.booleans())


@st.composite
def any_array(draw):
    dtype = draw(st.sampled_from(SCALARS) | record_types())
    shape = draw(arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    array = np.zeros(shape, dtype)
    fill(array, np.random.default_rng(draw(st.integers(0, 2**32))))
    return array.T if draw(st.booleans()) else array


def fill(array, generator):
    """Every bit pattern of numbers, NaNs among them; padding stays as it is."""
    if array.dtype.names is not None:
        for name in array.dtype.names:
            fill(array[name], generator)
    elif array.dtype == np.bool_:
        array[...] = generator.integers(0, 2, array.shape)
    else:
        array[...] = np.frombuffer(generator.bytes(array.nbytes), array.dtype).reshape(array.shape)


plain_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@hypothesis.given(
    st.dictionaries(st.text(LETTERS, min_size=1), any_array(), max_size=4),
    st.dictionaries(st.text(), plain_json, max_size=4),
)
@hypothesis.settings(max_examples=60)
def test_anything_comes_back_as_it_was(arrays, document):
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "state")
        write_state(path, arrays, document)
        state = read_state(path)
        header = safetensors.safe_open(path, "numpy")
        parts = set(header.keys())
    same_arrays(arrays, state.arrays)
    assert state.document == document
    assert json.dumps(state.document) == json.dumps(document)  # 1 and 1.0 and True are equal, but not the same
    assert {part.partition("/")[0] for part in parts} == set(arrays)


def test_the_state_of_a_fleet_comes_back(path):
    fleet = velocirl.make_vec("CartPole-v1", 3, seed=1, device="python")
    fleet.reset()
    saved = fleet.get_state()
    write_state(path, saved, {})
    same_arrays(saved, read_state(path).arrays)


def test_other_safetensors_readers_open_it_and_see_every_field(path):
    arrays = example()
    write_state(path, arrays, DOCUMENT)
    tensors = safetensors.numpy.load_file(path)
    fields = {"alive", "position", "board", "inner/x", "inner/flags"}
    assert tensors.keys() == arrays.keys() - {"env.state"} | {f"env.state/{field}" for field in fields}
    same(tensors["env.state/inner/flags"], np.ascontiguousarray(arrays["env.state"]["inner"]["flags"]))
    same(tensors["parameters"], arrays["parameters"])
    metadata = safetensors.safe_open(path, "numpy").metadata()
    assert metadata["format"] == "velocirl"
    assert metadata["version"] == "1"
    assert json.loads(metadata["document"])["config"] == DOCUMENT["config"]


def test_the_same_state_gives_the_same_file(path, tmp_path):
    write_state(path, example(), DOCUMENT)
    other = tmp_path / "other"
    write_state(other, dict(reversed(example().items())), DOCUMENT)
    assert path.read_bytes() == other.read_bytes()


def test_every_flipped_bit_is_noticed(path):
    record = np.ones(2, [("x", "f4"), ("y", "u1")])
    write_state(path, {"\x1f": np.zeros((0, 10), bool), "r": record}, {"text": "\x1f", "number": 10.5})
    whole = path.read_bytes()
    unnoticed = []
    with path.open("r+b", buffering=0) as file:
        for position in range(8 * len(whole)):
            index = position // 8
            os.pwrite(file.fileno(), bytes([whole[index] ^ 1 << position % 8]), index)
            try:
                read_state(path)
            except DamagedStateError:
                os.pwrite(file.fileno(), whole[index : index + 1], index)
                continue
            unnoticed.append(position)
    assert unnoticed == []


def test_every_truncation_and_anything_appended_is_noticed(path):
    write_state(path, example(), DOCUMENT)
    whole = path.read_bytes()
    for length in [*range(700), *range(700, len(whole), 7), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(DamagedStateError, match="damaged"):
            read_state(path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(DamagedStateError, match="bytes"):
        read_state(path)


@hypothesis.given(st.binary(max_size=200))
def test_random_bytes_are_refused(content):
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "state")
        path.write_bytes(content)
        with pytest.raises(DamagedStateError):
            read_state(path)


def forge(path, entries, data=b"", document="{}"):
    """A file with a right checksum over wrong contents, as somebody with ill will could write it."""
    tensors = {}
    for name, entry in entries.items():
        begin, end = entry["data_offsets"]
        tensors[name] = np.frombuffer(data[begin:end], state_file.DTYPES[entry["dtype"]]).reshape(entry["shape"])
    digest = state_file._digest(document, tensors)
    header = state_file._header(tensors, document, digest)
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)


def put(path, header, data=b""):
    content = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(content).to_bytes(8, "little") + content + data)


METADATA = {"format": "velocirl", "version": "1", "document": "{}", "sha256": "0" * 64}


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (b"not json", "Expecting value"),
        (b"[" * 100_000, "nested deeper than 32 levels"),
        ([], "not one that velocirl writes"),
        ({}, "not one that velocirl wrote"),
        ({"__metadata__": {"format": "pt"}}, "not one that velocirl wrote"),
        ({"__metadata__": METADATA | {"version": "2"}}, "version 2; this velocirl reads version 1"),
        ({"__metadata__": METADATA}, "checksum"),
        (b'{"a":1,"a":1}', "twice"),
        (b'{"a":NaN}', "NaN is not JSON"),
    ],
)
def test_a_wrong_header_is_refused_and_says_why(path, header, reason):
    put(path, header)
    with pytest.raises(DamagedStateError, match=reason) as raised:
        read_state(path)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"dtype": "O", "shape": [1], "data_offsets": [0, 8]}, "unknown type"),
        ({"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}, "should lie at"),
        ({"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}, "impossible"),
        ({"dtype": "F32", "shape": [1.0], "data_offsets": [0, 4]}, "impossible"),
        ({"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}, "impossible"),
        ({"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}, "should lie at"),
        ({"dtype": "F32", "shape": [0, 2**40, 2**40], "data_offsets": [0, 0]}, "impossibly large"),
        ({"dtype": "F32", "shape": [1] * 33, "data_offsets": [0, 4]}, "impossible"),
        ({"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}, "arrays take"),
        ({"dtype": "F32", "shape": [1]}, "not one that velocirl writes"),
        ("F32", "not one that velocirl writes"),
    ],
)
def test_an_impossible_array_is_refused(path, entry, reason):
    put(path, {"__metadata__": METADATA, "a": entry}, bytes(4))
    with pytest.raises(DamagedStateError, match=reason):
        read_state(path)


def test_a_huge_header_is_refused_before_memory_is_taken(path):
    with path.open("wb") as file:
        file.write((2**30).to_bytes(8, "little"))
        file.truncate(2**30 + 8)  # a hole: it takes no disk
    tracemalloc.start()
    try:
        with pytest.raises(DamagedStateError, match="header of 1073741824 bytes"):
            read_state(path)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
    path.write_bytes(b"\xff" * 16)
    with pytest.raises(DamagedStateError, match="header of"):
        read_state(path)


@pytest.mark.parametrize(
    "record",
    [
        {"aligned": False, "fields": [["x", "F64", []]]},
        {"aligned": False, "fields": [["x", "O", []]]},
        {"aligned": False, "fields": [["x", "F32", [2]]]},
        {"aligned": False, "fields": [["x", "F32", []], ["y", "F32", []]]},
        {"aligned": False, "fields": [["missing", "F32", []]]},
        {"aligned": False, "fields": []},
        {"fields": [["x", "F32", []]]},
        [],
        7,
    ],
)
def test_a_record_that_its_tensors_contradict_is_refused(path, record):
    document = json.dumps({state_file.RECORDS: {"r": record}})
    entries = {
        "r/x": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]},
        "r/y": {"dtype": "F32", "shape": [1], "data_offsets": [12, 16]},
    }
    forge(path, entries, bytes(16), document)
    with pytest.raises(DamagedStateError, match="damaged"):
        read_state(path)


def test_a_forged_boolean_is_refused(path):
    entry = {"dtype": "BOOL", "shape": [1], "data_offsets": [0, 1]}
    forge(path, {"a": entry}, b"\1")
    assert read_state(path).arrays["a"].tolist() == [True]
    forge(path, {"a": entry}, b"\2")
    with pytest.raises(DamagedStateError, match="neither true nor false"):
        read_state(path)


@pytest.mark.parametrize(
    ("arrays", "document", "reason"),
    [
        ({"a": np.zeros(1, object)}, {}, "object.*cannot be stored"),
        ({"a": np.zeros(1, ">f4")}, {}, ">f4.*cannot be stored"),
        ({"a": np.zeros(1, [("x", "S3")])}, {}, "'a/x'.*cannot be stored"),
        ({"": np.zeros(1)}, {}, "cannot be stored"),
        ({"__metadata__": np.zeros(1)}, {}, "cannot be stored"),
        ({"r": np.zeros(1, [("x", "f4")]), "r/x": np.zeros(1)}, {}, "two arrays would be stored as 'r/x'"),
        ({"r": np.zeros(2, RECORD)[["board", "alive"]]}, {}, "plain order"),
        ({}, {"config": {"rates": [1.0, float("nan")]}}, r"document.config.rates\[1\] is nan"),
        ({}, {"limit": float("inf")}, "document.limit is inf"),
        ({}, {state_file.RECORDS: {}}, "reserved"),
        ({}, {"long": "x" * MOST_HEADER_BYTES}, "store large values as arrays"),
    ],
)
def test_what_cannot_be_stored_is_refused_before_anything_is_written(path, arrays, document, reason):
    with pytest.raises(ValueError, match=reason):
        write_state(path, arrays, document)
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("value", [{1: 2}, np.zeros(1), {"a", "b"}, b"bytes", np.float32(1), range(3)])
def test_a_document_holds_only_what_json_has(value):
    with pytest.raises(TypeError, match=r"document\.a"):
        strict_json({"a": value})


def test_parse_json_reads_what_strict_json_writes():
    assert parse_json(strict_json(DOCUMENT, indent=2)) == DOCUMENT


def test_files_are_private_whatever_the_umask(path):
    before = os.umask(0)
    try:
        write_state(path, {}, {})
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("place", ["os.fsync", "os.replace"])
def test_a_failure_keeps_the_old_file_and_leaves_nothing_behind(path, monkeypatch, place):
    write_state(path, {}, {"version": "old"})

    def fail(*arguments, **named):
        assert len(list(path.parent.iterdir())) == 2  # the new one is there under another name
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(place, fail)
    with pytest.raises(OSError, match=r"No space left on device\); what was there before is untouched.*state"):
        write_state(path, example(), {"version": "new"})
    monkeypatch.undo()
    assert list(path.parent.iterdir()) == [path]
    assert read_state(path).document == {"version": "old"}


def test_an_interrupt_leaves_nothing_behind(path, monkeypatch):
    def interrupt(handle):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_state(path, {}, {})
    assert list(path.parent.iterdir()) == []


def test_data_reach_the_disk_before_the_name_and_the_name_before_the_return(path, monkeypatch):
    events = []
    sync, replace = os.fsync, os.replace

    def fsync(handle):
        events.append("directory" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        sync(handle)

    def rename(*arguments, **named):
        events.append("rename")
        return replace(*arguments, **named)

    monkeypatch.setattr("os.fsync", fsync)
    monkeypatch.setattr("os.replace", rename)
    write_state(path, example(), {})
    assert events == ["file", "rename", "directory"]


def test_a_full_disk_keeps_the_old_file_and_says_so(path, tmp_path, run_script):
    write_state(path, {}, {"version": "old"})
    script = tmp_path / "fill.py"
    script.write_text(
        dedent("""
        import resource, signal, sys
        import numpy as np
        from velocirl.runs.state_file import write_state

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
        try:
            write_state(sys.argv[1], {"large": np.ones(100_000)}, {"version": "new"})
        except OSError as error:
            print(error)
        """)
    )
    said = run_script(script, str(path))
    assert "File too large); what was there before is untouched" in said
    assert str(path) in said
    assert sorted(tmp_path.iterdir()) == [script, path]
    assert read_state(path).document == {"version": "old"}


def test_a_missing_directory_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere/state"):
        write_state(tmp_path / "nowhere" / "state", {}, {})
    with pytest.raises(FileNotFoundError):
        read_state(tmp_path / "state")


def test_a_link_is_followed(tmp_path):
    link, target = tmp_path / "link", tmp_path / "target"
    link.symlink_to(target)
    write_whole(link, [b"new"])
    assert link.is_symlink()
    assert target.read_bytes() == b"new"


def test_only_what_nobody_is_writing_counts_as_left_over(tmp_path):
    left, busy, other = (tmp_path / name for name in (".a.1.unfinished", ".b.2.unfinished", "c.unfinished"))
    for path in (left, busy, other):
        path.touch()
    with busy.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        remove_unfinished(tmp_path)
        assert sorted(tmp_path.iterdir()) == [busy, other]
    remove_unfinished(tmp_path)
    assert list(tmp_path.iterdir()) == [other]


SAVING = """
    import os, signal, sys
    import numpy as np
    from velocirl.runs.state_file import write_state

    os.fsync = lambda handle: os.kill(os.getpid(), signal.SIGKILL)
    write_state(sys.argv[1], {"large": np.ones(100_000)}, {})
"""


def test_what_a_kill_leaves_of_a_save_is_removed_by_the_next(tmp_path):
    for name in ("model", "other", "model"):
        subprocess.run([sys.executable, "-c", dedent(SAVING), str(tmp_path / name)], timeout=60)
    (left,) = tmp_path.glob(".model.*.unfinished")  # the second removed that of the first
    assert left.stat().st_size > 800_000
    write_state(tmp_path / "model", {}, {})
    (other,) = tmp_path.glob(".*.unfinished")
    assert other.name.startswith(".other.")
    assert read_state(tmp_path / "model") == state_file.State({}, {})


def test_writers_of_one_name_leave_each_others_files_alone(tmp_path):
    def parts():
        yield b"first"
        write_whole(tmp_path / "file", [b"other"])
        assert (tmp_path / "file").read_bytes() == b"other"
        yield b"second"

    write_whole(tmp_path / "file", parts())
    assert (tmp_path / "file").read_bytes() == b"firstsecond"
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_pipes_and_links_that_look_left_over_are_neither_opened_nor_followed(tmp_path):
    os.mkfifo(tmp_path / ".a.unfinished")
    (tmp_path / "precious").write_bytes(b"precious")
    (tmp_path / ".b.unfinished").symlink_to("precious")
    (tmp_path / ".c.unfinished").mkdir()
    remove_unfinished(tmp_path)
    assert (tmp_path / "precious").read_bytes() == b"precious"
    assert (tmp_path / ".b.unfinished").is_symlink()
    assert (tmp_path / ".c.unfinished").is_dir()


def test_links_in_a_circle_are_an_error_of_the_system(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        write_whole(tmp_path / "loop", [b"new"])


def test_a_file_is_locked_while_it_is_written(tmp_path):
    def parts():
        yield b"first"
        remove_unfinished(tmp_path)
        yield b"second"

    write_whole(tmp_path / "file", parts())
    assert (tmp_path / "file").read_bytes() == b"firstsecond"
