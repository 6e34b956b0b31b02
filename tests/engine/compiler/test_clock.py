"""The clock of compiled loops is the one of Python, and is found by code that another process has compiled."""

import time

import numpy as np
import pytest

from velocirl.engine.compiler.clock import now
from velocirl.engine.compiler.compiling import compile_loop, cpu_translator, learning_translator

TRANSLATORS = {
    "environment": lambda: cpu_translator("clock", double=False),
    "double": lambda: cpu_translator("clock", double=True),
    "learner": lambda: learning_translator("clock"),
}


def fill_with_moments(moments):
    for place in range(len(moments)):
        moments[place] = now()


@pytest.mark.parametrize("name", TRANSLATORS)
def test_compiled_code_reads_the_clock_of_python(name):
    moments = np.zeros(1000, np.int64)
    fill = compile_loop(fill_with_moments, (moments,), TRANSLATORS[name](), before=lambda: None)
    before = time.monotonic_ns()
    fill(moments)
    after = time.monotonic_ns()
    assert before <= moments[0]
    assert (np.diff(moments) >= 0).all()
    assert moments[-1] <= after
    assert len(np.unique(moments)) > 100  # it goes on: not one look for all


def test_plain_python_reads_it_too():
    moments = np.zeros(10, np.int64)
    before = time.monotonic_ns()
    fill_with_moments(moments)
    assert before <= moments[0] <= moments[-1] <= time.monotonic_ns()
    assert (np.diff(moments) >= 0).all()


def test_a_pause_is_as_long_as_it_was():
    moment = np.zeros(1, np.int64)
    fill = compile_loop(fill_with_moments, (moment,), TRANSLATORS["learner"](), before=lambda: None)
    start = time.perf_counter()
    fill(moment)
    first = int(moment[0])
    time.sleep(0.05)
    fill(moment)
    assert 0.05 <= (moment[0] - first) * 1e-9 <= time.perf_counter() - start


def test_code_from_the_cache_of_another_process_finds_the_clock(run_script, tmp_path):
    script = tmp_path / "clock.py"
    script.write_text(
        "import time\n"
        "import numpy as np\n"
        "from velocirl.engine.compiler.clock import now\n"
        "from velocirl.engine.compiler.compiling import compile_loop, learning_translator\n"
        "def look(moments):\n"
        "    moments[0] = now()\n"
        "moments = np.zeros(1, np.int64)\n"
        "fresh = []\n"
        "fill = compile_loop(look, (moments,), learning_translator('clock'), before=lambda: fresh.append(1))\n"
        "before = time.monotonic_ns()\n"
        "fill(moments)\n"
        "assert before <= moments[0] <= time.monotonic_ns()\n"
        "print(len(fresh))\n"
    )
    assert [run_script(script, home=tmp_path / "home").strip() for _ in range(2)] == ["1", "0"]
