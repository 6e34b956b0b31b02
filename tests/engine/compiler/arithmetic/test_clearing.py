"""Zeros for whole rows, at every address and of every length, with nothing before or after them touched."""

import numpy as np
import pytest

from velocirl import clear
from velocirl.engine.compiler.compiling import cpu_translator
from velocirl.engine.targets.launching import CPULauncher, PythonLauncher, Work

COUNT, PERIOD = 50, 3


def clear_some(i, r, place, rows):
    if i % PERIOD == place:
        clear(rows[i])


class OnGPU:
    """The same launch on a GPU, for rows of the host."""

    def launch(self, works, count):
        from velocirl.engine.targets.cuda import cuda
        from velocirl.engine.targets.cuda_units import CUDALauncher, unit_translator

        ((function, (rows,), _),) = works

        def run(place):
            there = cuda.to_device(rows)
            CUDALauncher(unit_translator("test", double=True), lambda: 0).launch([Work(function, (there,))], count)(
                place
            )
            rows[...] = there.copy_to_host()

        return run


LAUNCHERS = [
    PythonLauncher(),
    CPULauncher(1, cpu_translator("test", double=True)),
    pytest.param(OnGPU(), marks=pytest.mark.cuda),
]


@pytest.mark.parametrize("launcher", LAUNCHERS, ids=["python", "cpu", "cuda"])
@pytest.mark.parametrize("shape", [(1,), (7,), (16,), (37,), (400,), (700,), (1000,)])
def test_only_the_chosen_rows_become_zeros(launcher, shape):
    rows = np.random.default_rng(0).integers(1, 256, (COUNT, *shape), np.uint8)
    wanted = rows.copy()
    wanted[1::PERIOD] = 0
    launcher.launch([Work(clear_some, (rows,))], COUNT)(1)
    np.testing.assert_array_equal(rows, wanted)


def test_fields_of_any_kind_and_shape():
    for kind in (np.float32, np.int64, np.bool_):
        rows = np.ones((COUNT, 2, 5), kind)
        PythonLauncher().launch([Work(clear_some, (rows,))], COUNT)(0)
        assert rows.reshape(COUNT, -1).any(1).tolist() == [i % PERIOD != 0 for i in range(COUNT)]
