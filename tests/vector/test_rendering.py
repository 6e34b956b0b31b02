"""What is said of an environment whose pictures are wrong, and where its users read how to draw."""

import pydoc

import pytest
from toys.environments import drifting

import velocirl
from velocirl import DefinitionError
from velocirl.engine.canvas import Canvas


def draws_nothing(state, params, canvas):
    pass


def draws_without_a_view(state, params, canvas):
    canvas.disc(0, 0, 1, (0, 0, 0))


def draws_with_another_name(state, params, canvas):
    canvas.view(0, 1, 0, 1)
    canvas.circle(0, 0, 1, (0, 0, 0))


def draws_what_is_not_there(state, params, canvas):
    canvas.view(0, 1, 0, 1)
    canvas.disc(state.postion, 0, 1, (0, 0, 0))


@pytest.mark.parametrize(
    ("draw", "message", "line"),
    [
        (draws_nothing, "shows nothing; begin with canvas.view(left, right, bottom, top)", 0),
        (draws_without_a_view, "RuntimeError: call canvas.view(left, right, bottom, top) before", 1),
        (draws_with_another_name, "AttributeError: a canvas has no 'circle': it is 'disc'", 2),
        (draws_what_is_not_there, "no field 'postion' in its records", 2),
    ],
)
def test_a_wrong_picture_is_told_with_its_line(draw, message, line):
    env = velocirl.make(drifting("Drawn-v0", draw=draw), render_mode="rgb_array", device="python")
    env.reset(seed=0)
    with pytest.raises(DefinitionError) as caught:
        env.render()
    assert str(caught.value).startswith("Drawn-v0: draw ")
    assert message in str(caught.value)
    assert f"{__file__}:{draw.__code__.co_firstlineno + line}" in str(caught.value)


def test_the_rate_at_which_it_is_watched_is_its_own_and_lower_where_frames_are_skipped():
    environment = drifting("Rated-v0", draw=draws_nothing, render_fps=20)
    assert velocirl.make(environment).metadata["render_fps"] == 20
    assert velocirl.make(environment, skip=4).metadata["render_fps"] == 5
    assert velocirl.make("CartPole-v1").metadata["render_fps"] == 50


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"render_fps": 0}, "render_fps must be above 0 and at most 1000, got 0"),
        ({"action_meanings": ("left",)}, r"action_meanings= has 1 names for Discrete\(2\): name each action"),
    ],
)
def test_wrong_rates_and_meanings_are_refused(given, message):
    with pytest.raises(DefinitionError, match=message):
        drifting("Wrong-v0", **given)


def test_help_on_environments_names_every_method_of_the_canvas():
    told = pydoc.plain(pydoc.render_doc(velocirl.Environment))
    methods = [name for name, one in vars(Canvas).items() if callable(one) and not name.startswith("_")]
    for name in methods:
        assert name == "ansi" or f"canvas.{name}(" in told
