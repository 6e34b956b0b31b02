"""Runs that are killed at random moments go on as if nothing had happened (see tools/kill_loop.py)."""

import kill_loop
import pytest


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_runs_of_all_kinds_survive_being_killed():
    assert kill_loop.run(60, seed=1) == []
