"""Random calls on all environments, and on some that were made up: none does harm (see tools/fuzz_environments.py)."""

import fuzz_environments
import pytest


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_nothing_that_one_can_call_does_harm():
    counts, wrong = fuzz_environments.run(200_000, 1, print)
    assert wrong == []
    assert counts["done"] + counts["refused"] >= 200_000
