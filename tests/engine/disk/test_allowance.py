"""What settings of a file may ask for, and what any settings may."""

import pytest

from velocirl.engine.disk.allowance import BOUND, TIMES, claim, loading, memory_of_machine


def test_a_file_accounts_for_what_it_asks_for():
    with loading(1000):
        claim(TIMES * 1000 + BOUND, "a network")
        with pytest.raises(ValueError, match=r"a network would take .* bytes, and what is loaded has 1,000"):
            claim(TIMES * 1000 + BOUND + 1, "a network")
    claim(TIMES * 1000 + BOUND + 1, "a network")  # of one's own settings


def test_nobody_gets_more_than_the_machine_has():
    claim(memory_of_machine() // 2, "a memory")
    with pytest.raises(MemoryError, match=r"a memory would take .* GiB, and this machine has .* GiB"):
        claim(memory_of_machine() + 1, "a memory")
