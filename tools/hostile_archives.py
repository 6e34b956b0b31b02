"""Directories and tables that mean no good, as they come from somebody else. None of them may do harm.

Runs whose files are links, pipes or damaged; directories in Minari's layout and tables of a historian with flipped
bytes, wrong arrays and impossible sizes; mappings with values of every kind; compiled code under another name. Each
case is used in a process of its own under a limit of memory and time. It passes if it is

- refused: an error that says in one line what is wrong; or
- harmless: it is used as any other.

And nothing outside of the directory that is used may have changed.

    python tools/hostile_archives.py --files 1000 --seed 0
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import itertools
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import pandas
from gymnasium.spaces import Box
from hostile_children import in_child

import velocirl
from velocirl.buffers.data.columns import DatasetError
from velocirl.buffers.data.dataset import Dataset
from velocirl.buffers.data.episodes import Episode
from velocirl.buffers.data.info import DatasetInfo
from velocirl.cli.main import main as velocirl_command
from velocirl.datasets.historian.importing import import_historian
from velocirl.datasets.minari.exporting import export_minari
from velocirl.datasets.minari.importing import import_minari
from velocirl.engine.compiler import compiling, units

MEMORY = 2**30 + 2**29  # bytes beyond those before: what unpacks to little more than is allowed, and libraries' threads
PASSES = ("refused", "harmless")
MAPPING: dict[str, Any] = {
    "time": "when", "reward": "profit", "episode": "batch", "terminated": "over", "gap": 15, "longest": 100,
    "observations": [{"column": "TI101", "name": "temperature", "unit": "degC", "to": "K"}],
    "actions": [{"column": "FV103", "unit": "%", "to": "1", "low": 0, "high": 1}], "costs": ["alarm"],
}  # fmt: skip
VALUES = (None, True, -1, 0, 10**400, -(10**400), 1e308, 0.5, "", "x" * 100_000, "when", "\x1b]0;mine\x07", [], {},
          [None], [[]], {"column": 10**400}, ["TI101"] * 1000, {"column": "TI101", "low": 10**400})  # fmt: skip
ENVIRONMENTS = ("CartPole-v1", "Pendulum-v1", "GridWorld-v0", "MountainCar-v0")


class Case(NamedTuple):
    """One case: what is done to a copy of what, and how it is used."""

    kind: str
    name: str
    spoil: Callable[[Path], None]  # a directory `own` that is used, beside one `outside` that must stay as it is
    use: Callable[[Path], None]


class Corpus:
    """All cases, and the directories of which copies are spoilt."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._made: dict[str, Path] = {}

    def cases(self, kind: str, count: int, draw: random.Random) -> Iterator[Case]:
        """As many cases of a kind: half drawn from all there are, the others files that are damaged anywhere."""
        every = list(getattr(self, f"_{kind}")())
        chosen = draw.sample(every, min(count if kind == "cache" else count // 2, len(every)))
        yield from chosen
        files = [place.relative_to(self.made(kind)) for place in sorted(self.made(kind).rglob("*")) if place.is_file()]
        for _ in range(0 if kind == "cache" else count - len(chosen)):
            file, seed = draw.choice(files), draw.randrange(2**32)
            yield Case(kind, f"{file} damaged with seed {seed}", _damaged(file, seed), draw.choice(every).use)

    def made(self, kind: str) -> Path:
        """The directory of which a kind has copies."""
        if kind not in self._made:
            self._made[kind] = self.home / kind
            self._made[kind].mkdir()
            MAKERS[kind](self._made[kind])
        return self._made[kind]

    def _run(self) -> Iterator[Case]:
        made = self.made("run")
        # The run itself is named by whoever uses it: a link to it is followed.
        places = [place.relative_to(made) for place in sorted((made / "run").rglob("*"))]
        more = ("run/.heartbeat.new", "run/.run.json.abcdefgh.unfinished", "run/checkpoints/memory", "run/summary.json",
                "run/checkpoints/best.safetensors", "run/checkpoints/step_000000099999.safetensors")  # fmt: skip
        for place in (*places, *map(Path, more)):
            for (change, put), (way, use) in itertools.product(PUTS.items(), USES.items()):
                yield Case("run", f"{place} is {change}, {way}", _put_at(place, put), use)

    def _minari(self) -> Iterator[Case]:
        names = ("", "/observations", "/actions", "/rewards", "/terminations", "/truncations", "/infos", "/infos/costs")
        for name, (change, value) in itertools.product(names, ARRAYS.items()):
            yield Case("minari", f"episode_0{name} is {change}", _with_array(f"episode_0{name}", value), _use_minari)
        path = Path("x-v0/data/metadata.json")
        yield from _documents(json.loads((self.made("minari") / path).read_text()), path, "minari", _use_minari)
        for place in ("x-v0", "x-v0/data", "x-v0/data/main_data.hdf5", "x-v0/data/metadata.json"):
            for change, put in PUTS.items():
                yield Case("minari", f"{place} is {change}", _put_at(Path(place), put), _use_minari)

    def _table(self) -> Iterator[Case]:
        for ending, use in TABLE_USES.items():
            for change, put in PUTS.items():
                yield Case("table", f"{ending} is {change}", _put_at(Path(f"table.{ending}"), put), use)
        yield from _documents(MAPPING, Path("mapping.json"), "table", TABLE_USES["csv"])

    def _cache(self) -> Iterator[Case]:
        files = sorted(one.name for one in (self.made("cache") / "compiled").iterdir())
        for one, other in itertools.combinations(files, 2):
            yield Case("cache", f"{one} and {other} exchanged", _exchanged(one, other), _use_cache)


def verdict(case: Case, made: Path, directory: Path) -> str:
    """Refused, harmless, or what went wrong, of a case that is made and used in a child."""
    own, outside = directory / "own", directory / "outside"
    for place in (own, outside):
        shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(made, own)
    _fill_outside(outside)
    case.spoil(own)
    before = _content(outside)

    def use() -> str:
        try:
            case.use(own)
        except (ValueError, OSError) as error:
            return "refused" if str(error).strip() else "refused without a word"
        except SystemExit as end:
            return {0: "harmless", None: "harmless", 1: "refused", 2: "refused"}.get(end.code, f"ended by {end.code}")
        return "harmless"

    end = in_child(use, MEMORY)
    return end if _content(outside) == before else f"{end}, and changed what lies outside"


def _fill_outside(outside: Path) -> None:
    (outside / "directory").mkdir(parents=True)
    (outside / "file").write_text("precious\n")
    for name in ("file", f"{0:015d}_{9:015d}_{'0' * 64}.rows", "step_000000000001.safetensors", ".x.unfinished"):
        (outside / "directory" / name).write_text("precious\n")


def _content(directory: Path) -> dict[str, str]:
    files = (one for one in directory.rglob("*") if one.is_file())
    return {str(one): hashlib.sha256(one.read_bytes()).hexdigest() for one in files}


PUTS: dict[str, Callable[[Path], None]] = {
    "a link to a file outside": lambda at: at.symlink_to(_outside(at) / "file"),
    "a link to a directory outside": lambda at: at.symlink_to(_outside(at) / "directory"),
    "a link to nothing outside": lambda at: at.symlink_to(_outside(at) / "made"),
    "a link to itself": lambda at: at.symlink_to(at.name),
    "a link to a device": lambda at: at.symlink_to("/dev/zero"),
    "a link to a pipe": lambda at: (os.mkfifo(at.with_name(f"{at.name}.pipe")), at.symlink_to(f"{at.name}.pipe"))[1],
    "a pipe": os.mkfifo,
    "an empty directory": Path.mkdir,
    "an empty file": Path.touch,
    "a hole of a terabyte": lambda at: (at.touch(), os.truncate(at, 2**40))[1],
    "missing": lambda at: None,  # noqa: ARG005
}
ARRAYS: dict[str, Any] = {
    "one number": 1.0, "nothing": h5py.Empty("f4"), "a text": "text", "texts": np.array([b"a"] * 3, "S1"),
    "wide": np.zeros(3, np.longdouble), "records": np.zeros(3, [("a", "f4")]), "complex": np.zeros(3, np.complex64),
    "of no rows": np.zeros(0), "of no columns": np.zeros((3, 0)), "of many columns": np.zeros((3, 5000)),
    "of many dimensions": np.zeros((1,) * 30), "not finite": np.full(3, np.nan), "a group": None,
    "a link to itself": "itself", "a link to the root": h5py.SoftLink("/"), "a lost link": h5py.SoftLink("/lost"),
    "a link to a pipe": h5py.ExternalLink("pipe", "/x"), "a link to a device": h5py.ExternalLink("/dev/zero", "/x"),
    "a link to a file": h5py.ExternalLink("other.hdf5", "/x"), "large": ((2**40,), {}), "large, of chunks": ((2**40,),
    {"chunks": (2**20,)}), "large and zeros": ((2**27,), {"compression": "gzip"}), "of a large chunk": ((3,), {"chunks":
    (2**27,), "maxshape": (None,), "compression": "gzip"}), "of many chunks": ((2**40,), {"chunks": (1,)}),
    "otherwise compressed": ((3,), {"compression": "lzf"}), "scaled": ((3,), {"scaleoffset": 2}),
}  # fmt: skip


def _outside(at: Path) -> Path:
    return next(above for above in at.parents if above.name == "own").with_name("outside")


def _put_at(place: Path, put: Callable[[Path], None]) -> Callable[[Path], None]:
    def spoil(own: Path) -> None:
        at = own / place
        if at.is_dir():
            shutil.rmtree(at)
        at.unlink(missing_ok=True)
        at.parent.mkdir(parents=True, exist_ok=True)
        put(at)

    return spoil


def _damaged(file: Path, seed: int) -> Callable[[Path], None]:
    """Flip bits, overwrite some bytes, or cut the file short."""

    def spoil(own: Path) -> None:
        draw, content = random.Random(seed), bytearray((own / file).read_bytes())  # noqa: S311 - no secret
        way = draw.choice(("flip", "flip", "flip several", "overwrite", "cut", "repeat"))
        if not content:
            content = bytearray(b"x")
        for _ in range(draw.randrange(2, 20) if way == "flip several" else way == "flip"):
            content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        place = draw.randrange(len(content))
        if way == "overwrite":
            content[place : place + 8] = draw.choice((b"\xff" * 8, b"\0" * 8, draw.randbytes(8)))
        if way == "cut":
            del content[place:]
        if way == "repeat":
            content[place:place] = content[place : place + 64]
        (own / file).write_bytes(content)

    return spoil


def _documents(document: Any, path: Path, kind: str, use: Callable[[Path], None]) -> Iterator[Case]:
    """Every value of a document replaced by others, and every key removed."""
    for place in _places(document):
        for value in (*VALUES, "removed"):
            name = f"{'.'.join(map(str, place))} = {type(value).__name__!s} {'' if isinstance(value, int) else value}"
            yield Case(kind, name[:80], _with_value(document, path, place, value), use)


def _places(document: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    pairs = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in pairs:
        yield (*above, key)
        if isinstance(value, dict | list):
            yield from _places(value, (*above, key))


def _with_value(document: Any, path: Path, place: tuple[Any, ...], value: Any) -> Callable[[Path], None]:
    def spoil(own: Path) -> None:
        changed = inner = copy.deepcopy(document)
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = value
        if value == "removed":
            del inner[place[-1]]
        (own / path).write_text(json.dumps(changed))

    return spoil


def _with_array(name: str, value: Any) -> Callable[[Path], None]:
    def spoil(own: Path) -> None:
        data = own / "x-v0" / "data"
        os.mkfifo(data / "pipe")
        with h5py.File(data / "other.hdf5", "w") as other:
            other["x"] = np.zeros(3)
        with h5py.File(data / "main_data.hdf5", "a") as file:
            del file[name]
            if value is None:
                file.create_group(name)
            elif isinstance(value, str) and value == "itself":
                file[name] = h5py.SoftLink(f"/{name}")
            elif isinstance(value, tuple):
                shape, options = value
                made = file.create_dataset(name, shape, "f4", **options)
                if options.get("compression") == "gzip":
                    made[...] = 0.0
            else:
                file[name] = value

    return spoil


def _exchanged(one: str, other: str) -> Callable[[Path], None]:
    def spoil(own: Path) -> None:
        (own / "compiled" / one).rename(own / "aside")
        (own / "compiled" / other).rename(own / "compiled" / one)
        (own / "aside").rename(own / "compiled" / other)

    return spoil


def _commanded(*words: str) -> Callable[[Path], None]:
    def use(own: Path) -> None:
        velocirl_command([words[0], str(own / "run"), *words[1:]])

    return use


def _load_run(own: Path) -> None:
    velocirl.load(own / "run")


def _use_minari(own: Path) -> None:
    _in_one_sentence(lambda: import_minari(own / "x-v0"), DatasetError)


def _import(ending: str) -> Callable[[Path], None]:
    def use(own: Path) -> None:
        _in_one_sentence(lambda: import_historian(own / f"table.{ending}", own / "mapping.json"), ValueError)

    return use


def _in_one_sentence(work: Callable[[], Any], expected: type[Exception]) -> None:
    try:
        work()
    except OSError as error:  # of a file that is missing, or no file
        if not error.filename:
            raise
    except expected as error:
        if len(str(error)) > 2000:
            raise TypeError(f"a sentence of {len(str(error))} letters") from error
        raise


def _use_cache(own: Path) -> None:
    os.environ["VELOCIRL_HOME"] = str(own)
    units._LOADED.clear()
    compiling._LOADED.clear()
    _step_all()


def _step_all() -> None:
    for name in ENVIRONMENTS:
        env = velocirl.make_vec(name, 4)
        env.reset(seed=0)
        for _ in range(5):
            env.step(env.action_space.sample())


USES = {
    "evaluated": _commanded("evaluate", "--latest", "--episodes", "1"),
    "resumed": _commanded("resume", "--total-steps", "512", "--quiet"),
    "loaded": _load_run,
}
TABLE_USES = {ending: _import(ending) for ending in ("csv", "parquet")}


def _make_run(at: Path) -> None:
    velocirl.QLearning("GridWorld-v0", num_envs=4, seed=0).learn(256, run_dir=at / "run", checkpoint_every=128)


def _make_minari(at: Path) -> None:
    rng, box = np.random.default_rng(0), Box(-1, 1, (2,), np.float32)
    episode = Episode(rng.uniform(-1, 1, (4, 2)), rng.uniform(-1, 1, (3, 2)), np.arange(3.0), np.ones((3, 1)))
    path = export_minari(Dataset.from_episodes([episode] * 2, DatasetInfo(box, box, constraints=("hot",))), at / "x-v0")
    description = json.loads((path / "data" / "metadata.json").read_text())
    del description["velocirl"]  # as somebody else writes it
    (path / "data" / "metadata.json").write_text(
        json.dumps(description | {"env_spec": json.dumps({"id": "CartPole-v1"})})
    )


def _make_table(at: Path) -> None:
    rows = np.arange(12)
    frame = pandas.DataFrame({
        "when": rows * 10.0, "TI101": 20.0 + rows, "FV103": 5.0 * rows, "profit": rows * 1.0, "alarm": (rows == 2) * 1,
        "over": (rows == 5) * 1, "batch": [f"batch {row // 6}" for row in rows],
    })  # fmt: skip
    frame.to_csv(at / "table.csv", index=False)
    frame.to_parquet(at / "table.parquet")
    (at / "mapping.json").write_text(json.dumps(MAPPING))


def _make_cache(at: Path) -> None:
    before = os.environ.get("VELOCIRL_HOME")
    os.environ["VELOCIRL_HOME"] = str(at)
    units._LOADED.clear()
    try:
        _step_all()
    finally:
        os.environ.pop("VELOCIRL_HOME")
        if before is not None:
            os.environ["VELOCIRL_HOME"] = before


MAKERS = {"run": _make_run, "minari": _make_minari, "table": _make_table, "cache": _make_cache}
SHARES = {"run": 0.4, "minari": 0.3, "table": 0.295, "cache": 0.005}  # of all cases


def run(files: int, seed: int, tell: Callable[[str], None], only: str = "") -> tuple[Counter[str], list[str]]:
    """So many cases of all kinds, or of one; how they ended, and those that did harm."""
    draw = random.Random(seed)  # noqa: S311 - a sample, not a secret
    ends: Counter[str] = Counter()
    harmful: list[str] = []
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        corpus, place = Corpus(Path(directory) / "made"), Path(directory) / "case"
        corpus.home.mkdir()
        os.environ["XDG_DATA_HOME"] = directory  # what is kept of runs is not that of whoever tries this
        kinds = {only: 1.0} if only else SHARES
        for kind, share in kinds.items():
            for case in corpus.cases(kind, max(round(files * share), 1), draw):
                end = verdict(case, corpus.made(kind), place)
                ends[end if end in PASSES else "harmful"] += 1
                if end not in PASSES:
                    harmful.append(f"{case.kind}; {case.name}: {end}")
                    tell(harmful[-1])
                if ends.total() % 100 == 0:
                    tell(f"{ends.total()} of some {files} cases in {time.monotonic() - begun:.0f} s: {dict(ends)}")
    return ends, harmful


def main() -> int:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=1000, help="Number of cases, spread over all kinds")
    parser.add_argument("--seed", type=int, default=0, help="Seed of the draw")
    parser.add_argument("--only", default="", choices=("", *MAKERS), help="Only cases of this kind")
    given = parser.parse_args()
    ends, harmful = run(given.files, given.seed, lambda text: print(text, flush=True), given.only)
    print(f"{ends.total()} cases: {dict(ends)}")
    for line in harmful:
        print(line)
    return 1 if harmful else 0


if __name__ == "__main__":
    sys.exit(main())
