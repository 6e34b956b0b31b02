"""Whether somebody looks, and whether something is shown already."""

import threading

import pytest

from velocirl.monitor.attention import attention, is_free


def test_one_thing_is_shown_at_a_time():
    assert is_free()
    with attention():
        assert not is_free()
        with attention():
            assert not is_free()
        assert not is_free()
    assert is_free()


def test_only_the_main_thread_shows_something():
    found = []
    thread = threading.Thread(target=lambda: found.append(is_free()))
    thread.start()
    thread.join()
    assert found == [False]


def test_it_is_free_again_after_an_error():
    with pytest.raises(RuntimeError), attention():
        raise RuntimeError
    assert is_free()
