"""Preprocessing as text and as a dict."""

import pytest

from velocirl.vector.preprocessing.switches import switches_from, text_of, whole_games
from velocirl.vector.preprocessing.wrappers import Atari

WRONG = {
    "atary": "there is no preprocess 'atary': did you mean 'atari'?",
    "atari(skp=4)": "atari has no argument 'skp': did you mean 'skip'?",
    "atari(skip=four)": "atari: skip must be a whole number, not 'four'",
    "atari(gray=2)": "atari: gray must be true or false, not '2'",
    "atari(skip=0)": "skip must be a whole number from 1 to 1024, not 0",
    "atari(size=-1)": "size must be a whole number from 0 to 1024, not -1",
    "atari(stack=2": "cannot read the preprocess",
    "atari atari": "names 2 kinds, and there can be one: atari",
}


def test_what_is_not_said_is_as_papers_have_it():
    usual = Atari(skip=4, stack=4, size=84, gray=True, life_loss=True, clip_rewards=True, noops=30)
    assert switches_from("atari") == switches_from({}) == switches_from("Atari()") == Atari() == usual


@pytest.mark.parametrize(
    "switches", [Atari(), Atari(skip=1, stack=2, size=0, noops=0), Atari(gray=False, life_loss=False)]
)
def test_text_and_dict_say_the_same(switches):
    assert switches_from(text_of(switches)) == switches_from(vars(switches)) == switches_from(switches) == switches


def test_only_what_is_unusual_is_written_down():
    assert text_of(Atari(stack=3, clip_rewards=False)) == "atari(stack=3, clip_rewards=false)"
    assert text_of(Atari()) == "atari"


def test_whole_games_have_the_same_pictures():
    assert whole_games(Atari(stack=3)) == Atari(stack=3, life_loss=False, clip_rewards=False)


@pytest.mark.parametrize("text", WRONG)
def test_what_cannot_be_read_is_refused(text):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - what it says is asserted
        switches_from(text)
    assert WRONG[text] in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"skp": 4}, "preprocess has no switch 'skp': did you mean 'skip'?"),
        ({"skip": True}, "skip must be a whole number, not True"),
        ({"gray": 1}, "gray must be true or false, not 1"),
    ],
)
def test_what_a_dict_cannot_say_is_refused(given, told):
    with pytest.raises(ValueError, match=told.replace("?", r"\?")):
        switches_from(given)
    with pytest.raises(TypeError, match="a text such as"):
        switches_from(4)  # pyright: ignore[reportArgumentType]
