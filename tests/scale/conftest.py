"""Jobs of ranks keep their runs apart, and end with the test that started them."""

import pytest
from ranks import started


@pytest.fixture(autouse=True)
def data_home(tmp_path, monkeypatch, keep_runs_at):
    """Runs are kept here, while the compile cache stays the user's own."""
    for name, value in keep_runs_at(tmp_path / "data").items():
        monkeypatch.setenv(name, value)


@pytest.fixture(autouse=True)
def nothing_left():
    """A job that a test leaves behind ends with it."""
    yield
    while started:
        with started.pop() as job:
            job.kill()
