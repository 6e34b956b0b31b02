"""Units for a GPU, compiled and linked with their skeletons without one: of an environment, and of an algorithm."""

import importlib.util
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pictures
import pytest
from hybrid import aiming, forbidding, noting

import velocirl
from velocirl import PPO, DefinitionError
from velocirl.engine import registry
from velocirl.engine.action_parts import has_parts
from velocirl.engine.checking.diagnosis import diagnose
from velocirl.engine.compiler.frames import packed_words_of, type_of
from velocirl.engine.fleets.fleet import allocate
from velocirl.engine.fleets.lifecycle import lifecycle
from velocirl.engine.fleets.loops import beginning, running, stepping
from velocirl.engine.fleets.sharing import SharedFrames, shares_frames
from velocirl.engine.targets.launching import Bound, Divided, Work, by_row
from velocirl.engine.targets.warps import WARP, keep_sum
from velocirl.learners import making


def missing():
    """The wheels that compile for a GPU and are not there."""
    wheels = {"numba-cuda": "numba_cuda", "cuda-core": "cuda.core", "torch": "torch"}
    return [wheel for wheel, module in wheels.items() if not found(module)]


def found(module):
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


pytestmark = pytest.mark.skipif(bool(missing()), reason=f"needs the wheels {', '.join(missing())}, but no GPU")

CAPABILITY = 9, 0
FRAMES = [
    pictures.define("Rows-v0", observe_row=pictures.observe_row),
    pictures.define("Coloured-v0", stack=2, skip=2, **pictures.COLOURED),
    pictures.define("Whole-v0", stack=3, observe=pictures.observe),
]
ENVIRONMENTS = ["CartPole-v1", "Pendulum-v1", "TicTacToe-v1", "FrozenLake-v1", aiming, noting, forbidding, *FRAMES]


@pytest.fixture
def units():
    from velocirl.engine.targets import cuda_units

    return cuda_units


@pytest.fixture
def compiled(units, monkeypatch):
    """The names of the functions that were really compiled."""
    names, compile_unit = [], units._compile

    def counted(function, *arguments):
        names.append(function.__name__)
        return compile_unit(function, *arguments)

    monkeypatch.setattr(units, "_compile", counted)
    return names


def linked(units, works, translator):
    """The kernel of some work as machine code, as a launch makes it."""
    codes = []
    for function, arguments, owner in works:
        rules = translator if owner is None else owner.translator
        codes.append(units.unit_code(function, type_of(arguments), rules, lambda: None, CAPABILITY))
    name = "__".join(work.function.__name__ for work in works)[:120]
    code = units.kernel_code(name, codes, [len(packed_words_of(work.arguments)) for work in works], CAPABILITY)
    assert code.startswith(b"\x7fELF")
    assert name.encode() in code
    return code


def works_of(environment):
    """All that a fleet does on a GPU."""
    from velocirl.engine.targets.cuda import accepting, flag_ended

    copies, life = allocate(environment, 4, {}), lifecycle(environment)
    chosen, first_bad = np.zeros(4, np.bool_), np.zeros(1, np.int32)
    if shares_frames(environment):
        from velocirl.engine.targets.cuda_rows import drawing_in_tiles

        shared = SharedFrames(environment, copies, draw=drawing_in_tiles(environment))
        works = [*shared.step(), *shared.random_step(), *shared.begin(chosen)]
        works += SharedFrames(environment, copies).step()  # as rows are drawn that do not fit into tiles
        return [work.work if isinstance(work, Divided) else work for work in works]
    given = copies.action.astype(np.int64) if copies.action.dtype.kind == "i" else copies.action
    works = [
        Work(stepping(life), (copies,)),
        Work(beginning(life), (copies, chosen)),
        Work(running(life), (copies,)),
        Work(flag_ended, (copies.terminated, copies.truncated, chosen)),
    ]
    if has_parts(environment.action):  # the host takes those
        return works
    return [*works, Work(accepting(environment), (given, copies.action, first_bad))]


@pytest.mark.parametrize("name", ENVIRONMENTS, ids=str)
def test_all_units_of_an_environment_can_be_compiled_and_linked(units, name):
    environment = registry.find(name)
    translator = units.unit_translator(environment.id, double=environment.double)
    for work in works_of(environment):
        linked(units, [work], translator)


class Block:
    """What a function of a thread asks the compiler for, where each thread of a block is one of Python's."""

    def __init__(self, threads):
        self.shared, self._tiles, self._here = self, [], threading.local()
        self._lock = threading.Lock()
        self._met = [threading.Barrier(min(WARP, threads - first)) for first in range(0, threads, WARP)]

    @property
    def threadIdx(self):
        return SimpleNamespace(x=self._here.thread)

    def array(self, shape, kind):
        with self._lock:
            self._tiles = self._tiles or [np.zeros(shape, str(kind))]
        return self._tiles[0]

    def syncwarp(self, mask):
        met = self._met[self._here.thread // WARP]
        assert mask == 2**met.parties - 1
        met.wait()

    def run(self, function, first, arguments):
        def one(thread):
            self._here.thread = thread
            function(first + thread, first + thread, 0, *arguments)

        with ThreadPoolExecutor(threads := sum(met.parties for met in self._met)) as pool:
            list(pool.map(one, range(threads)))


@pytest.mark.parametrize(
    "environment",
    [
        pictures.define("Rows-v0", observe_row=pictures.observe_row),
        pictures.define("Stacked-v0", observe_row=pictures.observe_row, stack=3),
        pictures.define("Coloured-v0", **pictures.COLOURED),
        pictures.define("Stacked-colours-v0", stack=2, **pictures.COLOURED),
    ],
    ids=str,
)
def test_rows_drawn_in_tiles_are_those_that_each_thread_writes_alone(units, environment, monkeypatch):
    """Warps that are whole, and one that is not; copies that have ended, and others beside them."""
    from velocirl.engine.targets import cuda_rows

    count = 41  # 164 rows: a block of 128, and 36 more
    fleets = [velocirl.make_vec(environment, count, device="python", seed=0) for _ in range(2)]
    for fleet in fleets:
        fleet.reset()
        fleet.copies.terminated[:] = np.arange(count) % 3 == 0
    alone = SharedFrames(environment, fleets[0].copies)._draw
    tiled = cuda_rows.drawing_in_tiles(environment)
    total = count * pictures.HEIGHT
    for i in range(total):
        alone(i, i, 0, fleets[0].copies)
    for first in range(0, total, units.THREADS):
        block = Block(min(units.THREADS, total - first))
        monkeypatch.setattr(cuda_rows, "cuda", block)
        block.run(tiled, first, (fleets[1].copies,))
    for name in ("observation", "final_observation"):
        one, other = (getattr(fleet.copies, name) for fleet in fleets)
        assert one.any()
        np.testing.assert_array_equal(other, one)


def test_rows_lie_apart_by_an_odd_number_of_words():
    from velocirl.engine.targets.cuda_rows import width_of_tile

    assert [width_of_tile(*one) for one in ((84, 1), (64, 1), (10, 4), (3, 6), (84, 3), (160, 2))] == [
        84, 68, 11, 6, None, None,
    ]  # fmt: skip


class Compiling:
    """Lets a device compile and link what it would launch on a GPU, and launch nothing."""

    def __init__(self, units, device):
        self.units, self.device, self.kernels = units, device, []
        self.translator = units.unit_translator("learner", double=False)
        device.launch, device.stepping, device.summing = self.launch, self.stepping, self.summing

    def summing(self, rows):
        assert rows % WARP == 0
        return WARP, keep_sum

    def stepping(self, fleet):
        environment = fleet.target._environment
        owner = SimpleNamespace(translator=self.units.unit_translator(environment.id, double=environment.double))
        return [Work(stepping(fleet.target.life), (fleet.copies,), owner)]

    def launch(self, works, count):
        from velocirl.backends.torch.device import _numpy_all

        assert not any(isinstance(work, Bound) for work in works)
        works = [work._replace(arguments=_numpy_all(work.arguments)) for work in works]
        linked(self.units, works, self.translator)
        self.kernels.append([work.function.__name__ for work in works])
        return lambda place=0: None


@pytest.fixture
def compiling(units, monkeypatch):
    """Agents that are prepared compile and link their kernels; gives those of each."""
    made = []

    def make_device(config, work):
        from velocirl.backends.torch.device import TorchCPUDevice

        made.append(Compiling(units, TorchCPUDevice(1)))
        return made[-1].device

    monkeypatch.setattr(making, "make_device", make_device)
    return made


def agents():
    from velocirl.algorithms import algorithm_modules, load_algorithms
    from velocirl.training.deep_agent import DeepAgent
    from velocirl.training.off_policy import NoisyConfig
    from velocirl.training.persistence import ALGORITHMS

    load_algorithms()
    for name, kind in sorted(ALGORITHMS.items()):
        if issubclass(kind, DeepAgent) and kind.__module__ in algorithm_modules().values():
            environment = "Pendulum-v1" if issubclass(kind.Config, NoisyConfig) else "CartPole-v1"
            marks = () if name in ("ppo", "sac") else pytest.mark.slow
            yield pytest.param(kind, environment, id=name, marks=marks)


@pytest.mark.parametrize(("kind", "environment"), list(agents()))
def test_all_units_of_an_algorithm_can_be_compiled_and_linked(compiling, compiled, kind, environment):
    def prepare():
        kind(environment, network="mlp(8)", num_envs=4, device="cpu", threads=1, seed=0).prepare()
        return compiling.pop().kernels

    kernels = prepare()
    called = [name for names in kernels for name in names]
    assert {"step", *(stage.function.__name__ for stage in each_of(kind))} <= set(called)
    compiled.clear()
    assert prepare() == kernels
    assert compiled == []  # the second time, everything is known


@pytest.mark.parametrize("environment", [aiming, forbidding], ids=str)
def test_so_can_those_of_actions_of_several_parts(compiling, environment):
    PPO(environment, network="mlp(8)", num_envs=4, device="cpu", threads=1, seed=0).prepare()
    called = [name for names in compiling.pop().kernels for name in names]
    assert {"act", "step", "loss_gradient"} <= set(called)


def each_of(kind):
    """The stages of an algorithm that call a function for each row, whatever its settings."""
    from velocirl.program.stages import Each, Every, flat

    waiting = list(flat(kind.update))
    while waiting:
        stage = waiting.pop()
        if isinstance(stage, Every):
            waiting += stage.stages
        elif isinstance(stage, Each):
            yield stage


def scaled(row, amount):
    row[0] = 0.1 * amount[0]


def test_work_of_one_launch_becomes_one_kernel_whose_units_are_compiled_once(units, compiled):
    rows, amount = np.zeros((4, 1), np.float32), np.zeros((4, 1), np.float32)
    work = Work(by_row(scaled), (rows, amount))
    translator = units.unit_translator("test", double=False)
    linked(units, [work, work], translator)
    assert len(compiled) <= 1


WORDS = {"a": 1.0}


def wrong(state, params, action, rng):
    return WORDS["a"], False


def test_a_function_that_cannot_be_compiled_is_told_as_the_persons_own_line(units, define):
    environment = define(id="Wrong-v0", step=wrong)
    copies = allocate(environment, 4, {})
    translator = units.unit_translator(environment.id, double=False)
    owner = SimpleNamespace(tell=lambda error: diagnose(environment, error))
    with (
        pytest.raises(DefinitionError, match=r"Wrong-v0: step uses WORDS, a dict.*\n.*units.py:\d+"),
        units._told(owner),
    ):
        units.unit_code(stepping(lifecycle(environment)), type_of((copies,)), translator, lambda: None, CAPABILITY)
